package planner

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

// idle are the kinds of repair with why a plan finds nothing for one that it was asked
// for. What is there and must not be touched is refused by name instead.
var idle = []struct {
	asked func(*repair.Request) bool
	alone repair.Request // that asks for nothing else
	kind  repair.Kind
	why   func(*state.State) string
}{
	{func(r *repair.Request) bool { return r.EmptyBlocks }, repair.Request{EmptyBlocks: true}, repair.ReleaseBlock, says("no empty block was found")},
	{func(r *repair.Request) bool { return r.OrphanAffinities }, repair.Request{OrphanAffinities: true}, repair.DeleteAffinity, says("no affinity without a block of its node was found")},
	{func(r *repair.Request) bool { return r.MissingAffinities }, repair.Request{MissingAffinities: true}, repair.RestoreAffinity, says("no block lacks the affinity of the node that it names")},
	{func(r *repair.Request) bool { return r.LeakedIPs }, repair.Request{LeakedIPs: true}, repair.ReleaseIP, says("no leaked address was found")},
	{func(r *repair.Request) bool { return r.LeakedHandles }, repair.Request{LeakedHandles: true}, repair.DeleteHandle, says("no leaked handle was found, and none that counts wrongly")},
	{func(r *repair.Request) bool { return r.SoftDeleted }, repair.Request{SoftDeleted: true}, repair.FinishDelete, says("nothing is marked deleted")},
	{func(r *repair.Request) bool { return r.DeadNodes }, repair.Request{DeadNodes: true}, repair.ReleaseBlock, says("no block and no affinity of a node that no longer exists was found")},
	{func(r *repair.Request) bool { return r.UnrecordedIPs }, repair.Request{UnrecordedIPs: true}, repair.RecordIP, says("no live pod was found whose address is not recorded")},
	{func(r *repair.Request) bool { return r.MissingHandles }, repair.Request{MissingHandles: true}, repair.CreateHandle, says("every handle that blocks refer to exists")},
	{func(r *repair.Request) bool { return r.WhereaboutsStranded }, repair.Request{WhereaboutsStranded: true}, repair.ReleaseWhereabouts, says("no address of a secondary network was found whose pod is gone or has given it up")},
	{func(r *repair.Request) bool { return r.WhereaboutsReservations }, repair.Request{WhereaboutsReservations: true}, repair.RestoreWhereabouts, says("no reservation of a secondary network was found whose address no pool records")},
	{func(r *repair.Request) bool { return r.Consolidate }, repair.Request{Consolidate: true}, repair.ReserveBlock, nothingToConsolidate},
	{func(r *repair.Request) bool { return r.Rehome }, repair.Request{Rehome: true}, repair.EvictPod, nothingToRehome},
}

func says(why string) func(*state.State) string { return func(*state.State) string { return why } }

// sayIdle has a plan without steps say of each kind of repair why there are none, where
// nothing that it was asked about is refused. before is the plan as it was before its
// filters.
func sayIdle(p *repair.Plan, st *state.State, before *repair.Plan) {
	if len(p.Steps) > 0 {
		return
	}
	refused := p.Refused
	for _, x := range idle {
		if !x.asked(&p.Request) {
			continue
		}
		of := func(k repair.Kind) bool { kind := KindOf(k); return kind != nil && kind.Asked(x.alone) }
		refuses := func(r repair.Refusal) bool { return of(r.Kind) }
		if slices.ContainsFunc(refused, refuses) {
			continue
		}
		why := x.why(st)
		if slices.ContainsFunc(before.Refused, refuses) || slices.ContainsFunc(before.Steps, func(s repair.Step) bool { return of(s.Kind) }) {
			why = "what there is concerns other pools, nodes, addresses or blocks than those asked for"
		}
		p.Refused = append(p.Refused, repair.Refusal{Kind: x.kind, Target: state.ClusterSubject(st), Code: repair.RefusedNothing, Reason: why})
	}
}

func nothingToConsolidate(st *state.State) string {
	if names := remedies.Of(st).LackingBlocks(); len(names) > 0 {
		return fmt.Sprintf("%s can claim a block once an empty one is released: --empty-blocks comes first", phrase.Some(names))
	}
	return "each node that takes pods has a block, or can claim one"
}

func nothingToRehome(st *state.State) string {
	vms, tunnels := 0, 0
	for _, b := range st.Borrows {
		switch {
		case b.Tunnel:
			tunnels++
		case b.VM || b.Workload != nil && b.Workload.Extras().VM != "":
			vms++
		}
	}
	switch {
	case len(st.Borrows) == 0:
		return "no pod borrows its address"
	case vms+tunnels == len(st.Borrows):
		return fmt.Sprintf("what is borrowed are %s of virtual machines, which keep them wherever they run, and %s of tunnels, which no eviction moves", phrase.Plural(vms, "address"), phrase.Plural(tunnels, "address"))
	}
	return "no pod that borrows was seen to run"
}
