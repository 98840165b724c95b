package remedies

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Rehoming marks, as a consolidation's name does, what was made while pods that borrow
// start again.
const Rehoming = "rehome"

// Leftover is a reservation or a cordon that was made while pods move, and that nothing
// has been done about for the grace: its run did not finish, or waits for very long.
type Leftover struct {
	// Mark is the annotation by which it is ours.
	Mark string
	// Reservation or Node is what is left; the other is nil.
	Reservation *blocks.Reservation
	Node        *blocks.Node
	// Since is when its run was last seen to write anything; zero if that is not known.
	Since blocks.Time
}

// Subject is what a finding about it is about: the node, or the reserved block.
func (l *Leftover) Subject() state.Subject {
	if l.Node != nil {
		return state.NodeSubject(l.Node.Name)
	}
	if len(l.Reservation.CIDRs) == 0 {
		return state.Subject{Kind: state.KindBlock, Name: l.Reservation.Name}
	}
	cidr := l.Reservation.CIDRs[0]
	return state.Subject{Kind: state.KindBlock, Name: blocks.BlockName(cidr), CIDR: cidr.String()}
}

// Object names it as kubectl does.
func (l *Leftover) Object() string {
	if l.Node != nil {
		return "node/" + l.Node.Name
	}
	return "ipreservation/" + l.Reservation.Name
}

// findLeftovers finds what moving pods left. A run writes something every few minutes:
// it makes reservation and cordons, and each pod that ends gives an address of the
// reserved block back.
func (st *Remedies) findLeftovers() {
	last := map[string]blocks.Time{}
	wrote := func(mark string, at blocks.Time) {
		last[mark] = at.Later(last[mark])
	}
	var all []Leftover
	for i := range st.Reservations {
		r := &st.Reservations[i]
		if r.Ours == "" {
			continue
		}
		all = append(all, Leftover{Mark: r.Ours, Reservation: r})
		wrote(r.Ours, r.Created)
		wrote(r.Ours, r.Written)
		if c, ok := parseConsolidation(r.Ours); ok {
			if b := st.BlockOf(c.CIDR); b != nil {
				wrote(r.Ours, b.Written)
			}
		}
	}
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.Ours != "" {
			all = append(all, Leftover{Mark: n.Ours, Node: n})
			wrote(n.Ours, n.OursSince)
		}
	}
	for _, l := range all {
		if l.Since = last[l.Mark]; st.PastGrace(l.Since) {
			st.Leftovers = append(st.Leftovers, l)
		}
	}
	if len(st.Leftovers) > 0 {
		st.root("leftovers", func(int) string { return st.leftoversMessage() }, st.leftoverRemedies)
	}
}

// OrElse says what a run that did not leave it behind does: one that moves pods home writes
// to nothing that would tell.
func (l *Leftover) OrElse() string {
	if l.Mark == Rehoming {
		return "still runs"
	}
	return "waits"
}

func (st *Remedies) leftoversMessage() string {
	var objects []string
	rest := "waits for very long"
	for i := range st.Leftovers {
		objects = append(objects, st.Leftovers[i].Object())
		if st.Leftovers[i].Mark == Rehoming {
			rest = "still runs"
		}
	}
	return fmt.Sprintf("a repair that moves pods did not finish, or %s, and left %s behind", rest, phrase.Some(objects))
}

// rehomable is how many pods "repair --rehome" evicts as it stands, without a consent.
func (st *Remedies) rehomable() (n int) {
	if pool, _, _ := st.LeavesTooFew(st.Full()); len(st.Full()) > 0 || pool != "" {
		return 0
	}
	now, _ := st.Rehomes()
	for _, m := range now {
		if st.EvictionBar(m.Pod) == "" && !st.Unguarded(m.Pod) {
			n++
		}
	}
	return n
}

// leftoverRemedies are what goes on with what was begun, or takes it back.
func (st *Remedies) leftoverRemedies() (out []Remedy) {
	begun := st.Begun()
	var left, uncordon []string
	flags := "--rehome"
	for i := range st.Leftovers {
		l := &st.Leftovers[i]
		if l.Node == nil && !slices.ContainsFunc(begun, func(c *Consolidation) bool { return c.Reservation == l.Reservation }) {
			out = append(out, ByHand("see who changed IPReservation "+l.Reservation.Name+", and delete it if it is not wanted", "its addresses can be handed out again",
				"who changed it may rely on it", "kubectl get ipreservations "+phrase.Arg(l.Reservation.Name)+" -o yaml"))
			continue
		}
		left = append(left, l.Object())
		if l.Mark != Rehoming {
			flags = "--consolidate"
		}
		if l.Node != nil && len(begun) == 0 {
			uncordon = append(uncordon, l.Node.Name)
		}
	}
	if len(uncordon) > 0 {
		out = append([]Remedy{ByHand("where the journal of the run is at hand, take it back by that (calico-audit repair undo JOURNAL), which moves nothing", "the reservation and the cordons of the run go", "none"),
			ByHand("uncordon by hand, and take the annotation off: "+phrase.Some(uncordon), "the nodes take pods again", "a run that lives renews its Lease: see first that none does",
				"kubectl get leases -n kube-system calico-audit-consolidation -o yaml", "kubectl get nodes "+phrase.Arg(uncordon[0])+" -o yaml")}, out...)
	}
	if len(left) == 0 {
		return out
	}
	back := "it is taken back, and the nodes take pods again"
	effect, risk := "nothing moves: "+back, "none"
	if n := st.rehomable(); n > 0 && flags == "--rehome" {
		effect, risk = fmt.Sprintf("%s again; then ", phrase.One(n, "1 pod that borrows starts", fmt.Sprintf("%d pods that borrow start", n)))+back, st.evictionRisk()
	}
	for _, c := range begun {
		if !c.Over() && len(c.Barred) == 0 {
			effect, risk = fmt.Sprintf("%s of %s is emptied for %s, which takes moving %s; then ", c.CIDR, c.Holder, c.For, phrase.Plural(len(c.Moves), "pod"))+back, st.evictionRisk()
		}
	}
	return append([]Remedy{Repair("go on with what was begun, or take back what cannot go on: "+phrase.Some(left), flags, effect, risk)}, out...)
}
