package files

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestYAMLToJSON(t *testing.T) {
	for name, c := range map[string]struct{ yaml, json string }{
		"a sequence number keeps its digits": {
			"n: 18446744073709551615\nm: 1763632800123456789\no: -9223372036854775808\np: 123456789012345678901234567890",
			`{"n":18446744073709551615,"m":1763632800123456789,"o":-9223372036854775808,"p":123456789012345678901234567890}`},
		"other integers":  {"a: 0x1f\nb: 1_000\nc: 0o17\nd: +5\ne: 0b11\nf: 0xffff_ffff_ffff_ffff", `{"a":31,"b":1000,"c":15,"d":5,"e":3,"f":18446744073709551615}`},
		"fractions":       {"a: 1.5\nb: 1e3\nc: .5\nd: .inf", `{"a":1.5,"b":1e3,"c":0.5,"d":".inf"}`},
		"words":           {"a: true\nb: ~\nc: null\nd:\ne: no\nf: \"true\"", `{"a":true,"b":null,"c":null,"d":null,"e":"no","f":"true"}`},
		"times are texts": {"a: 2025-11-20T10:00:00Z\nb: 2025-11-20", `{"a":"2025-11-20T10:00:00Z","b":"2025-11-20"}`},
		"keys are texts":  {"0: a\ntrue: b\n\"c\": d", `{"0":"a","true":"b","c":"d"}`},
		"block scalars":   {"a: |\n  x\n  - y\nb: >\n  z\n  w\n", `{"a":"x\n- y\n","b":"z w\n"}`},
		"aliases":         {"a: &x [1, {b: c}]\nd: *x", `{"a":[1,{"b":"c"}],"d":[1,{"b":"c"}]}`},
		"merge keys": {
			"base: &b {x: 1, y: 2}\nover: &o {y: 3, z: 4}\none: {<<: *b, x: 9}\ntwo: {<<: [*o, *b]}",
			`{"base":{"x":1,"y":2},"over":{"y":3,"z":4},"one":{"y":2,"x":9},"two":{"x":1,"y":2,"y":3,"z":4}}`},
		"JSON is YAML":   {`{"a": [1, "b", null]}`, `{"a":[1,"b",null]}`},
		"quotes in text": {`a: "x\"\\\u00e9\n"`, `{"a":"x\"\\é\n"}`},
		"nothing":        {"# only a comment\n", ``},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := yamlToJSON([]byte(c.yaml))
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
	} {
		if got, err := yamlToJSON([]byte(text)); err == nil {
			t.Errorf("%s: no error, but %s", name, got)
		}
	}
}

// Aliases of aliases must not exhaust memory.
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
	if _, err := yamlToJSON([]byte(b.String())); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got error %v", err)
	}
}

// FuzzYAML: any text yields JSON or an error.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"a: 1\nb: [x, 'y', \"z\"]\n", "- a\n- b: {c: d}\n", "{\"a\": null}", "a: |\n  x\n", "&a [*a]", "? a\n: b",
		"a: {<<: {b: 1}, c: 0x_}", "a: !!int x\nb: !!bool y\nc: !!float z\nd: !x w",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := yamlToJSON(text)
		if err == nil && got != nil && !json.Valid(got) {
			t.Fatalf("not JSON: %s", got)
		}
	})
}

// TestYAMLLosesNothing covers digits, keys and depth that a parser may silently lose.
func TestYAMLLosesNothing(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want, err string }{
		"digits":            {yaml: "a: 18446744073709551616\nb: 1208925819614629174706176\n", want: `{"a":18446744073709551616,"b":1208925819614629174706176}`},
		"a block twice":     {yaml: "kind: A\nmetadata:\n  name: a\nspec: {}\nmetadata:\n  name: b\n", err: `line 5: the key "metadata" is there twice`},
		"a quoted one":      {yaml: "\"items\":\n- 1\n\"items\":\n- 2\n", err: `the key "items" is there twice`},
		"own before merged": {yaml: "s: &s {pod: p1}\na: {pod: p2, <<: *s}\n", want: `{"s":{"pod":"p1"},"a":{"pod":"p2"}}`},
		"words":             {yaml: "y: on\n010: no\n", want: `{"y":"on","010":"no"}`},
		"depth":             {yaml: "a: " + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + "\n", err: "deep"},
	} {
		got, err := DocumentJSON([]byte(c.yaml))
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, %v; want the error %q", name, string(got[:min(len(got), 80)]), err, c.err)
		case c.err == "" && (err != nil || string(got) != c.want):
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
}
