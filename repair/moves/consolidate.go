package moves

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// EvictPoll is how often the cluster is read while a step waits for a pod.
const EvictPoll = 2 * time.Second

// reservationStands is how long a reservation must have existed before any step depends on it.
// Assignments that were already in progress ignore it.
const reservationStands = 90 * time.Second

// consolidation returns the consolidation of a plan, or nil. If the cluster's state shows a
// consolidation in progress, that one continues, so only one block is emptied at a time. The
// request's filters select a consolidation. An existing plan has already chosen one.
func consolidation(p *repair.Proposals) *remedies.Consolidation {
	begun := remedies.Of(p.State).Begun()
	for _, c := range begun {
		if chooses(p, c) {
			return c
		}
	}
	if len(begun) > 0 {
		return begun[0]
	}
	if p.Request.Chosen == "" && leftCordon(p) != "" {
		return nil
	}
	for _, n := range remedies.Of(p.State).NodesWithoutBlock() {
		for _, c := range remedies.Of(p.State).Consolidations(n) {
			if len(c.Barred) == 0 && chooses(p, c) {
				return c
			}
		}
	}
	return nil
}

// leftCordon returns a node that an earlier consolidation cordoned, or "". That cordon is
// removed before another consolidation starts.
func leftCordon(p *repair.Proposals) string {
	for i := range p.State.Nodes {
		if n := &p.State.Nodes[i]; n.Ours != "" && n.Ours != remedies.Rehoming {
			return n.Name
		}
	}
	return ""
}

func chooses(p *repair.Proposals, c *remedies.Consolidation) bool {
	about := AboutAll(c, state.Subject{Kind: state.KindBlock, CIDR: c.CIDR.String()})
	return (p.Request.Chosen == "" || p.Request.Chosen == c.Name()) && !p.Request.Beside(p.State, about.Target, about.Pools, about.Nodes)
}

// Consolidating returns the consolidation whose steps are proposed, except for its reverting steps.
// It returns nil without a consolidation, or if it must not continue.
func Consolidating(p *repair.Proposals) *remedies.Consolidation {
	if !p.Request.Consolidate {
		return nil
	}
	c := consolidation(p)
	if c == nil || len(c.Barred) > 0 || c.Over() || withheld(p, c).Code != "" {
		return nil
	}
	return c
}

// withheld returns the missing consent or read of a consolidation. The code is empty if
// both are present.
func withheld(p *repair.Proposals, c *remedies.Consolidation) repair.Reason {
	if b := p.State.WholeBar(state.ReleaseReads, p.Request.Chosen == ""); b.Code != "" {
		return repair.Because(repair.RefusedNotRead, "%s", b.Reason)
	}
	if p.State.Cluster.Live && !p.State.BudgetsKnown {
		return repair.Because(repair.RefusedNotRead, "PodDisruptionBudgets and the labels of pods were not read, so it is unknown which pods may be evicted")
	}
	if len(c.Unguarded) > 0 && !p.Request.EvictSingletons {
		return repair.Because(repair.RefusedConsent, "%s: consent with --evict-singletons", remedies.UnguardedText(c.Unguarded))
	}
	if cordon := slices.Concat(c.Cordon, remedies.Of(p.State).MayFill(c.Moves, c.Block, c.Cordon)); len(cordon) > 0 && !p.Request.CordonFull {
		slices.Sort(cordon)
		return repair.Because(repair.RefusedConsent, "while pods move, %s without free addresses must be cordoned, or the scheduler may place the pods there: %s; consent with --cordon-full",
			phrase.Plural(len(cordon), "node"), cordon)
	}
	return repair.Reason{}
}

