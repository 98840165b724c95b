package storm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// program builds calico-audit the way that users build it.
func program(t *testing.T) string {
	t.Helper()
	root, err := programs.ModuleRoot()
	must(t, err)
	path := filepath.Join(t.TempDir(), "calico-audit")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", path, "./cmd/calico-audit")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building calico-audit: %v\n%s", err, out)
	}
	return path
}

// victim is the real program on a damaged cluster, to be killed (SIGKILL) while one of
// its writes is in progress.
type victim struct {
	*damaged
	path, kubeconfig string
	request          repair.Request // selected by flags
	flags            []string
	want             map[string]string         // result of an undisturbed repair
	healed           map[string]string         // result of a second repair after it
	meant            map[string]state.Severity // the findings after that
	writes           []Write
	kinds            []repair.Kind // of the step of each write
	leftHalf         int           // total number of half-done objects
	// was and back are the settled essences before the run, and after an undo of the whole run.
	was, back map[string]string
	had       map[string]state.Severity // the findings before the run
}

// kindFlags are the flags for all repairs of Calico's IPAM.
var kindFlags = []string{
	"--empty-blocks", "--orphan-affinities", "--missing-affinities", "--leaked-ips", "--leaked-handles", "--soft-deleted", "--dead-nodes", "--unrecorded-ips", "--missing-handles",
	"--strict-affinity=true",
}

// unplanned returns the command without a plan file.
func (v *victim) unplanned() []string {
	return append([]string{"repair", "--apply", "--grace=0s"}, v.flags...)
}

func newVictim(t *testing.T, path string, x *damaged, request repair.Request, flags ...string) *victim {
	t.Helper()
	v := &victim{damaged: x, path: path, request: request, flags: flags, meant: map[string]state.Severity{}}
	v.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	content, err := v.proxy.Kubeconfig()
	must(t, err)
	must(t, os.WriteFile(v.kubeconfig, content, 0o600))

	dir, base := v.planned(t), len(v.proxy.Writes())
	v.ends(t, dir, "repair", "apply", "plan.json", "--journal", "journal")
	v.unharmed(t)
	v.want, v.writes = v.essence(t), v.proxy.Writes()[base:]
	for _, f := range audit.Run(v.state(t), checks.All).Findings {
		v.meant[f.Fingerprint] = f.Severity
	}
	file, err := journal.Read(filepath.Join(dir, "journal"))
	must(t, err)
	var last *repair.Change
	for _, e := range file.Entries {
		// Addresses of one block are freed in one write, which each of their steps
		// records.
		if c := e.Change; c != nil && (last == nil || c.Step == last.Step || c.Ref() != last.Ref() || !bytes.Equal(c.Before, last.Before)) {
			v.kinds = append(v.kinds, file.Step(e.Step).Kind)
		}
		if e.Change != nil {
			last = e.Change
		}
	}
	v.ends(t, dir, v.unplanned()...)
	v.unharmed(t)
	v.healed = v.essence(t)
	if len(v.kinds) != len(v.writes) {
		t.Fatalf("%d changes in the journal, and %d writes", len(v.kinds), len(v.writes))
	}
	return v
}

// planned restores the damage, and returns a directory with a plan of its repair.
func (v *victim) planned(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(v.plan(t, v.request))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "plan.json"), text, 0o600))
	return dir
}

func (v *victim) command(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	if args[1] != "undo" {
		args = append(args, "--host-views", v.views(t, dir))
	}
	args = append(args, "--kubeconfig", v.kubeconfig, "--yes", "--pace=0s")
	c := exec.CommandContext(t.Context(), v.path, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &out
	return c, &out
}

// views writes the current host views, as agents would, and returns the directory. An
// operator takes new views before each run.
func (v *victim) views(t *testing.T, dir string) string {
	t.Helper()
	st, err := v.tool.reader.Read(t.Context())
	must(t, err)
	dir = filepath.Join(dir, "views")
	must(t, os.MkdirAll(dir, 0o700))
	for _, view := range st.Hosts.Views {
		view.APIVersion, view.Kind = audit.APIVersion, blocks.HostViewKind
		host := &view.Namespaces[slices.IndexFunc(view.Namespaces, func(n blocks.HostNamespace) bool { return n.Host })]
		for i := range st.Nodes {
			if st.Nodes[i].Name == view.Node {
				host.Addresses = append(host.Addresses, st.Nodes[i].Addresses...)
			}
		}
		text, err := json.Marshal(view)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, view.Node+".json"), text, 0o600))
	}
	return dir
}

// ends runs the program and fails the test unless it exits with code 0.
func (v *victim) ends(t *testing.T, dir string, args ...string) {
	t.Helper()
	if code, out := v.run(t, dir, args...); code != 0 {
		t.Errorf("%v ends with %d:\n%s", args, code, out)
	}
}

func (v *victim) run(t *testing.T, dir string, args ...string) (int, string) {
	t.Helper()
	c, out := v.command(t, dir, args...)
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String()
}

// output runs the program against the cluster itself, and returns its exit code and output.
func (v *victim) output(t *testing.T, dir string, args ...string) (int, []byte) {
	t.Helper()
	c := exec.CommandContext(t.Context(), v.path, append(args, "--kubeconfig", v.kubeconfig)...)
	c.Dir = dir
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out
}

