package apply_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
	"github.com/calico-audit/calico-audit/repair/workloads"
)

// pooled returns a cluster with a pool and nodes.
func pooled(t *testing.T, c *testcluster.Cluster, cidr string, blockSize int, nodes ...string) *lab {
	t.Helper()
	ctx := t.Context()
	s, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := cluster.NewKubernetes(c.Config, cluster.KubernetesOptions{Budgets: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, c: c, group: testcluster.CRDv1, s: s, reader: viewedReader{Kubernetes: reader}}
	l.must(s.Init(ctx))
	l.must(s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	l.must(s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: cidr, BlockSize: blockSize, IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever}))
	for _, node := range nodes {
		l.must(s.Node(ctx, seeding.Node{Name: node}))
	}
	return l
}

// crowded is a cluster whose four blocks belong to two nodes. Each of them has one block with one
// free address and one with a single pod. Node new has no block.
func crowded(t *testing.T) *lab {
	t.Helper()
	l := pooled(t, testcluster.Shared(t, testcluster.Options{}), "10.7.0.0/28", 30, "a", "b", "new")
	l.kubelets = kubelets.Start(t, l.s, kubelets.Options{})
	for _, node := range []string{"a", "b"} {
		for i := range 5 {
			l.played(node, fmt.Sprintf("web-%s-%d", node, i), nil)
		}
	}
	for _, node := range []string{"a", "b"} {
		for i := range 5 {
			l.started(fmt.Sprintf("web-%s-%d", node, i))
		}
	}
	l.endOneOfEach()
	return l
}

// endOneOfEach ends one pod of each full block, and waits until the pod is gone and its address is
// free.
func (l *lab) endOneOfEach() {
	l.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		s, err := l.reader.Read(l.t.Context())
		l.must(err)
		full := 0
		for i := range s.Blocks {
			if b := &s.Blocks[i]; !slices.Contains(b.Ordinals, blocks.Free) {
				full++
				err := l.c.Kube.CoreV1().Pods("default").Delete(l.t.Context(), b.At(0).Pod, metav1.DeleteOptions{})
				if !apierrors.IsNotFound(err) {
					l.must(err)
				}
			}
		}
		ending := slices.ContainsFunc(s.Workloads, func(w *blocks.Workload) bool { return !w.Deleting.IsZero() })
		if full == 0 && !ending {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%d blocks are full still", full)
		}
	}
}

// played creates a pod on a node whose kubelet is simulated.
func (l *lab) played(node, name string, annotations map[string]string) {
	l.t.Helper()
	_, err := l.c.Kube.CoreV1().Pods("default").Create(l.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}, metav1.CreateOptions{})
	l.must(err)
}

// started waits for a pod's address.
func (l *lab) started(name string) {
	l.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		pod, err := l.c.Kube.CoreV1().Pods("default").Get(l.t.Context(), name, metav1.GetOptions{})
		l.must(err)
		switch {
		case pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning:
			return
		case time.Now().After(deadline):
			l.t.Fatalf("pod %s has no address: %+v", name, pod.Status)
		}
	}
}

var consolidate = repair.Request{Consolidate: true, CordonFull: true, EvictSingletons: true}

// consolidation makes the plan for the present cluster.
func (l *lab) consolidation(kinds ...repair.Kind) *repair.Plan {
	l.t.Helper()
	s, err := l.reader.Read(l.t.Context())
	l.must(err)
	p := planner.Build(state.New(s, state.Options{Grace: grace}), consolidate)
	var have []repair.Kind
	for _, step := range p.Steps {
		have = append(have, step.Kind)
	}
	if !slices.Equal(have, kinds) {
		l.t.Fatalf("the plan has %v, not %v; refused: %+v", have, kinds, p.Refused)
	}
	return p
}

// move applies a plan that evicts pods.
func (l *lab) move(ctx context.Context, p *repair.Plan, opts apply.Options) *repair.Result {
	l.t.Helper()
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	w, err := workloads.New(l.c.Config, j)
	l.must(err)
	opts.Workloads = w
	r, err := apply.Run(ctx, p, l.reader, l.writer(j), j, apply.Hasty(opts))
	l.must(err)
	return r
}

