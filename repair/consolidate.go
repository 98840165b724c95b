package repair

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
)

// The guards of a consolidation's steps.
const (
	// GuardConsolidation names the consolidation that a step belongs to. Where one of its
	// steps is not done, the others are not tried but those that take back what was made
	// for it.
	GuardConsolidation = "consolidation"
	// GuardInNeed is the node that is to get the block.
	GuardInNeed = "inNeed"
	// GuardPod and GuardPodUID are the pod to evict, GuardController the UID of what
	// makes another in its place.
	GuardPod        = "pod"
	GuardPodUID     = "pod.uid"
	GuardController = "controller.uid"
)

// EvictPoll is how often the cluster is read while a pod is waited for.
const EvictPoll = 2 * time.Second

// reservationStands is how long a reservation must have stood before anything rests on
// it: an assignment that was under way when it was made does not know of it.
const reservationStands = 90 * time.Second

// consolidation returns the one that a plan is about; nil if there is none. One that is
// under way goes on before another is begun, which of it the cluster tells; and one
// block is emptied at a time. The filters of a request choose among them, and a plan has
// chosen.
func (p *proposals) consolidation() *remedies.Consolidation {
	begun := remedies.Of(p.st).Begun()
	for _, c := range begun {
		if p.chooses(c) {
			return c
		}
	}
	if len(begun) > 0 {
		return begun[0]
	}
	if p.req.Chosen == "" && p.leftCordon() != "" {
		return nil
	}
	for _, n := range remedies.Of(p.st).InNeed() {
		for _, c := range remedies.Of(p.st).Consolidations(n) {
			if len(c.Barred) == 0 && p.chooses(c) {
				return c
			}
		}
	}
	return nil
}

// leftCordon returns a node that an earlier consolidation has cordoned: it is taken back
// before another is begun; "" if there is none.
func (p *proposals) leftCordon() string {
	for i := range p.st.Nodes {
		if n := &p.st.Nodes[i]; n.Ours != "" && n.Ours != remedies.Rehoming {
			return n.Name
		}
	}
	return ""
}

func (p *proposals) chooses(c *remedies.Consolidation) bool {
	about := p.aboutAll(c, state.Subject{Kind: state.KindBlock, CIDR: c.CIDR.String()})
	return (p.req.Chosen == "" || p.req.Chosen == c.Name()) && !p.req.beside(p.st, about.target, about.pools, about.nodes)
}

// consolidating returns the consolidation whose steps are to be proposed, but for those
// that take it back; nil if there is none, or it must not go on.
func (p *proposals) consolidating() *remedies.Consolidation {
	if !p.req.Consolidate {
		return nil
	}
	c := p.consolidation()
	if c == nil || len(c.Barred) > 0 || c.Over() || p.withheld(c).code != "" {
		return nil
	}
	return c
}

// withheld says which consent a consolidation lacks; an empty code if none.
func (p *proposals) withheld(c *remedies.Consolidation) reason {
	if name, unread := p.st.UnreadPod(); unread {
		return because(RefusedNotRead, "pod %s could not be read and may have an address of the block", name)
	}
	if p.st.Cluster.Live && !p.st.BudgetsKnown {
		return because(RefusedNotRead, "PodDisruptionBudgets and the labels of pods were not read, so that nothing says which pods may be evicted")
	}
	if len(c.Unguarded) > 0 && !p.req.EvictSingletons {
		return because(RefusedConsent, "%s: consent with --evict-singletons", unguardedText(c.Unguarded))
	}
	if len(c.Cordon) > 0 && !p.req.CordonFull {
		return because(RefusedConsent, "while pods move, %s with no address of its own would have to be cordoned, or the scheduler puts them there: %s; consent with --cordon-full",
			phrase.Plural(len(c.Cordon), "node"), phrase.List(c.Cordon))
	}
	return reason{}
}

