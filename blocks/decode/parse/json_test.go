package parse

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestReaderNamesTheField(t *testing.T) {
	const text = `{"spec": {"cidr": 5, "list": ["a", 7, {"x": true}], "map": {"10.0.0.0/8": "many"}}, "rest": [1, 2]}`
	r := New([]byte(text))
	r.Object(func(key []byte) {
		if string(key) != "spec" {
			return
		}
		r.Object(func(key []byte) {
			switch string(key) {
			case "cidr":
				r.Bytes()
			case "list":
				r.Array(func(int) { r.Bytes() })
			case "map":
				r.Object(func([]byte) { r.Int() })
			}
		})
	})
	if r.err != nil || !r.AtEnd() {
		t.Fatalf("err %v, at end %t", r.err, r.AtEnd())
	}
	want := []Fault{
		{"spec.cidr", "is a number, not a string"},
		{"spec.list[1]", "is a number, not a string"},
		{"spec.list[2]", "is an object, not a string"},
		{"spec.map[10.0.0.0/8]", "is a string, not an integer"},
	}
	if len(r.Faults) != len(want) {
		t.Fatalf("got %v, want %v", r.Faults, want)
	}
	for i, f := range r.Faults {
		if f != want[i] {
			t.Errorf("fault %d: got %v, want %v", i, f, want[i])
		}
	}
}

func TestReaderKeepsDigits(t *testing.T) {
	for text, want := range map[string]uint64{
		"18446744073709551615": 1<<64 - 1,
		"1763632800123456789":  1763632800123456789,
		"0":                    0,
		"26.0":                 26,
		"1.7636328001e+18":     1763632800100000000,
	} {
		r := New([]byte(text))
		if got, ok := r.Uint(); !ok || got != want || len(r.Faults) > 0 {
			t.Errorf("%s: got %d, %t, faults %v", text, got, ok, r.Faults)
		}
	}
	for text, reason := range map[string]string{
		"18446744073709551616": "is 18446744073709551616, not an integer from 0 to 2^64-1",
		"-1":                   "is -1, not an integer from 0 to 2^64-1",
		"1.5":                  "is 1.5, not an integer",
		"1e-3":                 "is 1e-3, not an integer",
		"1e19":                 "is 1e19, not an integer",
		`"5"`:                  "is a string, not an integer",
	} {
		r := New([]byte(text))
		if _, ok := r.Uint(); ok || len(r.Faults) != 1 || r.Faults[0].Reason != reason {
			t.Errorf("%s: ok %t, faults %v, want %q", text, ok, r.Faults, reason)
		}
	}
}

func TestReaderRejects(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for _, text := range []string{
		"", "{", "[", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1,]`, `[1 2]`, `{"a" 1}`, `{1:2}`,
		`"abc`, `"\x"`, `"\u12"`, "\"a\nb\"", "tru", "nul", "01", "-", "1.", "1e", "@", "{]", "[}", `{"a":1]`, deep,
	} {
		r := New([]byte(text))
		r.Skip()
		if r.err == nil && r.AtEnd() {
			t.Errorf("no error for %.40s", text)
		}
	}
}

// FuzzJSON compares the reader with encoding/json: both must accept the same texts and
// decode the same strings.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a": [1, -2.5e+3, true, false, null], "b": {"c": "d\u00e9\ud83d\ude00\n\\"}}`,
		"\"\xff\xfe\"", `"\ud800"`, `"\ud800\u0041"`, ` [ ] `, `{}`, `"\/\b\f\t\r"`, "[\"é\"]", "0", "-0.0",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := New(text)
		r.Skip()
		ours := r.err == nil && r.AtEnd()
		if want := json.Valid(text); ours != want {
			// Both limit depth; encoding/json allows more in total.
			if want && bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) >= maxDepth {
				return
			}
			t.Fatalf("valid: %t, want %t (%v)", ours, want, r.err)
		}
		if !ours {
			return
		}
		var want string
		if json.Unmarshal(text, &want) != nil || bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
			return
		}
		r = New(text)
		if got, ok := r.Bytes(); !ok || string(got) != want {
			t.Fatalf("string %q, want %q", got, want)
		}
	})
}