// statuses returns the outcomes by kind.
func statuses(r *repair.Result) string {
	var out []string
	for _, o := range r.Outcomes {
		out = append(out, string(o.Step.Kind)+" "+string(o.Status))
	}
	return strings.Join(out, ", ")
}

// nothingOfOurs fails if a reservation or a cordon of ours is left, and returns the node that owns
// the plan's last block.
func (l *lab) nothingOfOurs(p *repair.Plan) (owner string) {
	l.t.Helper()
	s, err := l.reader.Read(context.WithoutCancel(l.t.Context()))
	l.must(err)
	for _, r := range s.Reservations {
		l.t.Errorf("reservation %s is left", r.Name)
	}
	for _, n := range s.Nodes {
		if n.Ours != "" || n.Unschedulable {
			l.t.Errorf("node %s is left cordoned (%q)", n.Name, n.Ours)
		}
	}
	for _, b := range s.Blocks {
		if b.CIDR.String() == p.Steps[0].Target.CIDR {
			owner = b.Owner.Node()
		}
	}
	return owner
}

var whole = []repair.Kind{
	repair.ReserveBlock, repair.CordonNode, repair.CordonNode, repair.EvictPod, repair.ReleaseBlock, repair.ClaimBlock,
	repair.UnreserveBlock, repair.UncordonNode, repair.UncordonNode,
}

// TestConsolidate: the block with the fewest pods is emptied and goes to the node in need. No
// temporary object is left.
func TestConsolidate(t *testing.T) {
	for _, group := range []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3} {
		t.Run(string(group), func(t *testing.T) {
			l := crowded(t)
			ends := func(repair.Outcome) {}
			if group == testcluster.NativeV3 {
				l.toNative()
				ends = l.ends
			}
			p := l.consolidation(whole...)
			r := l.move(t.Context(), p, apply.Options{Progress: ends})
			if r.Left() || r.Count(repair.Done) != len(whole) {
				t.Errorf("it came to %s: %+v", statuses(r), r.Outcomes)
			}
			if owner := l.nothingOfOurs(p); owner != "new" {
				t.Errorf("the block is %q's", owner)
			}
			l.consolidation() // nothing remains to be done
		})
	}
}

// toNative moves the cluster's objects to the newer API group, which the kubelets' client does not
// know.
func (l *lab) toNative() {
	l.t.Helper()
	l.kubelets.Stop()
	l.must(testcluster.MoveToNative(l.t.Context(), l.c))
	reader, err := cluster.NewKubernetes(l.c.Config, cluster.KubernetesOptions{Budgets: true})
	l.must(err)
	l.group, l.reader = testcluster.NativeV3, viewedReader{Kubernetes: reader}
}

// ends does the kubelet's work for a pod whose end the run waits for.
func (l *lab) ends(o repair.Outcome) {
	if o.Step.Kind != repair.EvictPod || o.Reason != "the pod ends" {
		return
	}
	s, err := l.reader.Read(l.t.Context())
	l.must(err)
	addr := netip.MustParseAddr(o.Step.Target.IP)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if at, in := b.Ordinal(addr); in && b.At(at) != nil {
			ref := repair.ObjectRef{Resource: blocks.Blocks, Name: b.Name, UID: b.UID(), ResourceVersion: b.ResourceVersion()}
			sequence, _ := b.SequenceAt(at)
			released := []repair.ReleaseOptions{{Ordinal: at, Handle: b.At(at).Handle, Sequence: sequence}}
			l.must(l.writer(l.journal(journal.Header{})).ReleaseIPs(l.t.Context(), ref, released)[0])
		}
	}
	namespace, name, _ := strings.Cut(o.Step.Guard(repair.GuardPod), "/")
	l.must(l.s.DeletePod(l.t.Context(), namespace, name, true))
}

