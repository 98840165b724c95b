package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestList checks that every edit in the list still applies and that its test exists.
// "make mutants" checks that the tests fail.
func TestList(t *testing.T) {
	all, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.name] {
			t.Errorf("%q stands there twice", m.name)
		}
		seen[m.name] = true
		if _, err := m.edited(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if has, err := m.hasTest(root); err != nil || !has {
			t.Errorf("%s: %s has no %s (%v)", m.name, m.pkg, m.testFunc(), err)
		}
	}
	if len(all) < 40 {
		t.Errorf("only %d mutants are left", len(all))
	}
}

// TestParse checks that the error about an incomplete list names the line.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "there is none",
		"== a\n":                        "lacks its \"fails\" line",
		"a.go\n":                        "no \"== name\" line before",
		"== a\na.go\n- x\n== b\n":       "line 4",
		"== a\na.go\nfails p T\n":       "is missing",
		"== a\na.go\n- x\nfails pT\n":   "is missing",
		"== a\na.go\nb.go\nfails p T\n": "not understood",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	all, err := parse("# comment\n== a\na.go\n- x\n- \ty\n+ z\nfails p T/sub\n")
	if err != nil || len(all) != 1 || all[0] != (mutant{name: "a", file: "a.go", pkg: "p", old: "x\n\ty", new: "z", test: "T/sub"}) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestRun checks that a mutant counts as caught only if it applies and builds, and if its
// test passes without it and fails with it.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.24\n",
		"p/p.go": "package p\n\n// Twice doubles.\nfunc Twice(n int) int { return n + n }\n\n// Unseen is not tested.\nfunc Unseen() int { return 1 }\n",
		"p/p_test.go": `package p

import (
	"os"
	"strings"
	"testing"
)

func TestTwice(t *testing.T) {
	if Twice(3) != 6 {
		t.Fatal("not doubled")
	}
}

func TestPanics(t *testing.T) {
	if Twice(3) != 6 {
		panic("not doubled")
	}
}

func TestFails(t *testing.T) { t.Fail() }

func TestReads(t *testing.T) {
	if text, err := os.ReadFile("p.yaml"); err != nil || !strings.HasPrefix(string(text), "# one\n") {
		t.Fatal(err)
	}
}
`,
		"p/p.yaml": "# one\n# other\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct{ old, new, test, want string }{
		{"n + n", "n + n + 1", "TestTwice", caught},
		{"n + n", "n + n + 1", "TestPanics", caught},
		{"return 1", "return 2", "TestTwice", survived},
		{"n + n", "n + nobody", "TestTwice", broken},
		{"n - n", "n", "TestTwice", moved},
		{"return", "return 1 +", "TestTwice", moved}, // occurs twice
		{"n + n", "n + ", "TestTwice", moved},        // not valid Go
		{"return 1", "return 2", "TestFails", notGreen},
		{"return 1", "return 2", "TestAbsent", noTest},
		{"# one", "# two", "TestReads", caught},
		{"# other", "# two", "TestReads", survived},
	}
	var all []mutant
	for _, c := range cases {
		m := mutant{file: "p/p.go", pkg: "p", old: c.old, new: c.new, test: c.test}
		if strings.HasPrefix(c.old, "#") {
			m.file = "p/p.yaml"
		}
		all = append(all, m)
	}
	r := newRunner(dir, all)
	for i, c := range cases {
		got := r.run(t.Context(), &all[i])
		if got.status != c.want || (got.output == "") != (c.want == caught) {
			t.Errorf("%q for %q: %s, want %s; output:\n%s", c.new, c.old, got.status, c.want, got.output)
		}
	}
}