// killed runs the program and kills it at a write, which then arrives or not, or at a
// moment. The half-done work must harm no address in use, and every new problem must be
// explained by the interrupted step.
func (v *victim) killed(t *testing.T, p killPoint, dir string, args ...string) {
	t.Helper()
	before, records := v.state(t), v.secondaryRecords(t)
	if killed, out := v.kill(t, p, dir, args...); !killed && p.moment == 0 {
		t.Fatalf("it was not killed, but ended\n%s", out)
	}
	kind := v.kindAt(p)
	if kept := slices.Index(args, "--journal"); kept > 0 {
		file, err := journal.Read(filepath.Join(dir, args[kept+1]))
		switch {
		case err == nil && p.moment > 0:
			kind = brokeOff(file)
		case err != nil && (p.moment == 0 || !errors.Is(err, fs.ErrNotExist)):
			t.Errorf("killed %s, its journal cannot be read: %v", v.at(p), err)
		}
	}
	v.unharmed(t)
	for _, w := range Worse(before, v.state(t), kind, v.meant) {
		t.Errorf("killed %s, worse than before: %s", v.at(p), w)
	}
	v.reported(t, p, records)
}

// kill runs the program and kills it at a write, counted from now, or at a moment. It reports whether
// it was killed before its end.
func (v *victim) kill(t *testing.T, p killPoint, dir string, args ...string) (bool, string) {
	t.Helper()
	c, out := v.command(t, dir, args...)
	base := len(v.proxy.Writes())
	ended := make(chan struct{})
	if p.moment == 0 {
		v.proxy.Pause(func(n int, _ Write) bool {
			if n != base+p.k {
				return true
			}
			_ = c.Process.Kill()
			<-ended
			return p.after
		})
	}
	must(t, c.Start())
	if p.moment > 0 {
		time.AfterFunc(p.moment, func() { _ = c.Process.Kill() })
	}
	go func() {
		defer close(ended)
		_ = c.Wait() // it may exit before it reaches that write
	}()
	<-ended
	v.proxy.Pause(nil)
	v.proxy.WaitIdle()
	status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL, out.String()
}

// kindAt returns the kind of the step of a write; "" for a moment.
func (v *victim) kindAt(p killPoint) repair.Kind {
	if p.moment > 0 {
		return ""
	}
	return v.kinds[p.k-1]
}

// at describes where the program was killed.
func (v *victim) at(p killPoint) string {
	if p.moment > 0 {
		return p.String()
	}
	return fmt.Sprintf("in a %s step, %s", v.kinds[p.k-1], v.writes[p.k-1])
}

// reported fails the test unless a report names the half-done objects at once, without a
// grace period.
func (v *victim) reported(t *testing.T, p killPoint, before map[string]string) {
	t.Helper()
	var report audit.Report
	out, err := exec.CommandContext(t.Context(), v.path, "report", "-o", "json", "--kubeconfig", v.kubeconfig).Output()
	must(t, err)
	must(t, json.Unmarshal(out, &report))
	for _, name := range halfReleased(before, v.secondaryRecords(t)) {
		v.leftHalf++
		if !slices.ContainsFunc(report.Findings, func(f audit.Finding) bool { return f.Check == "whereabouts/reservation-only" && f.Subject.Name == name }) {
			t.Errorf("killed %s, of reservation %s the entry is gone, and the report does not say so:\n%s", v.at(p), name, out)
		}
	}
	for _, name := range halfDone(v.state(t)) {
		v.leftHalf++
		named := slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
			return f.Subject.Name == name && saysHalfDone(f)
		})
		if !named {
			t.Errorf("killed %s, %s is half-done, and the report does not say so:\n%s", v.at(p), name, out)
		}
	}
}

// halfDone returns the objects that a step of calico-audit left half-done.
func halfDone(st *state.State) []string {
	var out []string
	for _, b := range st.IPBlocks {
		if b.ByUs && b.SoftDeleted {
			out = append(out, b.Name)
		}
	}
	for i := range st.Affinities {
		if state.HalfDone(&st.Affinities[i]) {
			out = append(out, st.Affinities[i].Name)
		}
	}
	for _, h := range st.Handles {
		if h.ByUs && h.SoftDeleted {
			out = append(out, h.Name)
		}
	}
	return out
}

// killPoint is the write at which the program is killed, and whether the write arrives; or, if
// positive, the time since its start.
type killPoint struct {
	k      int
	after  bool
	moment time.Duration
}

func (p killPoint) String() string {
	if p.moment > 0 {
		return fmt.Sprintf("after-%s", p.moment.Round(time.Millisecond))
	}
	if p.after {
		return fmt.Sprintf("after-write-%d", p.k)
	}
	return fmt.Sprintf("before-write-%d", p.k)
}

// points returns all writes, before and after. A sample has one point for a third of the kinds
// of step, and one that certainly leaves half-done work: after a patch that is followed by a
// delete in a step of the same kind.
func (v *victim) points(r *rand.Rand) []killPoint {
	var all, sample, half []killPoint
	kinds := map[repair.Kind][]killPoint{}
	for i, w := range v.writes {
		for _, after := range []bool{false, true} {
			p := killPoint{k: i + 1, after: after}
			all = append(all, p)
			kinds[v.kinds[i]] = append(kinds[v.kinds[i]], p)
			if marks := slices.Contains([]repair.Kind{repair.ReleaseBlock, repair.ReleaseWhereabouts}, v.kinds[i]); marks && after &&
				w.Verb == http.MethodPatch && i+1 < len(v.writes) && v.kinds[i+1] == v.kinds[i] && v.writes[i+1].Verb == http.MethodDelete {
				half = append(half, p)
			}
		}
	}
	if testenv.EveryCase() {
		return all
	}
	names := slices.Sorted(maps.Keys(kinds))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, kind := range names[:(len(names)+2)/3] {
		sample = append(sample, kinds[kind][r.IntN(len(kinds[kind]))])
	}
	if !slices.ContainsFunc(half, func(p killPoint) bool { return slices.Contains(sample, p) }) && len(half) > 0 {
		sample = append(sample, half[r.IntN(len(half))])
	}
	r.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
	return sample
}
