package storm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// mover runs the program on a cluster in which a block can be emptied for a node.
type mover struct {
	*victim
	dir string
}

// newMover returns the program on a cluster with four blocks. Nodes a and b own two each, one of
// them with room; node new has no block. The pods have no controller, so evicted pods are not
// replaced.
func newMover(t *testing.T, path string) *mover {
	t.Helper()
	ctx := t.Context()
	c := testcluster.Start(t, testcluster.Options{})
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(ctx))
	must(t, s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.7.0.0/28", BlockSize: 30, IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever}))
	for _, node := range []string{"a", "b", "new"} {
		must(t, s.Node(ctx, seeding.Node{Name: node}))
	}
	kubelets.Start(t, s, kubelets.Options{})
	pods := c.Kube.CoreV1().Pods("default")
	name := func(node string, i int) string { return fmt.Sprintf("web-%s-%d", node, i) }
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	for _, node := range []string{"a", "b"} {
		for i := range 5 {
			_, err := pods.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name(node, i)},
				Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			}, metav1.CreateOptions{})
			must(t, err)
			until(name(node, i)+" has no address", func() bool {
				pod, err := pods.Get(ctx, name(node, i), metav1.GetOptions{})
				must(t, err)
				return pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning
			})
		}
	}
	m := &mover{&victim{damaged: &damaged{Cluster: c, group: testcluster.CRDv1}, path: path}, t.TempDir()}
	m.proxy = NewFaultProxy(t, c.Config, "calico-audit")
	m.tool, err = newTool(m.proxy.Config(), somewhere(map[netip.Addr]string{}))
	must(t, err)
	m.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	content, err := m.proxy.Kubeconfig()
	must(t, err)
	must(t, os.WriteFile(m.kubeconfig, content, 0o600))
	for _, node := range []string{"a", "b"} { // each block has room then
		must(t, pods.Delete(ctx, name(node, 0), metav1.DeleteOptions{}))
	}
	until("pods do not end", func() bool {
		list, err := pods.List(ctx, metav1.ListOptions{})
		must(t, err)
		used := 0
		for _, b := range m.state(t).IPBlocks {
			used += b.Used
		}
		return len(list.Items) == 8 && used == 8
	})
	return m
}

// consolidates is the command that is killed.
var consolidates = []string{"repair", "--apply", "--consolidate", "--cordon-full", "--evict-singletons", "--grace=0s", "--yes", "--pace=0s", "--journal", "journal"}

// killedAt runs the command and kills it at the first write that at selects. If after is true, the
// write arrives first; otherwise it does not.
func (m *mover) killedAt(t *testing.T, at func(Write) bool, after bool) {
	t.Helper()
	c := exec.CommandContext(t.Context(), m.path, append(slices.Clone(consolidates), "--kubeconfig", m.kubeconfig)...)
	c.Dir = m.dir
	out := new(strings.Builder)
	c.Stdout, c.Stderr = out, out
	ended := make(chan struct{})
	m.proxy.Pause(func(_ int, w Write) bool {
		if !at(w) {
			return true
		}
		_ = c.Process.Kill()
		<-ended
		return after
	})
	defer m.proxy.Pause(nil)
	must(t, c.Start())
	var err error
	go func() { defer close(ended); err = c.Wait() }()
	<-ended
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed, but ended with %v\n%s", err, out)
	}
	m.proxy.Pause(nil)
	m.proxy.WaitIdle()
}

// marked names the marked and the half-done objects that the run left.
func marked(st *state.State) (out []string) {
	for i := range st.Reservations {
		if r := &st.Reservations[i]; r.Ours != "" {
			out = append(out, "ipreservation/"+r.Name)
		}
	}
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.Ours != "" {
			out = append(out, "node/"+n.Name)
		}
	}
	for _, name := range halfDone(st) {
		out = append(out, "/"+name)
	}
	return out
}

