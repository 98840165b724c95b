package story

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// The commands that end the incident.
var (
	consolidate = []string{"repair", "--consolidate", "--cordon-full", "--apply", "--yes", "--pace=0s"}
	rehome      = []string{"repair", "--rehome", "--cordon-full", "--apply", "--yes", "--pace=0s"}
)

// TestStory checks that the report names the incident's problems, and that --consolidate
// and --rehome alone end them. At the end there is no finding at error or above and no
// borrowed address, and every workload kept its budget. The remaining findings say that
// the pool is small; their remedy is another pool. The daily run plays it with fewer pods.
func TestStory(t *testing.T) {
	t.Parallel()
	size := small
	if testenv.EveryCase() {
		size = full
	}
	s := play(t, size)
	s.told(t)
	p := newProxy(t, s.Config)
	s.wayOut(t, p.kubeconfig(t))
	s.ended(t)
	if removed := s.checkBudgets(t); removed == 0 {
		t.Error("no pod was moved")
	}
}

// wayOut frees one block for each node without a block, then restarts the pods that
// borrow.
func (s *story) wayOut(t *testing.T, kubeconfig string) {
	t.Helper()
	for range newNodes {
		succeeds(t, kubeconfig, consolidate)
	}
	s.awaitHealthy(t)
	succeeds(t, kubeconfig, rehome)
	s.awaitHealthy(t)
}

func succeeds(t *testing.T, kubeconfig string, args []string) {
	t.Helper()
	code, out, log := run(t, t.TempDir(), append(slices.Clone(args), "--kubeconfig", kubeconfig)...)
	t.Logf("%s\n%s%s", strings.Join(args, " "), out, log)
	if code != 0 {
		t.Fatalf("%s ends with %d", strings.Join(args, " "), code)
	}
}

// ended fails the test unless the incident is over.
func (s *story) ended(t *testing.T) {
	t.Helper()
	ipam, err := s.ReadIPAM(t.Context(), testcluster.CRDv1)
	must(t, err)
	if len(ipam.Borrowed) > 0 {
		t.Errorf("still borrowed: %v", ipam.Borrowed)
	}
	for _, node := range slices.Concat(oldNodes, newNodes) {
		if len(ipam.Blocks[node]) != 1 || len(ipam.Affinities[node]) != 1 {
			t.Errorf("node %s has blocks %v and affinities %v", node, ipam.Blocks[node], ipam.Affinities[node])
		}
	}
	report := reportOf(t, s.Cluster)
	for i := range report.Findings {
		f := &report.Findings[i]
		switch {
		case f.Severity >= state.Error:
			t.Errorf("%s is left: %s: %s", f.Severity, f.Check, f.Message)
		case f.Severity == state.Warning && report.DiagnosisOf(f) == nil:
			t.Errorf("left: %s: %s", f.Check, f.Message)
		}
	}
	for _, d := range report.Diagnoses {
		if d.ID != "shortage/"+pool || len(d.Remedies) == 0 || !strings.Contains(d.Remedies[0].Title, "add a pool") {
			t.Errorf("left: %s, and the remedy is %+v", d.Message, d.Remedies)
		}
	}
	if _, err := s.Kube.CoordinationV1().Leases(repair.LeaseNamespace).Get(t.Context(), repair.LeaseName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease of a run is left (%v)", err)
	}
	s.clean(t)
}

// clean fails the test if any object of a run remains in the cluster.
func (s *story) clean(t *testing.T) {
	t.Helper()
	for _, left := range s.leftovers(t) {
		t.Error(left)
	}
}

