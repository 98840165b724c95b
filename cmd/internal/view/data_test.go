package view

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit"
)

// Numbers of the /48 pool in testdata/reports/huge.json: 2^80 and 2^80 - 3.
const (
	hugeCapacity  = "1208925819614629174706176"
	hugeAvailable = "1208925819614629174706173"
)

func TestNoDigitIsLost(t *testing.T) {
	r := loadReport(t, "huge")
	for _, c := range []struct{ output, want string }{
		{"json", `"capacity": ` + hugeCapacity + ",\n"},
		{"json", `"available": ` + hugeAvailable + "\n"},
		{"yaml", "capacity: " + hugeCapacity + "\n"},
		{"yaml", "available: " + hugeAvailable + "\n"},
		{`jsonpath={.pools[?(@.name=="pods-v6")].addresses.available}`, hugeAvailable},
		{`jsonpath={.pools[1].addresses}`, `"capacity":` + hugeCapacity},
		{"custom-columns=V:.evidence[0].value", hugeAvailable},
	} {
		if got := render(t, c.output, r, Options{}); !strings.Contains(got, c.want) {
			t.Errorf("-o %s lacks %q:\n%s", c.output, c.want, got)
		}
	}
}

// TestColumnNumbers: a number beyond 64 bits keeps all digits in a column.
func TestColumnNumbers(t *testing.T) {
	path, err := parsePath("x", relaxed("n"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := decoded(json.RawMessage(`{"n": ` + hugeCapacity + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cell(path, data); err != nil || got != hugeCapacity {
		t.Errorf("the column shows %q, %v; want %s", got, err, hugeCapacity)
	}
}

// TestYAMLSaysWhatJSONSays compares the two outputs value by value, including the order of
// keys and all digits.
func TestYAMLSaysWhatJSONSays(t *testing.T) {
	for _, name := range reports {
		r := loadReport(t, name)
		var fromYAML yaml.Node
		if err := yaml.Unmarshal([]byte(render(t, "yaml", r, Options{})), &fromYAML); err != nil {
			t.Fatalf("%s: reading the YAML: %v", name, err)
		}
		d := json.NewDecoder(strings.NewReader(render(t, "json", r, Options{})))
		d.UseNumber()
		fromJSON, err := yamlNode(d)
		if err != nil {
			t.Fatalf("%s: reading the JSON: %v", name, err)
		}
		if diff := cmp.Diff(outline(fromJSON), outline(fromYAML.Content[0])); diff != "" {
			t.Errorf("%s: YAML and JSON differ (-json +yaml):\n%s", name, diff)
		}
	}
}

// outline lists a node's values, depth first.
func outline(n *yaml.Node) []string {
	if n.Kind == yaml.ScalarNode {
		return []string{n.Value}
	}
	out := []string{"("}
	for _, c := range n.Content {
		out = append(out, outline(c)...)
	}
	return append(out, ")")
}

// TestYAMLStrings: strings that look like other types are read back as strings, by YAML 1.2
// and by Kubernetes' YAML.
func TestYAMLStrings(t *testing.T) {
	for _, s := range []string{
		"", " ", "no", "Yes", "on", "y", "~", "null", "true", "0x1f", "0o7", "1e3", "1_000", ".inf", "1:20", "10:20:30", "190:20:30.15",
		"2026-01-31", "2026-01-31T08:00:00Z", "- a", "a: b", "#x", "a #b", "'q'", `"q"`, "%x", "@x", "*x", "&x", "!x", "|", ">", "[", "{}",
		"a\nb", "a\n", "\ttab", "nul\x00", "esc\x1b[31m", "c1\u009b", "bidi\u202e", "tag\U000e0041", "fd00::1", "fd00:10:244::/48", "=", "<<",
	} {
		var buf bytes.Buffer
		if err := WriteYAML(&buf, map[string]string{"key": s}); err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		var v3, sigs map[string]any
		if err := yaml.Unmarshal(buf.Bytes(), &v3); err != nil || v3["key"] != s {
			t.Errorf("%q was written as %q and read as %v, %v", s, buf.String(), v3["key"], err)
		}
		if err := sigsyaml.Unmarshal(buf.Bytes(), &sigs); err != nil || sigs["key"] != s {
			t.Errorf("%q was written as %q and read by sigs.k8s.io/yaml as %v, %v", s, buf.String(), sigs["key"], err)
		}
		if strings.IndexFunc(buf.String(), unprintable) >= 0 {
			t.Errorf("%q was written raw: %q", s, buf.String())
		}
	}
}

func TestJSONKeepsValues(t *testing.T) {
	want := map[string]string{"html": "<a> & </a>", "c1": "\u009b31m", "bidi": "\u202e", "tag": "\U000e0041x", "plain": "日本語 é ü …"}
	var buf bytes.Buffer
	if err := WriteJSON(&buf, want); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values changed (-want +got):\n%s", diff)
	}
	for _, s := range []string{"<a> & </a>", "日本語 é ü …", "\n"} {
		if !strings.Contains(buf.String(), s) {
			t.Errorf("%q is escaped in %s", s, buf.String())
		}
	}
	if strings.IndexFunc(buf.String(), unprintable) >= 0 {
		t.Errorf("unprintable characters were written raw: %q", buf.String())
	}
}

// TestJSONIsTheReport: the output of -o json is read back as the same report.
func TestJSONIsTheReport(t *testing.T) {
	for _, name := range reports {
		r := loadReport(t, name)
		text := render(t, "json", r, Options{})
		again := new(audit.Report)
		if err := json.Unmarshal([]byte(text), again); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if second := render(t, "json", again, Options{}); second != text {
			t.Errorf("%s: written, read and written again it differs:\n%s", name, cmp.Diff(text, second))
		}
		if !strings.HasSuffix(text, "}\n") || strings.HasSuffix(text, "\n\n") {
			t.Errorf("%s: ends in %q, not in one newline", name, text[len(text)-3:])
		}
	}
}
