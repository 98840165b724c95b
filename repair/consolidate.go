package repair

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
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
func (p *proposals) consolidation() *state.Consolidation {
	begun := p.st.Begun()
	for _, c := range begun {
		if p.chooses(c) {
			return c
		}
	}
	if len(begun) > 0 {
		return begun[0]
	}
	for _, n := range p.st.InNeed() {
		for _, c := range p.st.Consolidations(n) {
			if len(c.Barred) == 0 && p.chooses(c) {
				return c
			}
		}
	}
	return nil
}

func (p *proposals) chooses(c *state.Consolidation) bool {
	about := p.aboutAll(c, state.Subject{Kind: state.KindBlock, CIDR: c.CIDR.String()})
	return (p.req.Chosen == "" || p.req.Chosen == c.Name()) && !p.req.beside(p.st, about.target, about.pools, about.nodes)
}

// consolidating returns the consolidation whose steps are to be proposed, but for those
// that take it back; nil if there is none, or it must not go on.
func (p *proposals) consolidating() *state.Consolidation {
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
func (p *proposals) withheld(c *state.Consolidation) reason {
	if name, unread := p.st.UnreadPod(); unread {
		return because(RefusedNotRead, "pod %s could not be read and may have an address of the block", name)
	}
	if p.st.Cluster.Live && !p.st.BudgetsKnown {
		return because(RefusedNotRead, "PodDisruptionBudgets and the labels of pods were not read, so that nothing says which pods may be evicted")
	}
	if len(c.Unguarded) > 0 && !p.req.EvictSingletons {
		return because(RefusedConsent, "%s, and nothing takes over meanwhile: consent with --evict-singletons", unguardedText(c.Unguarded))
	}
	if len(c.Cordon) > 0 && !p.req.CordonFull {
		return because(RefusedConsent, "while pods move, %s with no address of its own would have to be cordoned, or the scheduler puts them there: %s; consent with --cordon-full",
			phrase.Plural(len(c.Cordon), "node"), phrase.List(c.Cordon))
	}
	return reason{}
}

func unguardedText(moves []state.Move) string {
	var names []string
	for _, m := range moves {
		names = append(names, m.Pod.FullName())
	}
	if len(names) == 1 {
		return "pod " + names[0] + " has no controller, or is the only one of it that is ready and no PodDisruptionBudget covers it"
	}
	return "pods " + phrase.List(names) + " have no controller, or are the only one of it that is ready and no PodDisruptionBudget covers them"
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
	for _, n := range p.st.InNeed() {
		var why []string
		for _, c := range p.st.Consolidations(n) {
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
func barsText(c *state.Consolidation) string {
	var out []string
	for _, b := range c.Barred {
		out = append(out, b.String())
	}
	return phrase.ListBy("; ", out)
}

// aboutAll is what a step of a consolidation concerns: all have the same pools and nodes,
// so that no filter takes some of them away.
func (p *proposals) aboutAll(c *state.Consolidation, target state.Subject) concern {
	return concern{target, poolNames(c.Pool), []string{c.For, c.Holder}}
}

// joins adds what each step of a consolidation is held to.
func joins(c *state.Consolidation, pairs ...string) []Guard {
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
		return r.Ours != "" && r.Name == state.ReservationName(prefixOf(state.Subject{CIDR: cidr}))
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

// reserved returns from when on a consolidation's reservation is good for what rests on it;
// false if there is none.
func (a *Turn) reserved(s *Step) (due time.Time, reserved bool) {
	cidr, _, _ := strings.Cut(s.Group(), " ")
	r := reservationOf(a.State, cidr)
	if r == nil || r.Ours != s.Group() {
		return time.Time{}, false
	}
	return r.Created.Add(cmp.Or(a.Stands, reservationStands) + time.Second), true // times of objects are whole seconds
}