// leftovers lists objects and cordons that a run left in the cluster.
func (s *story) leftovers(t *testing.T) (out []string) {
	t.Helper()
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	reservations, err := s.List(t.Context(), testcluster.CRDv1.Resource("ipreservations"))
	must(t, err)
	for i := range reservations {
		say("the IPReservation %s is left", reservations[i].GetName())
	}
	nodes, err := s.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, node := range nodes.Items {
		if node.Spec.Unschedulable {
			say("node %s is still cordoned", node.Name)
		}
		for key := range node.Annotations {
			if strings.HasPrefix(key, "calico-audit") {
				say("node %s still has the annotation %s", node.Name, key)
			}
		}
	}
	for _, kind := range []string{"ipamblocks", "blockaffinities"} {
		objects, err := s.List(t.Context(), testcluster.CRDv1.Resource(kind))
		must(t, err)
		for i := range objects {
			spec := objects[i].Object["spec"].(map[string]any)
			if text := fmt.Sprint(spec["deleted"]); text == "true" || kind == "blockaffinities" && spec["state"] != "confirmed" {
				say("%s %s is left half-done: %v", kind, objects[i].GetName(), spec)
			}
		}
	}
	return out
}

// TestWorstSchedulerStopsTheRun plays a scheduler that ignores cordons and places every
// replacement on a node without free addresses. Only one more pod may borrow. Then the
// run stops, names the reason and undoes its changes.
func TestWorstSchedulerStopsTheRun(t *testing.T) {
	t.Parallel()
	s := play(t, small)
	before, err := s.ReadIPAM(t.Context(), testcluster.CRDv1)
	must(t, err)
	s.scheduler.Stop()
	s.StartScheduler(t, `
- schedulerName: default-scheduler
  plugins: {filter: {disabled: [{name: NodeUnschedulable}]}}
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [`+strings.Join(newNodes, ", ")+`]}]
`)
	code, out, log := run(t, t.TempDir(), append(slices.Clone(consolidate), "--kubeconfig", newProxy(t, s.Config).kubeconfig(t))...)
	t.Logf("%s%s", out, log)
	if code != 4 {
		t.Errorf("it ends with %d, not 4", code)
	}
	if !strings.Contains(out+log, "borrows") {
		t.Error("it does not say that a replacement borrows")
	}
	after, err := s.ReadIPAM(t.Context(), testcluster.CRDv1)
	must(t, err)
	more := 0
	for addr, b := range after.Borrowed {
		if before.Borrowed[addr] != b {
			more++
		}
	}
	if more > 1 {
		t.Errorf("%d more addresses are borrowed: %v, before %v", more, after.Borrowed, before.Borrowed)
	}
	s.clean(t)
	s.awaitHealthy(t)
	s.checkBudgets(t)
}

// death is the moment at which a command is killed: before or after its k-th write, or in
// the wait after that write. Afterwards the run is undone or resumed, or the same command
// runs again.
type death struct {
	of    string // the command's flag
	args  []string
	from  scene
	k     int
	after bool
	wait  time.Duration
	end   string // one of the ends
	// was are the holdings before the command, and to those after it if it is not killed.
	was, to holdings
}

// ends are the ways to continue after the process was killed.
var ends = []string{"again", "resumed", "undone"}

// holdings are the blocks and affinities of each node, and the number of borrowed
// addresses.
type holdings struct {
	blocks, affinities map[string][]netip.Prefix
	borrowed           int
}

func (s *story) holdings(t *testing.T) holdings {
	t.Helper()
	ipam, err := s.ReadIPAM(t.Context(), testcluster.CRDv1)
	must(t, err)
	return holdings{ipam.Blocks, ipam.Affinities, len(ipam.Borrowed)}
}

func (d death) String() string {
	text := "before"
	switch {
	case d.wait > 0:
		text = "waiting-after"
	case d.after:
		text = "after"
	}
	return fmt.Sprintf("%s-%s-write-%02d-%s", strings.TrimPrefix(d.of, "--"), text, d.k, d.end)
}

