package planner

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/law"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/moves"
)

// world is a cluster in memory that others change while a plan is applied.
type world struct {
	*state.State
	*rand.Rand
	born int
}

// change makes the next state.
func (w *world) change(edit func(x *repair.Pretence)) {
	x := repair.NewPretence(w.Snapshot)
	edit(x)
	x.Cluster.TakenAt = x.Cluster.TakenAt.Add(time.Second)
	w.State = state.New(x.Done(), state.Options{Grace: max(w.Grace, 1)})
}

// node returns a random node that exists; nil if there is none.
func (w *world) node() *blocks.Node {
	if len(w.Nodes) == 0 {
		return nil
	}
	return &w.Nodes[w.IntN(len(w.Nodes))]
}

// meanwhile makes a random change by another client.
func (w *world) meanwhile() (what string) {
	n := w.node()
	if n == nil {
		return ""
	}
	switch w.IntN(10) {
	case 0, 1, 2:
		if w.IntN(2) == 0 || n.Unschedulable || n.NotReady || n.OutOfService {
			return ""
		}
		pod := &blocks.Workload{Namespace: []string{"shop", "bare", "red"}[w.IntN(3)], Node: n.Name}
		return "a pod starts on " + n.Name + w.start(pod, n.Name, blocks.IPv4)
	case 3, 4:
		if len(w.Workloads) == 0 {
			return ""
		}
		pod := w.Workloads[w.IntN(len(w.Workloads))]
		w.change(func(x *repair.Pretence) { end(x, pod) })
		return "pod " + pod.FullName() + " ends"
	case 5:
		w.born++
		name := fmt.Sprintf("new%d", w.born)
		w.change(func(x *repair.Pretence) {
			x.Nodes = append(x.Nodes, blocks.Node{Meta: blocks.Meta{Name: name, Pin: blocks.PinOf("uid-"+name, "1"), Created: x.Cluster.Taken()}, Labels: map[string]string{"zone": "a"}, Ready: true, Allocatable: blocks.Quantities{"pods": 8_000}})
		})
		return name + " joins"
	case 6:
		w.change(func(x *repair.Pretence) {
			for i := range x.Nodes {
				if x.Nodes[i].Name == n.Name && x.Nodes[i].Ours == "" {
					x.Nodes[i].Unschedulable = !x.Nodes[i].Unschedulable
				}
			}
		})
		return n.Name + " is cordoned, or uncordoned"
	case 7:
		return w.configure()
	}
	return ""
}

// configure lets an administrator change a pool, a reservation, a setting or a node's label.
func (w *world) configure() (what string) {
	w.change(func(x *repair.Pretence) {
		switch w.IntN(6) {
		case 0:
			x.IPAM.Present, x.IPAM.StrictAffinity = true, !x.IPAM.StrictAffinity
			what = fmt.Sprintf("strict affinity is %t", x.IPAM.StrictAffinity)
		case 1:
			x.IPAM.Present, x.IPAM.MaxBlocksPerHost = true, 1+w.IntN(3)
			what = fmt.Sprintf("the block limit is %d", x.IPAM.MaxBlocksPerHost)
		case 2:
			if p := w.pool(x); p != nil && len(w.IPBlocks) > 0 {
				b := w.IPBlocks[w.IntN(len(w.IPBlocks))]
				x.Reservations = append(x.Reservations, blocks.Reservation{Meta: blocks.Meta{Name: fmt.Sprintf("r%d", len(x.Reservations))}, CIDRs: []netip.Prefix{b.CIDR}})
				what = b.CIDR.String() + " is reserved"
			}
		case 3:
			if p := w.pool(x); p != nil {
				p.Disabled = !p.Disabled
				what = p.Name + " is disabled, or enabled"
			}
		case 4:
			if p := w.pool(x); p != nil {
				p.NodeSelector = []string{"", "zone=='a'", "zone!='b'"}[w.IntN(3)]
				what = p.Name + " selects " + p.NodeSelector
			}
		case 5:
			if len(x.Nodes) > 0 {
				n := &x.Nodes[w.IntN(len(x.Nodes))]
				n.Labels = map[string]string{"zone": []string{"a", "b", "c"}[w.IntN(3)]}
				what = n.Name + " moves to another zone"
			}
		}
	})
	return what
}

