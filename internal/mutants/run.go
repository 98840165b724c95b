package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// everyCase repeats testenv.EnvEveryCase, since only tests may import that package.
const everyCase = "CALICO_AUDIT_EVERY_CASE"

// result is the result of one mutant.
type result struct {
	status string
	took   time.Duration
	// output explains any status other than caught.
	output string
}

// runner runs mutants against the module at root.
type runner struct {
	root string
	// green caches the test results without an edit.
	green map[string]result
}

// run runs the test without the edit, which must pass, and then with it. The edit is an
// overlay, so the file itself is unchanged.
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
	overlay, err := writeOverlay(dir, filepath.Join(r.root, m.file), src)
	if err != nil {
		return result{status: broken, output: err.Error()}
	}
	began := time.Now()
	ran, failed, output := r.test(ctx, m, "-overlay", overlay)
	out := result{status: caught, took: time.Since(began), output: output}
	switch {
	case failed:
		out.output = ""
	case ran:
		out.status, out.output = survived, "the test passes with the edit"
	default:
		out.status = broken
	}
	return out
}

// clean runs the test without the edit. It returns the zero result if the test passes.
func (r *runner) clean(ctx context.Context, m *mutant) result {
	key := m.pkg + " " + m.test
	if known, ok := r.green[key]; ok {
		return known
	}
	ran, failed, output := r.test(ctx, m)
	out := result{}
	switch {
	case failed:
		out = result{status: notGreen, output: output}
	case !ran:
		out = result{status: noTest, output: output}
	}
	r.green[key] = out
	return out
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

// test runs the mutant's test. It reports whether the test ran to its end, and whether it
// failed. A panic or timeout counts as a failure.
func (r *runner) test(ctx context.Context, m *mutant, flags ...string) (ran, failed bool, output string) {
	name, sub, hasSub := strings.Cut(m.test, "/")
	pattern := "^" + name + "$"
	if hasSub {
		pattern += "/" + sub
	}
	args := append([]string{"test", "-json", "-count=1", "-vet=off", "-timeout=5m", "-run", pattern}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+m.pkg)...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), everyCase+"=1") // a sample may omit the case that would fail
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var text strings.Builder
	for line := range bytes.Lines(out.Bytes()) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			text.Write(line)
			continue
		}
		text.WriteString(e.Output)
		if e.Test != name {
			continue
		}
		switch e.Action {
		case "pass":
			ran = true
		case "fail":
			ran, failed = true, true
		}
	}
	if err != nil && !failed {
		fmt.Fprintf(&text, "go test: %v\n", err)
		ran = false
	}
	return ran, failed, text.String()
}