// refuseConsolidation explains why no consolidation starts, or why the one in progress is
// reverted.
func refuseConsolidation(p *repair.Proposals) {
	if c := consolidation(p); c != nil {
		target := state.Subject{Kind: state.KindBlock, CIDR: c.CIDR.String(), Name: blocks.BlockName(c.CIDR), Node: c.Holder}
		r := withheld(p, c)
		if len(c.Barred) > 0 {
			r = repair.Because(repair.RefusedInUse, "it cannot be emptied any more: %s", barsText(c))
		}
		if !c.Over() {
			p.Bars(AboutAll(c, target), r)
		}
		return
	}
	if name := leftCordon(p); name != "" && len(remedies.Of(p.State).NodesWithoutBlock()) > 0 {
		p.Refuse(repair.Concern{Target: state.ClusterSubject(p.State)}, repair.RefusedNotYet, "node %s carries the annotation of an earlier consolidation: revert that first, then plan again", name)
		return
	}
	for _, n := range remedies.Of(p.State).NodesWithoutBlock() {
		var why []string
		var beside *remedies.Consolidation
		for _, c := range remedies.Of(p.State).Consolidations(n) {
			switch {
			case len(c.Barred) > 0 && (beside == nil || chooses(p, c)):
				why = append(why, fmt.Sprintf("%s of %s: %s", c.CIDR, c.Holder, barsText(c)))
			case len(c.Barred) == 0 && beside == nil && p.Request.Chosen == "":
				beside = c
			}
		}
		if beside != nil { // it was not requested; the reasons explain why the requested ones are not emptied
			text := fmt.Sprintf("%s could be emptied for %s, but --pool, --node, --ip or --block exclude it", beside.CIDR, beside.For)
			p.Refuse(repair.Concern{Target: state.ClusterSubject(p.State)}, repair.RefusedNothing, "%s", strings.Join(append([]string{text}, why...), "; "))
			return
		}
		code := repair.RefusedInUse
		if len(why) == 0 {
			code, why = repair.RefusedNothing, []string{"no node holds several blocks of its pools"}
		}
		p.Refuse(repair.Concern{Target: state.NodeSubject(n.Host.Name), Pools: state.PoolsOf(p.State.PoolsAtIssue(n)...), Nodes: []string{n.Host.Name}}, code, "no block can be emptied for it: %s", phrase.List(why))
	}
}

// barsText lists the first bars.
func barsText(c *remedies.Consolidation) string {
	var out []string
	for _, b := range c.Barred {
		out = append(out, b.String())
	}
	return phrase.List(out)
}

// AboutAll returns the concern of a consolidation's step. All steps have the same pools
// and nodes, so that no filter removes some of them.
func AboutAll(c *remedies.Consolidation, target state.Subject) repair.Concern {
	return repair.Concern{Target: target, Pools: state.PoolsOf(c.Pool), Nodes: []string{c.For, c.Holder}}
}

// Joins adds the guards that all steps of a consolidation share.
func Joins(c *remedies.Consolidation, pairs ...string) []repair.Guard {
	return repair.Guards(append(pairs, repair.GuardConsolidation, c.Name(), repair.GuardForNode, c.For)...)
}

// passed reports whether the consolidation of a step is complete: the node in need owns
// the block.
func passed(st *state.State, s *repair.Step) bool {
	words := strings.Fields(s.Guard(repair.GuardConsolidation))
	if len(words) == 0 {
		return false
	}
	b := repair.BlockAt(st, words[0])
	return b != nil && b.Owner.Node() == s.Guard(repair.GuardForNode)
}

// reservationOf returns calico-audit's reservation of a CIDR, or nil.
func reservationOf(st *state.State, cidr string) *blocks.Reservation {
	name := remedies.ReservationName(repair.PrefixOf(state.Subject{CIDR: cidr}))
	return repair.Find(st.Reservations, func(r *blocks.Reservation) bool { return r.Ours != "" && r.Name == name })
}

// nodeNamed returns a node, or nil.
func nodeNamed(st *state.State, name string) *blocks.Node {
	if h := st.NodeState(name); h != nil {
		return h.Node
	}
	return nil
}