// left fails the test unless the report names all leftovers of the run, as one finding and one
// diagnosis with two remedies: at once with the journal, and otherwise within some time.
func (m *mover) left(t *testing.T, want []string, within time.Duration, args ...string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(within); ; time.Sleep(time.Second) {
		var report audit.Report
		_, out := m.output(t, m.dir, append([]string{"report", "-o", "json"}, args...)...)
		must(t, json.Unmarshal(out, &report))
		var found []*audit.Finding
		for i := range report.Findings {
			if report.Findings[i].Check == "config/leftover" {
				found = append(found, &report.Findings[i])
			}
		}
		switch {
		case len(want) == 0 && len(found) == 0:
			return
		case len(found) != 1:
			last = fmt.Sprintf("%d findings", len(found))
		case slices.ContainsFunc(want, func(name string) bool { return !strings.Contains(fmt.Sprint(found[0].Evidence), name) }):
			last = fmt.Sprintf("%v", found[0].Evidence)
		default:
			if d := report.DiagnosisOf(found[0]); d == nil || len(d.Remedies) != 2 {
				t.Errorf("the diagnosis is %+v", d)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v are left, and within %s the report %v says: %s", want, within, args, last)
		}
	}
}

// TestKilledMoves kills the real program while it moves pods. Its leftovers are reported in one
// finding, at once with its journal, and otherwise as soon as its Lease has expired. The same
// command continues the run. An undo, with or without the journal, removes the cordons and the
// reservation. The sample kills the program once, before it waits for the reservation's minimum
// age.
func TestKilledMoves(t *testing.T) {
	t.Parallel()
	path := program(t)
	m := newMover(t, path)
	is := func(verb, resource string) func(Write) bool {
		return func(w Write) bool { return w.Verb == verb && strings.Contains(w.Path, "/"+resource) }
	}
	reserve := is(http.MethodPost, "ipreservations")
	original := m.essence(t)
	for i, undo := range [][]string{{"repair", "undo", "journal"}, {"repair", "undo"}} {
		if i > 0 && !testenv.EveryCase() {
			break
		}
		t.Run("reserved, "+strings.Join(undo, " "), func(t *testing.T) {
			m.dir = t.TempDir()
			m.killedAt(t, reserve, true)
			want := marked(m.state(t))
			if len(want) != 1 {
				t.Fatalf("it left %v", want)
			}
			m.left(t, want, 0, "--journal", "journal")
			m.left(t, want, 13*time.Second)
			if i > 0 {
				m.dir = t.TempDir() // without the journal
			}
			m.ended(t, undo)
			for _, d := range Differ(original, m.essence(t)) {
				t.Errorf("after the undo: %s", d)
			}
		})
	}
	if !testenv.EveryCase() {
		return
	}
	kills := []struct {
		name string
		at   func(Write) bool
	}{
		{"cordon", is(http.MethodPatch, "nodes/")},
		{"evict", func(w Write) bool { return strings.HasSuffix(w.Path, "/eviction") }},
		{"release", is(http.MethodDelete, "ipamblocks/")},
		{"claim", is(http.MethodPost, "blockaffinities")},
		{"create", is(http.MethodPost, "ipamblocks")},
		{"unreserve", is(http.MethodDelete, "ipreservations/")},
	}
	for i, k := range kills {
		for j, end := range [][]string{consolidates, {"repair", "undo", "journal"}, {"repair", "undo"}} {
			t.Run(k.name+", "+strings.Join(end[:2], " ")+fmt.Sprint(j), func(t *testing.T) {
				m := newMover(t, path)
				m.killedAt(t, k.at, (i+j)%2 == 0)
				want := marked(m.state(t))
				m.left(t, want, 0, "--journal", "journal")
				m.left(t, want, 13*time.Second)
				m.ended(t, end)
			})
		}
	}
}

// ended runs a command, and checks that nothing of the run is left.
func (m *mover) ended(t *testing.T, args []string) {
	t.Helper()
	args = slices.Clone(args)
	if args[1] == "undo" {
		args = append(args, "--yes", "--pace=0s")
	}
	c := exec.CommandContext(t.Context(), m.path, append(args, "--kubeconfig", m.kubeconfig)...)
	c.Dir = m.dir
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	st := m.state(t)
	left := marked(st)
	for _, name := range left {
		if c.ProcessState.ExitCode() != 4 || !strings.Contains(string(out), name) {
			t.Errorf("%v ends with %d, and leaves %s:\n%s", args, c.ProcessState.ExitCode(), name, out)
		}
	}
	if c.ProcessState.ExitCode() != 0 && len(left) == 0 {
		t.Errorf("%v ends with %d:\n%s", args, c.ProcessState.ExitCode(), out)
	}
	if len(left) == 0 {
		m.left(t, nil, 0)
	}
}