// unguardedText says what evicting pods ends for a while, or for good.
func unguardedText(moves []remedies.Move) string {
	var bare, only, out []string
	for _, m := range moves {
		if m.Pod.Controller == nil {
			bare = append(bare, m.Pod.FullName())
		} else {
			only = append(only, m.Pod.FullName())
		}
	}
	if n := len(bare); n > 0 {
		out = append(out, fmt.Sprintf("%s %s %s no controller: evicted %s gone for good, as nothing makes %s again",
			phrase.One(n, "pod", "pods"), phrase.List(bare), phrase.One(n, "has", "have"), phrase.One(n, "it is", "they are"), phrase.One(n, "it", "them")))
	}
	if n := len(only); n > 0 {
		out = append(out, fmt.Sprintf("%s the only one ready of a controller, no PodDisruptionBudget is known to cover %s, and nothing takes over meanwhile",
			phrase.One(n, "pod "+only[0]+" is", "pods "+phrase.List(only)+" are each"), phrase.One(n, "it", "them")))
	}
	return strings.Join(out, "; ")
}

// refuseConsolidation says why none is begun, or why the one under way is taken back.
func (p *proposals) refuseConsolidation() {
	if c := p.consolidation(); c != nil {
		target := state.Subject{Kind: state.KindBlock, CIDR: c.CIDR.String(), Name: blocks.BlockName(c.CIDR), Node: c.Holder}
		r := p.withheld(c)
		if len(c.Barred) > 0 {
			r = because(RefusedInUse, "it cannot be emptied any more: %s", barsText(c))
		}
		if !c.Over() {
			p.bars(p.aboutAll(c, target), r)
		}
		return
	}
	if name := p.leftCordon(); name != "" && len(remedies.Of(p.st).InNeed()) > 0 {
		p.refuse(concern{target: state.ClusterSubject(p.st)}, RefusedConflict, "node %s carries the mark of an earlier one, which is taken back first: plan again then", name)
		return
	}
	for _, n := range remedies.Of(p.st).InNeed() {
		var why []string
		for _, c := range remedies.Of(p.st).Consolidations(n) {
			switch {
			case len(c.Barred) == 0 && p.req.Chosen == "":
				p.refuse(concern{target: state.ClusterSubject(p.st)}, RefusedConflict, "%s could be emptied for %s, and is not what --pool, --node, --ip or --block ask for", c.CIDR, c.For)
				return
			case len(c.Barred) > 0:
				why = append(why, fmt.Sprintf("%s of %s: %s", c.CIDR, c.Holder, barsText(c)))
			}
		}
		if len(why) == 0 {
			why = []string{"no node holds several blocks of its pools"}
		}
		p.refuse(concern{state.NodeSubject(n.Host.Name), poolsAtIssue(p.st, n), []string{n.Host.Name}}, RefusedInUse, "no block can be emptied for it: %s", phrase.ListBy("; ", why))
	}
}

func poolsAtIssue(st *state.State, n *state.NodeBlockStatus) (out []string) {
	for _, q := range st.PoolsAtIssue(n) {
		out = append(out, q.Name)
	}
	return out
}

// barsText names the first bars.
func barsText(c *remedies.Consolidation) string {
	var out []string
	for _, b := range c.Barred {
		out = append(out, b.String())
	}
	return phrase.ListBy("; ", out)
}

// aboutAll is what a step of a consolidation concerns: all have the same pools and nodes,
// so that no filter takes some of them away.
func (p *proposals) aboutAll(c *remedies.Consolidation, target state.Subject) concern {
	return concern{target, poolNames(c.Pool), []string{c.For, c.Holder}}
}

// joins adds what each step of a consolidation is held to.
func joins(c *remedies.Consolidation, pairs ...string) []Guard {
	return guards(append(pairs, GuardConsolidation, c.Name(), GuardInNeed, c.For)...)
}

// Group names what a step stands or falls with; "" for a step by itself.
func (s *Step) Group() string { return s.Guard(GuardConsolidation) }

// passed reports whether the consolidation of a step has come to its end: the node in need
// has the block.
func passed(st *state.State, s *Step) bool {
	words := strings.Fields(s.Guard(GuardConsolidation))
	if len(words) == 0 {
		return false
	}
	b := blockAt(st, words[0])
	return b != nil && b.Owner.Node() == s.Guard(GuardInNeed)
}

// reservationOf returns our reservation of a CIDR; nil if there is none.
func reservationOf(st *state.State, cidr string) *blocks.Reservation {
	i := slices.IndexFunc(st.Reservations, func(r blocks.Reservation) bool {
		return r.Ours != "" && r.Name == remedies.ReservationName(prefixOf(state.Subject{CIDR: cidr}))
	})
	if i < 0 {
		return nil
	}
	return &st.Reservations[i]
}

