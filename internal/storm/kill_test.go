package storm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// program builds calico-audit, as it is installed.
func program(t *testing.T) string {
	t.Helper()
	root, err := testcluster.ModuleRoot()
	must(t, err)
	path := filepath.Join(t.TempDir(), "calico-audit")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/calico-audit")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building calico-audit: %v\n%s", err, out)
	}
	return path
}

// The real program is killed (SIGKILL) while one of its writes is on its way, which
// then arrives or does not. What it leaves harms nobody, and the program, told to
// resume, completes it.
func TestKilledProgram(t *testing.T) {
	t.Parallel()
	path := program(t)
	r := rand.New(rand.NewPCG(seed(t), 2))
	x := newRuined(t, testcluster.CRDv1)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content, err := x.gate.Kubeconfig()
	must(t, err)
	must(t, os.WriteFile(kubeconfig, content, 0o600))
	run := func(plan *repair.Plan, args ...string) (*exec.Cmd, *bytes.Buffer) {
		file := filepath.Join(t.TempDir(), "plan.json")
		text, err := json.Marshal(plan)
		must(t, err)
		must(t, os.WriteFile(file, text, 0o600))
		var out bytes.Buffer
		c := exec.CommandContext(t.Context(), path, append([]string{"repair", "apply", file, "--yes", "--pace=0s", "--kubeconfig", kubeconfig}, args...)...)
		c.Stdout, c.Stderr = &out, &out
		return c, &out
	}

	request := requests()["all"]
	plan := x.plan(t, request)
	base := len(x.gate.Writes())
	c, out := run(plan, "--journal", filepath.Join(t.TempDir(), "journal"))
	if err := c.Run(); err != nil {
		t.Fatalf("the program, not killed: %v\n%s", err, out)
	}
	x.unharmed(t)
	want, meant := x.essence(t), map[string]audit.Severity{}
	for _, f := range audit.Run(x.state(t), nil).Findings {
		meant[f.Fingerprint] = f.Severity
	}
	writes := x.gate.Writes()[base:]
	for _, p := range resumed(writes, r) {
		t.Run(p.String(), func(t *testing.T) {
			plan := x.plan(t, request)
			before := x.state(t)
			journal := filepath.Join(t.TempDir(), "journal")
			c, out := run(plan, "--journal", journal)
			base := len(x.gate.Writes())
			ended := make(chan error, 1)
			x.gate.Hold(func(n int, _ Write) bool {
				if n != base+p.k {
					return true
				}
				_ = c.Process.Kill()
				ended <- c.Wait()
				return p.after
			})
			must(t, c.Start())
			err := <-ended
			x.gate.Hold(nil)
			if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed, but ended with %v\n%s", err, out)
			}
			x.gate.Settle()
			x.unharmed(t)
			file, err := repair.ReadJournal(journal)
			must(t, err)
			broke := brokeOff(file)
			for _, w := range Worse(before, x.state(t), broke, meant) {
				t.Errorf("killed in a %s step, at %s, worse than before: %s", broke, writes[p.k-1], w)
			}
			c, out = run(plan, "--resume", journal)
			if err := c.Run(); err != nil {
				t.Errorf("resumed after it was killed in a %s step, at %s: %v\n%s", broke, writes[p.k-1], err, out)
			}
			x.is(t, want, fmt.Sprintf("resumed after it was killed in a %s step, at %s", broke, writes[p.k-1]))
		})
	}
}

// resumed are points at which the program is killed and goes on with its journal;
// planning anew is for the other crash test. In a sample there is one for each sort
// of write.
func resumed(writes []Write, r *rand.Rand) []crashPoint {
	var all []crashPoint
	sorts := map[string][]crashPoint{}
	for i, w := range writes {
		for _, after := range []bool{false, true} {
			p := crashPoint{k: i + 1, after: after, resume: true}
			all = append(all, p)
			sorts[w.Sort()] = append(sorts[w.Sort()], p)
		}
	}
	if everyWrite() {
		return all
	}
	var sample []crashPoint
	for _, sort := range slices.Sorted(maps.Keys(sorts)) {
		sample = append(sample, sorts[sort][r.IntN(len(sorts[sort]))])
	}
	return sample
}
