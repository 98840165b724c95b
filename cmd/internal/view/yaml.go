package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/calico-audit/calico-audit/audit"
)

type yamlPrinter struct{}

func newYAML(string, Options) (Printer, error) { return yamlPrinter{}, nil }

// Print writes what the JSON output says, in the same order.
func (yamlPrinter) Print(w io.Writer, r *audit.Report) error { return WriteYAML(w, r) }

// WriteYAML writes a value's JSON as YAML. It goes from token to token, because
// the usual way over maps and float64 loses the order of keys and the digits of
// large numbers.
func WriteYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	var buf bytes.Buffer
	e := yaml.NewEncoder(&buf)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(node); err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	_, err = w.Write(escapeUnprintable(buf.Bytes(), func(r rune) string { return fmt.Sprintf(`\U%08x`, r) }))
	return err
}

// yamlNode reads one JSON value.
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
		return yamlString(t), nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// base60 are texts that YAML 1.1 reads as numbers.
var base60 = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)

// yamlString writes a string so that readers of YAML 1.1 and 1.2 both read it as
// one.
func yamlString(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		n.Style = yaml.DoubleQuotedStyle
	}
	if base60.MatchString(s) || !isClean(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