// nodeNamed returns a node; nil if there is none.
func nodeNamed(st *state.State, name string) *blocks.Node {
	if h := st.NodeState(name); h != nil {
		return h.Node
	}
	return nil
}

// afterReservation says from when on the reservation of a step's consolidation has stood
// for long enough that no assignment is under way that does not know of it: nothing rests on
// it before. That pods have come which the plan does not know of is said before the wait.
func (a *Turn) afterReservation(s *Step) (due time.Time, _ reason) {
	if s.Group() == remedies.Rehoming {
		return time.Time{}, reason{}
	}
	r := reservationOf(a.State, s.emptied())
	if r == nil || r.Ours != s.Group() || len(r.CIDRs) != 1 || r.CIDRs[0] != prefixOf(state.Subject{CIDR: s.emptied()}) {
		return time.Time{}, because(RefusedConflict, "the block is not reserved: new pods may take its addresses")
	}
	if r := a.unplanned(s); r.code != "" {
		return time.Time{}, r
	}
	due = r.Created.Std().Add(cmp.Or(a.Stands, reservationStands) + time.Second) // times of objects are whole seconds
	if !due.After(a.State.Cluster.TakenAt) {
		return time.Time{}, reason{}
	}
	return due, reason{why: "an assignment that began before the block was reserved may still be under way"}
}

// emptied is the CIDR of the block that a step's consolidation empties.
func (s *Step) emptied() string {
	cidr, _, _ := strings.Cut(s.Group(), " ")
	return cidr
}

// unplanned refuses a step of a consolidation if a pod has an address of the block whose
// eviction the plan lacks.
func (a *Turn) unplanned(s *Step) reason {
	b := blockAt(a.State, s.emptied())
	if b == nil {
		return reason{}
	}
	for i, o := range b.Ordinals {
		addr := b.Address(i)
		if o == blocks.Free {
			continue
		}
		w := a.State.LiveUser(addr, b.At(i))
		if w == nil {
			continue // an address that no pod has ends the consolidation by itself
		}
		id := stepID(EvictPod, state.IPSubject(addr, w.Node))
		if !slices.ContainsFunc(a.Plan.Steps, func(x Step) bool { return x.ID == id }) {
			return because(RefusedConflict, "pod %s has got %s meanwhile, which the plan does not know of: make a new one", w.FullName(), addr)
		}
	}
	return reason{}
}

// Awaited are the objects that show whether an evicted pod is gone and replaced as pods
// were before: it, the pods of its controller, and the blocks of their addresses; false if
// that takes reading all pods. Of another step they are those that every reading takes.
func Awaited(before, now *state.State, s *Step) ([]blocks.Ref, bool) {
	r := newRefs(now)
	namespace, name, evicts := strings.Cut(s.Guard(GuardPod), "/")
	controller := s.Guard(GuardController)
	r.pod(namespace, name)
	r.block(prefixOf(state.Subject{CIDR: s.Guard(GuardBlock)}))
	if !evicts || controller == Absent {
		return r.out, true
	}
	had := remedies.Of(before).PodsOf(controller)
	if len(had) == 0 {
		return nil, false
	}
	hash := had[0].Labels[templateHash]
	switch kind := had[0].Controller.Kind; {
	case kind == "ReplicaSet" && hash != "":
		r.add(blocks.Ref{Resource: blocks.Pods, Namespace: namespace, Label: templateHash + "=" + hash})
		fallthrough // a pod whose label changed is not in that list, and lives
	case kind == "StatefulSet": // which makes them again under their names
		for _, w := range had {
			r.pod(namespace, w.Name)
		}
	case kind == "DaemonSet":
		r.node(s.Target.Node)
	default:
		return nil, false
	}
	for _, w := range remedies.Of(now).PodsOf(controller) {
		if slices.ContainsFunc(had, func(o *blocks.Workload) bool { return o.UID == w.UID }) {
			continue
		}
		for addr := range w.Addresses {
			if b := blockWith(now, addr); b != nil {
				r.one(blocks.Blocks, b.Name)
			}
		}
	}
	return r.out, true
}

// templateHash is the label by which the pods of a Deployment's ReplicaSet differ from
// those of its others (DefaultDeploymentUniqueLabelKey of k8s.io/api/apps/v1).
const templateHash = "pod-template-hash"
