package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The results of a mutant. Only caught is good.
const (
	caught   = "caught"
	survived = "SURVIVED"         // the test passed with the edit
	broken   = "DOES NOT BUILD"   // the test could not run
	moved    = "DOES NOT APPLY"   // the code has changed: update the list
	notGreen = "FAILS ANYWAY"     // the test also fails without the edit
	noTest   = "NO SUCH TEST RAN" // the test was renamed or skipped
)

// everyCase repeats testenv.EnvEveryCase, because only tests may import that package.
const everyCase = "CALICO_AUDIT_EVERY_CASE"

type result struct {
	status string
	took   time.Duration
	// output explains any status other than caught.
	output string
}

// runner runs mutants against the module at root.
type runner struct {
	root string
	// wanted lists the tests of each package that must notice a mutant. They run together
	// once without an edit, so each package is built once; unedited keeps the results.
	wanted   map[string][]string
	unedited map[string]*tested
}

func newRunner(root string, all []mutant) *runner {
	r := &runner{root: root, wanted: map[string][]string{}, unedited: map[string]*tested{}}
	for i := range all {
		if m := &all[i]; !slices.Contains(r.wanted[m.pkg], m.testFunc()) {
			r.wanted[m.pkg] = append(r.wanted[m.pkg], m.testFunc())
		}
	}
	return r
}

// run runs the test without the edit, which must pass, and then with it. The file itself is
// unchanged: a Go file is edited in an overlay, any other in a copy of the module.
func (r *runner) run(ctx context.Context, m *mutant) result {
	src, err := m.edited(r.root)
	if err != nil {
		return result{status: moved, output: err.Error()}
	}
	if clean := r.clean(ctx, m); clean.status != "" {
		return clean
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return result{status: broken, output: err.Error()}
	}
	defer os.RemoveAll(dir)
	root, flags := r.root, []string(nil)
	if m.isGo() {
		var overlay string
		overlay, err = writeOverlay(dir, filepath.Join(r.root, m.file), src)
		flags = []string{"-overlay", overlay}
	} else {
		root, err = dir, copyModule(dir, r.root, m.file, src)
	}
	if err != nil {
		return result{status: broken, output: err.Error()}
	}
	began := time.Now()
	got := runTests(ctx, root, m.pkg, pattern(m.test), append(flags, "-count=1")...)
	out := result{status: caught, took: time.Since(began)}
	switch name := m.testFunc(); {
	case got.failed[name]:
	case got.passed[name] && got.err == nil:
		out.status, out.output = survived, "the test passes with the edit"
	default:
		out.status, out.output = broken, got.output
	}
	return out
}

// clean runs the package's tests without the edit, once. It returns the zero result if the
// mutant's test passes.
func (r *runner) clean(ctx context.Context, m *mutant) result {
	if r.unedited[m.pkg] == nil {
		r.unedited[m.pkg] = runTests(ctx, r.root, m.pkg, "^("+strings.Join(r.wanted[m.pkg], "|")+")$")
	}
	switch got := r.unedited[m.pkg]; {
	case got.failed[m.testFunc()]:
		return result{status: notGreen, output: got.output}
	case !got.passed[m.testFunc()]:
		return result{status: noTest, output: got.output}
	}
	return result{}
}

// copyModule copies the module at root, with an edited file, except for files that no test reads.
func copyModule(dir, root, file string, edited []byte) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		place, err := filepath.Rel(root, path)
		to := filepath.Join(dir, place)
		switch {
		case err != nil || place == ".":
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "dist"):
			return fs.SkipDir
		case entry.IsDir():
			return os.Mkdir(to, 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil {
		return fmt.Errorf("copying the module: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, file), edited, 0o600)
}

// writeOverlay writes the edited file and the JSON file that "go test -overlay" reads. It
// returns the path of the JSON file.
func writeOverlay(dir, file string, src []byte) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	edited, list := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {file: edited}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(edited, src, 0o600); err != nil {
		return "", err
	}
	return list, os.WriteFile(list, text, 0o600)
}

// pattern selects a test, or a subtest of it, for "go test -run".
func pattern(test string) string {
	name, sub, isSub := strings.Cut(test, "/")
	if isSub {
		return "^" + name + "$/" + sub
	}
	return "^" + name + "$"
}

// tested is the result of tests: those that passed and failed, by function. A panic or
// timeout counts as a failure. Err is the error of "go test" itself.
type tested struct {
	passed, failed map[string]bool
	err            error
	output         string
}

// runTests runs tests of a package of the module at root. Linking without debug information
// takes half the time.
func runTests(ctx context.Context, root, pkg, pattern string, flags ...string) *tested {
	args := append([]string{"test", "-json", "-vet=off", "-ldflags=-s", "-timeout=15m", "-run", pattern}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), everyCase+"=1") // a sample may omit the case that would fail
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	t := &tested{passed: map[string]bool{}, failed: map[string]bool{}, err: cmd.Run()}
	var text strings.Builder
	for line := range bytes.Lines(out.Bytes()) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			text.Write(line)
			continue
		}
		text.WriteString(e.Output)
		switch e.Action {
		case "pass":
			t.passed[e.Test] = true
		case "fail":
			t.failed[e.Test] = true
		}
	}
	if t.err != nil && len(t.failed) == 0 {
		fmt.Fprintf(&text, "go test: %v\n", t.err)
	}
	t.output = text.String()
	return t
}
