package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is one edit of the code, with the test that must fail because of it.
type mutant struct {
	// name describes the mistake in the edited code.
	name string
	// file is the path of the edited file; pkg is the path of the test's package. Both
	// are relative to the top of the repository.
	file, pkg string
	// old occurs exactly once in the file and is replaced by new.
	old, new string
	// test is the test that must fail, or a subtest of it: Test/sub/test.
	test string
}

// parse parses a list of mutants. Each begins with a line "== name" and a line with the
// file. Lines that begin with "- " are the text to replace, and lines that begin with "+
// " the replacement; neither need be whole lines. A line "fails PACKAGE TEST" ends the
// mutant. Lines that begin with # are comments.
func parse(text string) ([]mutant, error) {
	var all []mutant
	for i, line := range strings.Split(text, "\n") {
		bad := func(what string) error { return fmt.Errorf("line %d, %q: %s", i+1, line, what) }
		if name, begins := strings.CutPrefix(line, "== "); begins {
			if n := len(all); n > 0 && all[n-1].test == "" {
				return nil, bad("the mutant before lacks its \"fails\" line")
			}
			all = append(all, mutant{name: name})
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(all) == 0 {
			return nil, bad("no \"== name\" line before")
		}
		m := &all[len(all)-1]
		old, isOld := strings.CutPrefix(line, "- ")
		now, isNew := strings.CutPrefix(line, "+ ")
		fails, isTest := strings.CutPrefix(line, "fails ")
		switch {
		case isOld:
			m.old = joined(m.old, old)
		case isNew:
			m.new = joined(m.new, now)
		case isTest:
			var ok bool
			if m.pkg, m.test, ok = strings.Cut(fails, " "); !ok || m.file == "" || m.old == "" {
				return nil, bad("a file, a \"- \" line, or the package or test is missing")
			}
		case m.file == "":
			m.file = line
		default:
			return nil, bad("not understood")
		}
	}
	if n := len(all); n == 0 || all[n-1].test == "" {
		return nil, fmt.Errorf("the last mutant lacks its \"fails\" line, or there is none")
	}
	return all, nil
}

func joined(text, line string) string {
	if text == "" {
		return line
	}
	return text + "\n" + line
}

// isGo reports whether the edited file is compiled. Tests read other files, such as manifests.
func (m *mutant) isGo() bool { return strings.HasSuffix(m.file, ".go") }

// edited returns the content of the edited file. It returns an error if the old text does
// not occur exactly once, or if the result of a Go file is not valid Go.
func (m *mutant) edited(root string) ([]byte, error) {
	src, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return nil, fmt.Errorf("%s has the text to be replaced %d times, not once: %s", m.file, n, m.old)
	}
	out := strings.Replace(string(src), m.old, m.new, 1)
	if !m.isGo() {
		return []byte(out), nil
	}
	if _, err := parser.ParseFile(token.NewFileSet(), m.file, out, parser.SkipObjectResolution); err != nil {
		return nil, fmt.Errorf("edited, it is not Go: %w", err)
	}
	return []byte(out), nil
}

// testFunc returns the name of the test function that must fail.
func (m *mutant) testFunc() string {
	name, _, _ := strings.Cut(m.test, "/")
	return name
}

// hasTest reports whether the test's function exists in its package.
func (m *mutant) hasTest(root string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
	if err != nil {
		return false, err
	}
	function := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(m.testFunc()) + `\(t \*testing\.T\)`)
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			return false, err
		}
		if function.Match(src) {
			return true, nil
		}
	}
	return false, nil
}