// TestConsolidateWithinBudgets: the run retries an eviction that a budget refuses. If the budget
// never allows it, the consolidation ends, names the budget and reverts its changes. If it allows
// it in time, the consolidation continues.
func TestConsolidateWithinBudgets(t *testing.T) {
	for after, want := range map[int]repair.Status{2: repair.Done, 100: repair.Skipped} {
		t.Run(string(want), func(t *testing.T) {
			l := crowded(t)
			one := intstr.FromInt32(1)
			budgets := l.c.Kube.PolicyV1().PodDisruptionBudgets("default")
			budget, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: "all-web"},
				Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{}},
			}, metav1.CreateOptions{})
			l.must(err)
			t.Cleanup(func() {
				l.must(budgets.Delete(context.WithoutCancel(t.Context()), budget.Name, metav1.DeleteOptions{}))
			})
			allows := func(n int32) {
				budget.Status = policyv1.PodDisruptionBudgetStatus{
					ObservedGeneration: budget.Generation, DisruptionsAllowed: n, CurrentHealthy: 9 + n, DesiredHealthy: 10, ExpectedPods: 10,
				}
				budget, err = budgets.UpdateStatus(t.Context(), budget, metav1.UpdateOptions{})
				l.must(err)
			}
			allows(1)
			p := l.consolidation(whole...)
			refused := 0
			r := l.move(t.Context(), p, apply.Options{Progress: func(o repair.Outcome) {
				switch {
				case o.Step.Kind != repair.EvictPod || o.Status != "":
				case o.Reason == "":
					allows(0)
				case strings.Contains(o.Reason, "all-web"):
					if refused++; refused == after {
						allows(1)
					}
				}
			}, Sleep: func(ctx context.Context, _ time.Duration) error {
				time.Sleep(100 * time.Millisecond)
				return ctx.Err()
			}})
			if refused < 2 {
				t.Errorf("it was refused %d times", refused)
			}
			for _, o := range r.Outcomes {
				if o.Step.Kind == repair.EvictPod && (o.Status != want || want == repair.Skipped && (o.Code != repair.SkipRefused || !strings.Contains(o.Reason, "all-web"))) {
					t.Errorf("the eviction is %s (%s): %s", o.Status, o.Code, o.Reason)
				}
			}
			if owner := l.nothingOfOurs(p); (owner == "new") != (want == repair.Done) {
				t.Errorf("it came to %s; the block is %q's", statuses(r), owner)
			}
		})
	}
}

// TestConsolidateTwice: while a run moves pods, another run of the same plan and an undo are
// refused on every machine. The first run completes.
func TestConsolidateTwice(t *testing.T) {
	l := crowded(t)
	p := l.consolidation(whole...)
	once := sync.OnceFunc(func() {
		j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
		w, err := workloads.New(l.c.Config, j)
		l.must(err)
		if _, err := apply.Run(t.Context(), p, l.reader, l.writer(j), j, apply.Options{Workloads: w}); !errors.Is(err, repair.ErrOtherRun) {
			t.Errorf("a second run ends with %v", err)
		}
		f := &journal.File{Header: journal.Header{Cluster: p.Cluster, Plan: p}}
		if _, err := apply.Undo(t.Context(), f, l.reader, l.writer(j), j, apply.Options{Workloads: w}); !errors.Is(err, repair.ErrOtherRun) {
			t.Errorf("an undo beside it ends with %v", err)
		}
	})
	r := l.move(t.Context(), p, apply.Options{Progress: func(o repair.Outcome) {
		if o.Step.Kind == repair.EvictPod {
			once()
		}
	}})
	if r.Left() {
		t.Errorf("the first came to %s", statuses(r))
	}
	if owner := l.nothingOfOurs(p); owner != "new" {
		t.Errorf("the block is %q's", owner)
	}
}