// deaths returns all deaths of a command. It runs the command once to learn its writes
// and their times.
func (s *story) deaths(t *testing.T, args []string) (all []death) {
	t.Helper()
	from, was, p := s.scene(t), s.holdings(t), newProxy(t, s.Config)
	succeeds(t, p.kubeconfig(t), args)
	if !slices.ContainsFunc(p.writes, func(w write) bool { return strings.HasSuffix(w.what, "/eviction") }) {
		t.Fatalf("%s moves no pod", args[1])
	}
	s.awaitHealthy(t)
	to := s.holdings(t)
	for i, w := range p.writes {
		at := []death{{k: i + 1}, {k: i + 1, after: true}}
		text := "at once"
		if i+1 < len(p.writes) {
			if waits := p.writes[i+1].at.Sub(w.at); waits > 3*killedWaiting/2 {
				text = fmt.Sprintf("waits for %s", waits.Round(time.Millisecond))
				at = append(at, death{k: i + 1, after: true, wait: killedWaiting})
			}
		}
		t.Logf("write %d: %s, then %s", i+1, w.what, text)
		for _, d := range at {
			for _, end := range ends {
				d.of, d.args, d.from, d.was, d.to, d.end = args[1], args, from, was, to, end
				all = append(all, d)
			}
		}
	}
	return all
}

// killedWaiting is how long the program waits before it is killed in a wait.
const killedWaiting = time.Second

// TestKilledConsolidation kills the program at a write or while it waits. A report with the journal
// names at once what it left. Then an undo reverts the changes, or the run is resumed, or the same
// command continues to the result of an unkilled run and the incident is ended. If every point is
// tried, the incident is ended only for the points in waits. Either way no object of the run
// remains, and every budget is kept.
func TestKilledConsolidation(t *testing.T) {
	t.Parallel()
	s := play(t, small)
	all := s.deaths(t, consolidate)
	all = append(all, s.deaths(t, rehome)...) // for pods that borrow although one node already has a block
	all = testenv.Sample(t, 1, all)
	stages := s.stages(t, len(all))
	for _, d := range all {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s := <-stages
			defer func() { s.stop(); stages <- s }()
			s.enter(t, d.from)
			p := newProxy(t, s.Config)
			kubeconfig := p.kubeconfig(t)
			dir := t.TempDir()
			ended := killAt(t, p, d, dir, append(slices.Clone(d.args), "--kubeconfig", kubeconfig))
			journal := s.journal(t, dir)
			if !ended {
				s.reported(t, journal)
			}
			switch {
			case d.end == "undone":
				s.undo(t, d, dir, journal, kubeconfig)
			case d.end == "resumed" && !ended:
				s.goOn(t, d, dir, []string{"repair", "apply", "--resume", journal, "--yes", "--pace=0s", "--kubeconfig", kubeconfig})
			default:
				s.goOn(t, d, dir, append(slices.Clone(d.args), "--kubeconfig", kubeconfig))
			}
			s.checkBudgets(t)
			t.Logf("%s: left nothing: %t", d, !t.Failed())
		})
	}
}

// journal returns the journal of a run.
func (s *story) journal(t *testing.T, dir string) string {
	t.Helper()
	journals, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	must(t, err)
	if len(journals) != 1 {
		t.Fatalf("there are the journals %v", journals)
	}
	return journals[0]
}

// reported fails the test unless a report with the journal names all leftovers of the run, in one
// finding.
func (s *story) reported(t *testing.T, journal string) {
	t.Helper()
	var found []string
	report := reportOf(t, s.Cluster, "--journal", journal)
	for i := range report.Findings {
		if f := &report.Findings[i]; f.Check == "config/leftover" {
			found = append(found, fmt.Sprint(f.Evidence))
		}
	}
	left := s.leftovers(t)
	if len(found) > 1 || len(found) == 0 && len(left) > 0 {
		t.Errorf("%v are left, and %d findings say so", left, len(found))
		return
	}
	for _, text := range left {
		if !slices.ContainsFunc(strings.Fields(text), func(word string) bool { return strings.Contains(found[0], "/"+word) }) {
			t.Errorf("%s, and the report names %s", text, found[0])
		}
	}
	t.Logf("left: %v", left)
}