func (w *world) pool(x *repair.Pretence) *blocks.Pool {
	if len(x.Pools) == 0 {
		return nil
	}
	return &x.Pools[w.IntN(len(x.Pools))]
}

// end deletes a pod and releases its addresses.
func end(x *repair.Pretence, pod *blocks.Workload) {
	x.Workloads = slices.DeleteFunc(x.Workloads, func(o *blocks.Workload) bool { return o.UID() == pod.UID() })
	for a := range pod.Addresses {
		for name, b := range x.BlockByName {
			if i, ok := b.Ordinal(a); ok && b.At(i) != nil && b.At(i).Namespace+"/"+b.At(i).Pod == pod.FullName() {
				x.Free(name, a)
			}
		}
	}
}

// start starts a pod on a node, and returns the result.
func (w *world) start(like *blocks.Workload, node string, families ...blocks.Family) string {
	w.born++
	pod := *like
	pod.Meta = blocks.Meta{Name: fmt.Sprintf("born%d", w.born), Pin: blocks.PinOf(fmt.Sprintf("uid-born%d", w.born), "1"), Created: w.Cluster.Taken()}
	pod.Node, pod.StatusIPs, pod.AnnotationIPs, pod.Ready = node, nil, nil, true
	witness := law.New(w.State)
	a := capacity.NewAllocator(witness.State)
	var got []capacity.Assigned
	for _, f := range families {
		one, _ := witness.OwnAddress(a, &pod, node, f)
		if !one.Addr.IsValid() {
			return ", and gets no address"
		}
		got = append(got, one)
	}
	w.change(func(x *repair.Pretence) {
		for _, one := range got {
			b := x.BlockByName[blocks.BlockName(one.Block)]
			if b == nil || one.Claimed {
				b = x.Claim(one.Block, node)
			}
			i, ok := b.Ordinal(one.Addr)
			if !ok || b.Ordinals[i] != blocks.Free {
				continue
			}
			b.Ordinals, b.Attributes = slices.Clone(b.Ordinals), append(slices.Clone(b.Attributes), blocks.Attributes{Handle: "k8s-pod-network.c" + pod.Name, Pod: pod.Name, Namespace: pod.Namespace, Node: node})
			b.Ordinals[i] = int32(len(b.Attributes) - 1)
			b.Unallocated = slices.DeleteFunc(slices.Clone(b.Unallocated), func(o int32) bool { return o == int32(i) })
			b.Sequence++
			x.Count("k8s-pod-network.c"+pod.Name, b)
			pod.StatusIPs = append(pod.StatusIPs, one.Addr)
		}
		x.Workloads = append(x.Workloads, &pod)
	})
	return fmt.Sprintf(" with %v", pod.StatusIPs)
}

// do carries out a step.
func (w *world) do(s *repair.Step) {
	w.change(func(x *repair.Pretence) { KindOf(s.Kind).Pretend(x, s) })
}

// derive derives a step of a plan from the present state, as an apply does right before it writes.
// It returns nil if the step is skipped.
func (w *world) derive(p *repair.Plan, s *repair.Step) *repair.Step {
	kind := KindOf(s.Kind)
	now, _ := Derive(w.State, p.Request, s.ID)
	if now == nil || kind.Restores && !Stands(s, w.State) || !now.SameTarget(s) || kind.Changed(w.State, s, now) != "" {
		return nil
	}
	return now
}

// borrows cordons the nodes that have become full, and reports whether an eviction is still not
// allowed.
func (w *world) borrows(p *repair.Plan, s *repair.Step) bool {
	turn := func() *repair.Turn { return &repair.Turn{Site: &repair.Site{State: w.State}, Plan: p} }
	for i := range p.Steps {
		c := &p.Steps[i]
		if moves.WouldBorrow(turn(), s).Code != repair.RefusedNowhere {
			break
		}
		if now := w.derive(p, c); c.Conditional() && c.Group() == s.Group() && now != nil && !now.Conditional() {
			w.do(now)
		}
	}
	return moves.WouldBorrow(turn(), s).Code != ""
}

