package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
)

// runExplain explains a subject. It returns the exit code, the explanation, and standard
// error.
func runExplain(t *testing.T, r source.Reader, subject string) (int, *explain.Explanation, string) {
	t.Helper()
	streams, out, errOut := testStreams()
	c := &explainCommand{env: env{streams, "calico-audit"}, grace: graceFlag{state.DefaultGrace}, output: outputFlags{[]string{"json"}, terminal.ColorNever}}
	c.sources.AddTo(newExplain(c.env))
	code := execute(t.Context(), streams, func() error {
		if err := c.complete([]string{subject}); err != nil {
			return err
		}
		return c.run(t.Context(), r, terminal.NewProgress(nil))
	})
	e := new(explain.Explanation)
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), e); err != nil {
			t.Fatalf("reading the explanation: %v\n%s", err, out)
		}
	}
	return code, e, errOut.String()
}

// checksOf returns the checks of the first subject's findings and related findings.
func checksOf(e *explain.Explanation) string {
	var out []string
	for _, s := range e.Subjects {
		for _, f := range append(s.Findings, s.Related...) {
			out = append(out, f.Check)
		}
	}
	return strings.Join(out, " ")
}

// TestExplainConfirms: severe findings about a running cluster are read twice, and those
// that the second reading does not show are dropped.
func TestExplainConfirms(t *testing.T) {
	r := &scriptedReader{first: liveStory(t), second: liveStory(t)}
	code, e, _ := runExplain(t, r, "new-1")
	if code != exit.CodeOK || !strings.Contains(checksOf(e), "pool/no-free-blocks") || !strings.Contains(checksOf(e), "node/no-block") {
		t.Errorf("ended with %d and the findings %s", code, checksOf(e))
	}
	if len(r.asked) == 0 {
		t.Error("nothing was read a second time")
	}

	second := liveStory(t)
	second.Blocks = second.Blocks[:1] // since the first reading blocks were released
	code, e, _ = runExplain(t, &scriptedReader{first: liveStory(t), second: second}, "pods-v4")
	if code != exit.CodeOK || strings.Contains(checksOf(e), "pool/no-free-blocks") {
		t.Errorf("ended with %d and the findings %s", code, checksOf(e))
	}
	if !strings.Contains(e.Subjects[0].Summary, "Blocks left to claim: 3 of 4") {
		t.Errorf("the explanation is not of the second reading: %s", e.Subjects[0].Summary)
	}
}

// TestExplainUnconfirmed: if the second reading fails, unconfirmed findings are withheld,
// the explanation is incomplete, and an unknown name is not a usage error.
func TestExplainUnconfirmed(t *testing.T) {
	failing := func() *scriptedReader {
		return &scriptedReader{first: liveStory(t), err: errors.New("connection refused")}
	}
	code, e, errOut := runExplain(t, failing(), "new-1")
	if code != exit.CodeUnread || e.Complete || !strings.Contains(errOut, "connection refused") {
		t.Errorf("ended with %d, complete: %t, %q; want 3, false", code, e.Complete, errOut)
	}
	for _, s := range e.Subjects {
		for _, f := range append(s.Findings, s.Related...) {
			if f.Severity >= state.Error {
				t.Errorf("nothing confirmed this: %s %s", f.Severity, f.Message)
			}
		}
	}
	skipped := false
	for _, s := range e.SkippedChecks {
		skipped = skipped || s.Check == "node/no-block" && strings.Contains(s.Reason, "withheld")
	}
	if !skipped {
		t.Errorf("the skipped checks do not say that node/no-block was withheld: %v", e.SkippedChecks)
	}
	if code, _, errOut := runExplain(t, failing(), "new-9"); code != exit.CodeUnread || !strings.Contains(errOut, `"new-9" was seen`) {
		t.Errorf("an unseen name ended with %d: %s", code, errOut)
	}
	if code, _, errOut := runExplain(t, &scriptedReader{first: liveStory(t), second: liveStory(t)}, "new-9"); code != exit.CodeUsage || !strings.Contains(errOut, "did you mean") {
		t.Errorf("an unknown name ended with %d: %s", code, errOut)
	}
}