// AfterReservation returns when the reservation of a step's consolidation will have existed for
// long enough that no assignment still ignores it. Steps that depend on it run no earlier. If a pod
// has appeared that the plan does not know, it returns the reason before the wait.
func AfterReservation(a *repair.Turn, s *repair.Step) (due time.Time, _ repair.Reason) {
	if s.Group() == remedies.Rehoming {
		return time.Time{}, repair.Reason{}
	}
	r := reservationOf(a.State, emptied(s))
	if r == nil || r.Ours != s.Group() || len(r.CIDRs) != 1 || r.CIDRs[0] != repair.PrefixOf(state.Subject{CIDR: emptied(s)}) {
		return time.Time{}, repair.Because(repair.RefusedConflict, "the block is not reserved: new pods may take its addresses")
	}
	if r := unplanned(a, s); r.Code != "" {
		return time.Time{}, r
	}
	due = r.Created.Std().Add(cmp.Or(a.Stands, reservationStands) + time.Second) // objects have times in whole seconds
	if !due.After(a.State.Cluster.TakenAt) {
		return time.Time{}, repair.Reason{}
	}
	return due, repair.Reason{Why: "an assignment that began before the block was reserved may still be under way"}
}

// emptied returns the CIDR of the block that a step's consolidation empties.
func emptied(s *repair.Step) string {
	cidr, _, _ := strings.Cut(s.Group(), " ")
	return cidr
}

// unplanned refuses a step of a consolidation if a pod has an address of the block but
// the plan does not evict it.
func unplanned(a *repair.Turn, s *repair.Step) repair.Reason {
	b := repair.BlockAt(a.State, emptied(s))
	if b == nil {
		return repair.Reason{}
	}
	for i, o := range b.Ordinals {
		addr := b.Address(i)
		if o == blocks.Free {
			continue
		}
		w := a.State.LiveUser(addr, b.At(i))
		if w == nil {
			continue // an address without a pod ends the consolidation anyway
		}
		id := repair.StepID(repair.EvictPod, state.IPSubject(addr, w.Node))
		if !slices.ContainsFunc(a.Plan.Steps, func(x repair.Step) bool { return x.ID == id }) {
			return repair.Because(repair.RefusedConflict, "pod %s now has %s, which the plan does not include: make a new plan", w.FullName(), addr)
		}
	}
	return repair.Reason{}
}

// Awaited returns the objects that show whether an evicted pod has ended and was replaced: the pod,
// the pods of its controller, and the blocks of their addresses. It returns false if all pods must
// be read. For other steps it returns the objects that every reading includes.
func Awaited(before, now *state.State, s *repair.Step) ([]blocks.Ref, bool) {
	r := repair.NewRefs(now)
	namespace, name, evicts := strings.Cut(s.Guard(repair.GuardPod), "/")
	controller := s.Guard(repair.GuardController)
	r.Pod(namespace, name)
	r.Block(repair.PrefixOf(state.Subject{CIDR: s.Guard(repair.GuardBlock)}))
	if !evicts || controller == repair.Absent {
		return r.All, true
	}
	had := remedies.Of(before).PodsOf(controller)
	if len(had) == 0 {
		return nil, false
	}
	hash := had[0].Labels[templateHash]
	switch kind := had[0].Controller.Kind; {
	case kind == "ReplicaSet" && hash != "":
		r.Add(blocks.Ref{Resource: blocks.Pods, Namespace: namespace, Label: templateHash + "=" + hash})
		fallthrough // a pod whose label changed is not in that list but still exists
	case kind == "StatefulSet": // recreates pods under the same names
		for _, w := range had {
			r.Pod(namespace, w.Name)
		}
	case kind == "DaemonSet":
		r.Node(s.Target.Node)
	default:
		return nil, false
	}
	for _, w := range remedies.Of(now).PodsOf(controller) {
		if slices.ContainsFunc(had, func(o *blocks.Workload) bool { return o.UID() == w.UID() }) {
			continue
		}
		for addr := range w.Addresses {
			if b := now.CoveringBlock(addr); b != nil {
				r.One(blocks.Blocks, b.Name)
			}
		}
	}
	return r.All, true
}

// templateHash is the label that distinguishes the pods of a Deployment's ReplicaSets
// (DefaultDeploymentUniqueLabelKey of k8s.io/api/apps/v1).
const templateHash = "pod-template-hash"