// undo undoes a killed run. Each node has the blocks again that it had, except those whose
// release the undo says it finishes or does not need back.
func (s *story) undo(t *testing.T, d death, dir, journal, kubeconfig string) {
	t.Helper()
	code, text, log := run(t, dir, "repair", "undo", journal, "--yes", "--pace=0s", "--kubeconfig", kubeconfig)
	t.Logf("undone:\n%s%s", text, log)
	if code != 0 {
		t.Errorf("the undo ends with %d", code)
	}
	now := s.holdings(t)
	if !reflect.DeepEqual(now.blocks, now.affinities) {
		t.Errorf("after the undo, the blocks are %v, and the affinities %v", now.blocks, now.affinities)
	}
	for node, had := range d.was.blocks {
		for _, cidr := range had {
			if !slices.Contains(now.blocks[node], cidr) && !regexp.MustCompile(`(not needed|finished) +release-block `+cidr.String()).MatchString(text) {
				t.Errorf("after the undo, %s lacks %s, and the undo does not say so", node, cidr)
			}
		}
	}
	s.clean(t)
	s.awaitHealthy(t)
}

// goOn continues a killed run with a command, and then ends the incident.
func (s *story) goOn(t *testing.T, d death, dir string, args []string) {
	t.Helper()
	kubeconfig := args[len(args)-1]
	done := reflect.DeepEqual(s.holdings(t), d.to) // if the killed run had finished, the command may continue with the next node
	code, text, log := run(t, dir, args...)
	t.Logf("%v:\n%s%s", args, text, log)
	if code != 0 {
		t.Fatalf("%v ends with %d", args, code)
	}
	s.clean(t)
	s.awaitHealthy(t)
	got := s.holdings(t)
	same := reflect.DeepEqual(got, d.to)
	if !done && !same {
		t.Errorf("it came to %v, and not killed to %v", got, d.to)
	}
	if testenv.EveryCase() && same && d.wait == 0 {
		return
	}
	for range s.nodesWithoutBlocks(t) {
		succeeds(t, kubeconfig, consolidate)
	}
	s.awaitHealthy(t)
	succeeds(t, kubeconfig, rehome)
	s.awaitHealthy(t)
	s.ended(t)
}

func (s *story) nodesWithoutBlocks(t *testing.T) (n int) {
	t.Helper()
	ipam, err := s.ReadIPAM(t.Context(), testcluster.CRDv1)
	must(t, err)
	for _, node := range newNodes {
		if len(ipam.Blocks[node]) == 0 {
			n++
		}
	}
	return n
}

// killAt runs the program and kills it at the given point. It returns true if the program ended
// before.
func killAt(t *testing.T, p *proxy, d death, dir string, args []string) bool {
	t.Helper()
	build(t)
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir, command.Stdout, command.Stderr = dir, &out, &out
	base, ended, written := p.count(), make(chan struct{}), make(chan struct{})
	kill := func() {
		_ = command.Process.Kill()
		<-ended
	}
	p.watch(func(n int) bool {
		if n == base+d.k && d.wait == 0 {
			kill()
			return d.after
		}
		return true
	}, func(n int) {
		if n != base+d.k {
			return
		}
		close(written)
		if d.wait > 0 {
			go func() {
				time.Sleep(d.wait)
				_ = command.Process.Kill()
			}()
		}
	})
	must(t, command.Start())
	err := command.Wait()
	close(ended)
	status, ok := command.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case err == nil: // node heartbeats came at other times, so a cordon was retried and the writes were counted differently
		t.Logf("it came to its end before:\n%s", out.String())
		p.watch(nil, nil)
		return true
	case !ok || status.Signal() != syscall.SIGKILL:
		t.Fatalf("it was not killed, but ended with %v\n%s", err, out.String())
	}
	if d.after {
		select {
		case <-written:
		case <-time.After(30 * time.Second):
			t.Fatal("the write was not made that it was killed after")
		}
	}
	p.watch(nil, nil)
	return false
}
