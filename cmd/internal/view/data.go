package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/util/jsonpath"
)

func asJSON[T any](w io.Writer, v T, o Options) error { return WriteJSON(w, pasted(v, o)) }
func asYAML[T any](w io.Writer, v T, o Options) error { return WriteYAML(w, pasted(v, o)) }

// pasted returns the value with commands that read the same source when pasted.
func pasted[T any](v T, o Options) T {
	if c, ok := any(v).(interface{ WithCommands(func(string) string) T }); ok {
		return c.WithCommands(o.Defaults().Command)
	}
	return v
}

// WriteJSON writes a value as indented JSON, without escaping <, > and &. Counts keep all
// digits, because they marshal themselves.
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

// WriteYAML writes a value's JSON as YAML. It converts token by token, because the usual
// conversion through maps and float64 loses the order of keys and the digits of large
// numbers.
func WriteYAML(w io.Writer, v any) error {
	var buf bytes.Buffer
	e := yaml.NewEncoder(&buf)
	e.SetIndent(2)
	e.CompactSeqIndent()
	d, err := jsonDecoder(v)
	if err == nil {
		var node *yaml.Node
		if node, err = yamlNode(d); err == nil {
			err = e.Encode(node)
		}
	}
	if err == nil {
		err = e.Close()
	}
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	_, err = w.Write(escapeUnprintable(buf.Bytes(), func(r rune) string { return fmt.Sprintf(`\U%08x`, r) }))
	return err
}

// jsonDecoder returns a decoder for a value's JSON that keeps all digits of numbers.
func jsonDecoder(v any) (*json.Decoder, error) {
	data, err := json.Marshal(v)
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d, err
}

func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if t == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for d.More() { // an object's keys and values alternate, as in a YAML node
			c, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, err := d.Token()
		return n, err
	case json.Number:
		// Without a tag the number is written verbatim. The tag !!int would be written out
		// for numbers beyond 64 bits.
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}
		if yaml11.MatchString(t) || !isClean(t) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// yaml11 matches texts that YAML 1.1 parsers read as booleans or base-60 numbers. Quoted,
// they are strings in 1.1 and 1.2.
var yaml11 = regexp.MustCompile(`^([-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|(?i:y|n|yes|no|on|off))$`)

// escapeUnprintable escapes characters that a terminal might interpret, or that hide or
// reorder others. The value stays the same: in JSON such characters only occur in strings,
// and in YAML [yamlNode] puts them in double quotes. The encoders already escape those
// below U+0080.
func escapeUnprintable(data []byte, long func(r rune) string) []byte {
	if bytes.IndexFunc(data, unprintable) < 0 {
		return data
	}
	var b bytes.Buffer
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case !unprintable(r):
			b.Write(data[:n])
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(long(r))
		}
		data = data[n:]
	}
	return b.Bytes()
}

func unprintable(r rune) bool { return r >= 0x7f && !strconv.IsPrint(r) }

// asLines returns a Write function for a list of names, one a line.
func asLines[T any](names func(T) []string) func(io.Writer, T, Options) error {
	return func(w io.Writer, v T, _ Options) error {
		var b strings.Builder
		for _, n := range names(v) {
			b.WriteString(Clean(n) + "\n")
		}
		_, err := io.WriteString(w, b.String())
		return err
	}
}

// asPath returns a Write function for a jsonpath template. Like kubectl, it adds no
// newline, and writes nothing for missing fields.
func asPath[T any](template string) (func(io.Writer, T, Options) error, error) {
	path, err := parsePath("output", template)
	return func(w io.Writer, v T, o Options) error {
		data, err := decoded(pasted(v, o))
		if err != nil {
			return err
		}
		// Render everything first, so that a failing template writes nothing.
		var buf bytes.Buffer
		if err := path.Execute(&buf, data); err != nil {
			return &TemplateError{err}
		}
		_, err = w.Write(buf.Bytes())
		return err
	}, err
}

func parsePath(name, template string) (*jsonpath.JSONPath, error) {
	path := jsonpath.New(name).AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("reading the jsonpath template %q: %w", template, err)
	}
	return path, nil
}

// TemplateError is returned for a valid template that cannot be applied to a report, such
// as one that compares a number with a string.
type TemplateError struct{ Err error }

// Error implements error.
func (e *TemplateError) Error() string {
	return "applying the template to the report: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TemplateError) Unwrap() error { return e.Err }

// decoded returns a value as generic JSON: maps, slices, strings and numbers. A number is
// an int64 if it fits, else a json.Number with all digits.
func decoded(v any) (any, error) {
	d, err := jsonDecoder(v)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	return small(out), nil
}

// small converts numbers to int64 where they fit, so that jsonpath filters can compare
// them.
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
