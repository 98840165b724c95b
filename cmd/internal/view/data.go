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

// pasted is a value whose commands read the same source when they are pasted.
func pasted[T any](v T, o Options) T {
	if c, ok := any(v).(interface{ WithCommands(func(string) string) T }); ok {
		return c.WithCommands(o.Defaults().Command)
	}
	return v
}

// WriteJSON writes a value as indented JSON, without escaping <, > and &. Counts keep
// every digit, as they write themselves.
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

// WriteYAML writes a value's JSON as YAML. It goes from token to token, because
// the usual way over maps and float64 loses the order of keys and the digits of
// large numbers.
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

// jsonDecoder reads a value's JSON, its numbers with every digit.
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
		for d.More() { // in an object, key and value follow each other as the YAML node wants them
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
		// Without a tag the number is written as it stands; YAML's own !!int would
		// be spelled out for those beyond 64 bits.
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

// yaml11 are texts that readers of YAML 1.1 take for booleans, or for numbers to the
// base 60; in quotes they are strings to those of 1.2 as well.
var yaml11 = regexp.MustCompile(`^([-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|(?i:y|n|yes|no|on|off))$`)

// escapeUnprintable writes the characters in JSON or YAML that a terminal might
// act upon, or that hide or reorder others, as escapes. The value stays the same:
// in JSON such characters stand in strings only, and in YAML [yamlNode] sees to
// it that they stand in double quotes. Those below U+0080 the encoders escape.
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

// asLines makes a format's Write of what lists names, which are written one a line.
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

// asPath makes a format's Write of a jsonpath template. It writes what the template
// selects as kubectl does: without a newline of its own, and nothing for what does not
// exist.
func asPath[T any](template string) (func(io.Writer, T, Options) error, error) {
	path, err := parsePath("output", template)
	return func(w io.Writer, v T, o Options) error {
		data, err := decoded(pasted(v, o))
		if err != nil {
			return err
		}
		// The whole is made first: a template that fails half way writes nothing.
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

// TemplateError says that a template that reads well cannot be applied to a
// report, such as one that compares a number with a word.
type TemplateError struct{ Err error }

// Error says why.
func (e *TemplateError) Error() string {
	return "applying the template to the report: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TemplateError) Unwrap() error { return e.Err }

// decoded returns a value as programs see it, made of maps, slices, strings and
// numbers: an int64 where it fits, else a json.Number with all its digits.
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
