package files

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// maxDepth limits the nesting of a document.
const maxDepth = 1000

// DocumentJSON returns the only document of a YAML or JSON text as JSON. Numbers keep all
// their digits. It returns nil for an empty document.
func DocumentJSON(text []byte) ([]byte, error) {
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		return start, nil
	}
	return yamlToJSON(text)
}

// yamlToJSON converts a YAML document to JSON. It copies numbers as written: a float64
// would lose digits of a 19-digit sequence number. It returns nil for an empty document.
func yamlToJSON(doc []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) == 0 {
		return nil, nil
	}
	if n := root.Content[0]; n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, nil
	}
	if err := checkKeys(root.Content[0]); err != nil {
		return nil, err
	}
	w := &jsonWriter{most: maxObject}
	if err := w.value(root.Content[0], 0); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// checkKeys returns an error for a duplicate top-level key, as in two documents without a
// separator. The parser would keep only the last value, and silently lose the first
// document.
func checkKeys(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Tag != "!!merge" && seen[key.Value] {
			return fmt.Errorf("line %d: the key %q is there twice; is a line \"---\" missing between two documents?", key.Line, key.Value)
		}
		seen[key.Value] = true
	}
	return nil
}

// jsonWriter writes YAML nodes as JSON.
type jsonWriter struct {
	out  bytes.Buffer
	most int
}

func (w *jsonWriter) value(n *yaml.Node, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("line %d: nested too deep", n.Line)
	}
	if w.out.Len() > w.most { // mostly because of aliases of aliases
		return errTooLarge
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, depth+1)
	case yaml.MappingNode:
		return w.mapping(n, depth)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(item, depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
		return nil
	default:
		return w.scalar(n)
	}
}

func (w *jsonWriter) mapping(n *yaml.Node, depth int) error {
	w.out.WriteByte('{')
	first := true
	if err := w.members(n, depth, &first, nil); err != nil {
		return err
	}
	w.out.WriteByte('}')
	return nil
}

// members writes the members of a mapping. Members from merge keys ("<<") come first,
// unless the mapping has the key itself.
func (w *jsonWriter) members(n *yaml.Node, depth int, first *bool, hidden map[string]bool) error {
	if depth > maxDepth {
		return fmt.Errorf("line %d: nested too deep", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag == "!!merge" {
			if err := w.merge(n, n.Content[i+1], depth, first, hidden); err != nil {
				return err
			}
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: a key that is not text", key.Line)
		}
		if key.Tag == "!!merge" || hidden[key.Value] {
			continue
		}
		if !*first {
			w.out.WriteByte(',')
		}
		*first = false
		w.text(key.Value)
		w.out.WriteByte(':')
		if err := w.value(n.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *jsonWriter) merge(n, from *yaml.Node, depth int, first *bool, hidden map[string]bool) error {
	own := map[string]bool{}
	for k := range hidden {
		own[k] = true
	}
	for i := 0; i < len(n.Content); i += 2 {
		own[n.Content[i].Value] = true
	}
	for from.Kind == yaml.AliasNode {
		from = from.Alias
	}
	switch from.Kind {
	case yaml.MappingNode:
		return w.members(from, depth+1, first, own)
	case yaml.SequenceNode:
		// In YAML the first of several merges wins; in JSON the last duplicate does.
		for i := len(from.Content) - 1; i >= 0; i-- {
			part := from.Content[i]
			for part.Kind == yaml.AliasNode {
				part = part.Alias
			}
			if part.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: the merged value is not a mapping", from.Line)
			}
			if err := w.members(part, depth+1, first, own); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("line %d: the merged value is not a mapping", from.Line)
	}
}

var (
	jsonInt   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	jsonFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

func (w *jsonWriter) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return err
		}
		w.out.WriteString(strconv.FormatBool(v))
	case "!!int":
		w.integer(n.Value)
	case "!!float":
		if jsonFloat.MatchString(n.Value) {
			w.out.WriteString(n.Value)
			return nil
		}
		v, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			w.text(n.Value) // ".inf", which JSON cannot represent
			break
		}
		w.out.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
	default: // strings, and times, which are strings in JSON
		w.text(n.Value)
	}
	return nil
}

// integer writes a YAML integer: plain ones as written, others (0x1f, 1_000) by value.
func (w *jsonWriter) integer(s string) {
	if jsonInt.MatchString(s) {
		w.out.WriteString(s)
		return
	}
	digits := strings.TrimPrefix(strings.ReplaceAll(s, "_", ""), "+")
	if n, err := strconv.ParseInt(digits, 0, 64); err == nil {
		w.out.WriteString(strconv.FormatInt(n, 10))
	} else if n, err := strconv.ParseUint(digits, 0, 64); err == nil {
		w.out.WriteString(strconv.FormatUint(n, 10))
	} else {
		w.text(s)
	}
}

func (w *jsonWriter) text(s string) {
	quoted, _ := jsontext.AppendQuote(w.out.AvailableBuffer(), s) // YAML strings are valid UTF-8
	w.out.Write(quoted)
}