// TestConsolidateInterrupted: if a consolidation is interrupted before its block is released, the
// same run removes its reservation and cordons.
func TestConsolidateInterrupted(t *testing.T) {
	for _, at := range testenv.Sample(t, 1, whole[:5]) {
		t.Run(string(at), func(t *testing.T) {
			l := crowded(t)
			p := l.consolidation(whole...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := l.move(ctx, p, apply.Options{Progress: func(o repair.Outcome) {
				if o.Status == "" && o.Step.Kind == at {
					cancel()
				}
			}})
			if !r.Left() {
				t.Errorf("all is said to be done: %s", statuses(r))
			}
			if owner := l.nothingOfOurs(p); owner == "new" || owner == "" {
				t.Errorf("the block is %q's", owner)
			}
		})
	}
}

// TestConsolidateKilled: a killed run leaves its reservation and cordons. The same command
// continues with the same block, and an undo removes them.
func TestConsolidateKilled(t *testing.T) {
	for _, n := range append(testenv.Sample(t, 1, []int{1, 3, 5}), testenv.Sample(t, 1, []int{2, 4, 6})...) {
		t.Run(fmt.Sprintf("after %d steps", n), func(t *testing.T) {
			l := crowded(t)
			p := l.consolidation(whole...)
			path := l.killed(p, n)
			if n%2 == 0 {
				l.takeBack(p, path)
				if owner := l.nothingOfOurs(p); n >= 5 && owner == "b" {
					t.Errorf("the block is %q's", owner)
				}
				return
			}
			s, err := l.reader.Read(t.Context())
			l.must(err)
			again := planner.Build(state.New(s, state.Options{Grace: grace}), consolidate)
			if r := l.move(t.Context(), again, apply.Options{}); r.Left() {
				t.Errorf("going on came to %s", statuses(r))
			}
			if owner := l.nothingOfOurs(p); owner != "new" {
				t.Errorf("the block is %q's", owner)
			}
		})
	}
}

// killed applies a plan, dies after the given number of steps, and returns the journal's path.
func (l *lab) killed(p *repair.Plan, after int) (path string) {
	l.t.Helper()
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	w, err := workloads.New(l.c.Config, j)
	l.must(err)
	path = j.Path()
	const death = "killed"
	defer func() {
		if died := recover(); died != death {
			l.t.Fatalf("it was not killed: %v", died)
		}
		l.must(j.Close())
	}()
	done := 0
	_, err = apply.Run(l.t.Context(), p, l.reader, l.writer(j), j, apply.Hasty(apply.Options{Workloads: w, Progress: func(o repair.Outcome) {
		if o.Status == repair.Done {
			if done++; done == after {
				panic(death)
			}
		}
	}}))
	l.must(err)
	return path
}

// takeBack undoes a run that evicts.
func (l *lab) takeBack(p *repair.Plan, path string) {
	l.t.Helper()
	f, err := journal.Read(path)
	l.must(err)
	j := l.journal(journal.Header{Cluster: p.Cluster, Undoes: path})
	w, err := workloads.New(l.c.Config, j)
	l.must(err)
	out, err := apply.Undo(l.t.Context(), f, l.reader, l.writer(j), j, apply.Options{Workloads: w})
	l.must(err)
	if out.Left() {
		l.t.Errorf("the undo came to %s: %+v", statuses(out), out.Outcomes)
	}
}

// TestConsolidateAlongside: if people or pods interfere, the consolidation ends before it does
// harm, and their changes stay.
func TestConsolidateAlongside(t *testing.T) {
	for name, c := range map[string]struct {
		at repair.Kind
		do func(l *lab)
	}{
		"a person uncordons a node without addresses": {repair.EvictPod, func(l *lab) {
			n, err := l.c.Kube.CoreV1().Nodes().Get(l.t.Context(), "new", metav1.GetOptions{})
			l.must(err)
			n.Spec.Unschedulable = false
			_, err = l.c.Kube.CoreV1().Nodes().Update(l.t.Context(), n, metav1.UpdateOptions{})
			l.must(err)
		}},
		"an address of the block is assigned by name": {repair.ReleaseBlock, func(l *lab) {
			s, err := l.reader.Read(l.t.Context())
			l.must(err)
			cidr := s.Reservations[0].CIDRs[0]
			// The kubelet does it: a second allocation at the same time would race with it.
			l.played("b", "named", map[string]string{"cni.projectcalico.org/ipAddrs": fmt.Sprintf("[%q]", cidr.Addr().Next())})
			l.started("named")
		}},
		"the reservation is taken away": {repair.EvictPod, func(l *lab) {
			s, err := l.reader.Read(l.t.Context())
			l.must(err)
			l.must(l.c.Delete(l.t.Context(), testcluster.CRDv1.Resource("ipreservations"), "", s.Reservations[0].Name))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := crowded(t)
			p := l.consolidation(whole...)
			once := false
			r := l.move(t.Context(), p, apply.Options{Progress: func(o repair.Outcome) {
				if o.Status == "" && o.Step.Kind == c.at && !once {
					once = true
					c.do(l)
				}
			}})
			if !r.Left() || r.Count(repair.Failed) > 0 {
				t.Errorf("it came to %s: %+v", statuses(r), r.Outcomes)
			}
			if owner := l.nothingOfOurs(p); owner == "new" || owner == "" {
				t.Errorf("the block is %q's", owner)
			}
		})
	}
}