// raced applies a plan while others change the cluster. After each step, no node may be worse off
// than before it, and each moved pod must get addresses of its new node's own. It returns the number
// of steps that were done, by kind.
func (w *world) raced(t *testing.T, req repair.Request) map[repair.Kind]int {
	t.Helper()
	p, ended, done := Build(w.State, req), map[string]bool{}, map[repair.Kind]int{}
	var log []string
	for i := range p.Steps {
		s := &p.Steps[i]
		for range w.IntN(3) {
			log = append(log, w.meanwhile())
		}
		if s.Conditional() || ended[s.Group()] && !KindOf(s.Kind).Restores {
			continue
		}
		now := w.derive(p, s)
		if now == nil || s.Kind == repair.EvictPod && w.borrows(p, now) {
			ended[s.Group()] = s.Group() != "" && !KindOf(s.Kind).Restores && (s.Group() != remedies.Rehoming || s.Kind != repair.EvictPod)
			continue
		}
		before, pod := w.State, evicted(w.State, now)
		w.do(now)
		log, done[s.Kind] = append(log, s.ID), done[s.Kind]+1
		switch {
		case pod != nil:
			log = append(log, w.restart(t, s, pod))
		case s.Group() == "":
			for _, worse := range law.New(before).Worse(w.State, p) {
				t.Errorf("%s: %s", s.ID, worse)
			}
		}
		if t.Failed() {
			t.Logf("%q", log)
			break
		}
	}
	return done
}

// restart lets a node restart an evicted pod, wherever the scheduler may put it.
func (w *world) restart(t *testing.T, s *repair.Step, pod *blocks.Workload) string {
	t.Helper()
	if pod.Controller == nil {
		return ""
	}
	var places []string
	families := slices.DeleteFunc([]blocks.Family{blocks.IPv4, blocks.IPv6}, func(f blocks.Family) bool { return !pod.HasFamily(f) })
	witness := law.New(w.State)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !mayRun(pod, n) {
			continue
		}
		places = append(places, n.Name)
		a := capacity.NewAllocator(witness.State)
		for _, f := range families {
			if got, own := witness.OwnAddress(a, pod, n.Name, f); !own {
				t.Errorf("%s: on %s, where the scheduler may put it, the pod gets no %s address of the node's own: %+v", s.ID, n.Name, f, got)
			}
		}
	}
	if len(places) == 0 {
		t.Errorf("%s: no node may run the pod", s.ID)
		return ""
	}
	node := places[w.IntN(len(places))]
	return "it restarts on " + node + w.start(pod, node, families...)
}

// TestLawUnderRace applies plans of random states while pods start and end, nodes join and are
// cordoned.
func TestLawUnderRace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	const n = 2000
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	done := map[repair.Kind]int{}
	for _, i := range testenv.Sample(t, 100, seeds) {
		rnd := rand.New(rand.NewPCG(2, i))
		draw := []func(*rand.Rand) string{statedsl.Tight, statedsl.Rare, statedsl.Limited}[i%3]
		text := draw(rnd)
		requests := lawRequests()
		for _, name := range []string{"all but moves", "rehome", "consolidate", "empty-blocks"} {
			ok := t.Run(fmt.Sprintf("%s in %d of %d", name, i, n), func(t *testing.T) {
				w := &world{State: parseState(t, text, 0), Rand: rnd}
				for kind, n := range w.raced(t, requests[name]) {
					done[kind] += n
				}
			})
			if !ok {
				t.Logf("state %d of %d:\n%s", i, n, text)
			}
		}
	}
	for _, k := range []repair.Kind{repair.ReleaseBlock, repair.DeleteAffinity, repair.RestoreAffinity, repair.RecordIP, repair.ReleaseIP, repair.EvictPod} {
		if done[k] == 0 && !t.Failed() {
			t.Errorf("%s was never done", k)
		}
	}
	t.Log(done)
}
