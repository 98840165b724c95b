package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"

	"github.com/calico-audit/calico-audit/audit"
)

type jsonPrinter struct{}

func newJSON(string, Options) (Printer, error) { return jsonPrinter{}, nil }

// Print writes the report as it is. Counts keep every digit, as they write
// themselves.
func (jsonPrinter) Print(w io.Writer, r *audit.Report) error { return WriteJSON(w, r) }

// WriteJSON writes a value as indented JSON, without escaping <, > and &.
func WriteJSON(w io.Writer, v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err := w.Write(escapeUnprintable(buf.Bytes(), func(r rune) string {
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}))
	return err
}

// decoded returns a value as programs see it, made of maps, slices, strings and
// numbers: an int64 where it fits, else a json.Number with all its digits.
func decoded(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	return small(out), nil
}

// small turns numbers into int64 where that loses nothing, so that they can be
// compared with the numbers in a jsonpath filter.
func small(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = small(x)
		}
	case []any:
		for i, x := range v {
			v[i] = small(x)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	}
	return v
}
