package files

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestDocumentJSON(t *testing.T) {
	for name, c := range map[string]struct{ yaml, json string }{
		"a sequence number keeps its digits": {
			"a: 18446744073709551615\nb: 1763632800123456789\nc: -9223372036854775808", `{"a":18446744073709551615,"b":1763632800123456789,"c":-9223372036854775808}`},
		"other integers":  {"a: 0x1f\nb: 1_000\nc: 0o17\nd: +5\ne: 0b11", `{"a":31,"b":1000,"c":15,"d":5,"e":3}`},
		"fractions":       {"a: 1.5\nb: 1e3\nc: .5", `{"a":1.5,"b":1000,"c":0.5}`},
		"words":           {"a: true\nb: ~\nc: null\nd:\ne: no\nf: \"true\"", `{"a":true,"b":null,"c":null,"d":null,"e":false,"f":"true"}`},
		"times are texts": {"a: 2025-11-20T10:00:00Z\nb: 2025-11-20", `{"a":"2025-11-20T10:00:00Z","b":"2025-11-20"}`},
		"keys are texts":  {"0: a\ntrue: b\n\"c\": d", `{"0":"a","c":"d","true":"b"}`},
		"block scalars":   {"a: |\n  x\n  - y\nb: >\n  z\n  w\n", `{"a":"x\n- y\n","b":"z w\n"}`},
		"aliases":         {"a: &x [1, {b: c}]\nd: *x", `{"a":[1,{"b":"c"}],"d":[1,{"b":"c"}]}`},
		"merge keys": {
			"base: &b {x: 1, w: 2}\nover: &o {w: 3, z: 4}\none: {<<: *b, x: 9}\ntwo: {<<: [*o, *b]}\nthree:\n  <<: *b\n  x: 9",
			`{"base":{"w":2,"x":1},"one":{"w":2,"x":9},"over":{"w":3,"z":4},"three":{"w":2,"x":9},"two":{"w":3,"x":1,"z":4}}`},
		"a key twice, further down": {"a: {b: 1, b: 2}\nc:\n- d: 1\n  d: 2", `{"a":{"b":2},"c":[{"d":2}]}`},
		"JSON is YAML":              {"# flow\n{\"a\": [1, \"b\", null]}", `{"a":[1,"b",null]}`},
		"quotes in text":            {`a: "x\"\\\u00e9\n"`, `{"a":"x\"\\é\n"}`},
		"nothing":                   {"# only a comment\n", ``},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DocumentJSON([]byte(c.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.json {
				t.Errorf("got  %s\nwant %s", got, c.json)
			}
		})
	}
}

func TestYAMLErrors(t *testing.T) {
	for name, text := range map[string]string{
		"a key that is a list": "? [a, b]\n: c",
		"an unknown alias":     "a: *nowhere",
		"a mapping cut off":    "a: {b: c",
		"tabs":                 "a:\n\tb: c",
		"merge of a text":      "a: {<<: b}",
		"an alias in itself":   "a: &x [*x]",
		"no number of JSON's":  "a: .inf",
		"a key twice":          "a: 1\nb: 2\na: 3",
		"a quoted key twice":   "# two\n\"a\": 1\n'a': 3",
	} {
		if got, err := DocumentJSON([]byte(text)); err == nil {
			t.Errorf("%s: no error, but %s", name, got)
		}
	}
}

// Aliases of aliases must not fill the memory.
func TestYAMLAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		name, last := string(rune('a'+i)), string(rune('a'+i-1))
		if i == 1 {
			last = "a0"
		}
		b.WriteString(name + ": &" + name + " [" + repeat("*"+last, 9, ", ") + "]\n")
	}
	if _, err := DocumentJSON([]byte(b.String())); err == nil || !strings.Contains(err.Error(), "excessive aliasing") {
		t.Errorf("got error %v", err)
	}
	text := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + repeat("*a", 100_000, ", ") + "]\n"
	if _, err := DocumentJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a long text a hundred thousand times: got error %v", err)
	}
}

// FuzzYAML: whatever the text, the outcome is JSON or an error.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"a: 1\nb: [x, 'y', \"z\"]\n", "- a\n- b: {c: d}\n", "{\"a\": null}", "a: |\n  x\n", "&a [*a]", "? a\n: b",
		"a: {<<: {b: 1}, c: 0x_}", "a: !!int x\nb: !!bool y\nc: !!float z\nd: !x w",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := DocumentJSON(text)
		if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && start[0] == '{' {
			return // taken for JSON, which who decodes it finds out
		}
		if err == nil && got != nil && !json.Valid(got) {
			t.Fatalf("not JSON: %s", got)
		}
	})
}
