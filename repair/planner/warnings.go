package planner

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/moves"
)

func warnings(st, after *state.State, p *repair.Plan) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	has := func(k repair.Kind) bool {
		return slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Kind == k })
	}

	if want := p.Request.StrictAffinity; want != nil && *want == st.IPAM.StrictAffinity && st.FirstMissing([]blocks.Resource{blocks.IPAMConfigs}) == nil {
		say("strictAffinity is %t already: there is nothing to set", *want)
	}
	if p.Strict != nil {
		out = append(out, strictWarnings(st, after, p)...)
	}
	if names := leftAlone(st, p); len(names) > 0 {
		say("an earlier repair by calico-audit did not finish, or still runs: %s. Finish it (\"repair apply --resume JOURNAL\") or revert it (\"repair undo JOURNAL\"); without the journal, use --soft-deleted, --orphan-affinities, --consolidate and --rehome", state.Value(names))
	}
	if len(p.Steps) == 0 {
		return out
	}
	for _, assumed := range st.Cluster.Assumes {
		say("this plan is a draft: it assumes that %s. Apply reads the cluster again, and skips steps that no longer apply", assumed)
	}
	if why := p.Unapplicable(); why != "" {
		say("%s: this plan cannot be applied, only viewed", why)
	}
	if reason := st.Cluster.NewerThanKnown(); reason != "" && p.Request.AllowNewer {
		say("%s; you allowed that (--allow-newer-calico): fields of newer releases are preserved, but their meaning is ignored", reason)
	}
	if has(repair.ReleaseBlock) && !has(repair.ClaimBlock) {
		say("releasing an empty block frees a block to claim; the number of available addresses does not change")
	}
	p.MayFill = nil
	lose, evicted := 0, 0
	var bare, alone, cordon blocks.Names
	for i := range p.Steps {
		switch s := &p.Steps[i]; {
		case s.Kind != repair.CordonNode:
		case s.Conditional():
			p.MayFill = append(p.MayFill, s.Target.Name)
		default:
			cordon = append(cordon, s.Target.Name)
		}
		if s := &p.Steps[i]; s.Kind == repair.EvictPod {
			if evicted++; s.Guard(repair.GuardController) == repair.Absent {
				bare = append(bare, s.Guard(repair.GuardPod))
			}
		}
		w := moves.PodOf(st, &p.Steps[i])
		if w != nil && w.HasScratch {
			lose++
		}
		if w != nil && w.Controller != nil && remedies.Of(st).Unguarded(w) {
			alone = append(alone, w.FullName())
		}
	}
	if takers, already := remedies.Of(st).Takers(); len(cordon) > 0 || already > 0 && evicted > 0 {
		say("while pods move, nodes that take pods are cordoned (%d of %d)", already+len(cordon), already+takers)
		if pool, left, of := remedies.Of(st).LeavesTooFew(cordon); pool != "" {
			say("pool %s has fewer than half of its nodes left for new pods meanwhile (%d of %d)", pool, left, of)
		}
	}
	if len(p.MayFill) > 0 {
		say("pods that move may use up the free addresses of %s: each is cordoned when it has none left, and uncordoned at the end", p.MayFill)
	}
	if c := moves.Consolidating(&repair.Proposals{State: st.WithTerminated(p.Request.Terminated), Request: p.Request}); evicted > 0 && c != nil && c.Block != nil && c.Spare == len(c.Moves) {
		say("the nodes have room for exactly the pods that move out of %s (%d): if another pod starts there, the run stops before the next eviction and reverts its reservation and cordons", c.CIDR, c.Spare)
	}
	if len(bare) > 0 {
		say("evicted pods without a controller, which nothing recreates: %s", bare)
	}
	if len(alone) > 0 {
		say("evicted pods without another ready replica to serve meanwhile: %s", alone)
	}
	if lose > 0 {
		say("evicted pods that lose the contents of emptyDir volumes: %d", lose)
	}
	return append(out, evidenceWarnings(p)...)
}

// LeftHalfDone names the objects that steps of this program left half-done, and the reservations
// and cordons that it did not remove.
func LeftHalfDone(st *state.State) []string { return leftAlone(st, &repair.Plan{}) }

// leftAlone names the objects that a step of this program left half-done and that no step of the
// plan covers.
func leftAlone(st *state.State, p *repair.Plan) blocks.Names {
	var out []string
	add := func(t state.Subject, what string) {
		// A block's step covers its owner's affinity, too.
		if !slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Target == t || t.CIDR != "" && s.Target.CIDR == t.CIDR }) {
			out = append(out, what)
		}
	}
	for _, b := range st.IPBlocks {
		if b.ByUs && b.SoftDeleted {
			add(state.BlockSubject(b), "ipamblock/"+b.Name)
		}
	}
	for i := range st.Affinities {
		if a := &st.Affinities[i]; state.HalfDone(a) {
			add(state.AffinitySubject(a), "blockaffinity/"+a.Name)
		}
	}
	for _, h := range st.Handles {
		if h.ByUs && h.SoftDeleted {
			add(state.HandleSubject(h.ID), "ipamhandle/"+h.Name)
		}
	}
	for i := range st.Reservations {
		if r := &st.Reservations[i]; r.Ours != "" && !slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Kind == repair.UnreserveBlock && s.Group() == r.Ours }) {
			out = append(out, "ipreservation/"+r.Name)
		}
	}
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.Ours != "" && !slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Kind == repair.UncordonNode && s.Target.Name == n.Name }) {
			out = append(out, "node/"+n.Name+" (cordoned)")
		}
	}
	return out
}

func strictWarnings(st, after *state.State, p *repair.Plan) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	x := p.Strict
	if len(p.Request.Pools)+len(p.Request.Nodes)+len(p.Request.IPs)+len(p.Request.Blocks) > 0 {
		say("strict affinity applies to the whole cluster: --pool and --node do not narrow it")
	}
	if drop := droppingPools(st); !x.To && len(drop) > 0 {
		say("with strictAffinity false nodes borrow, and in this topology the owner of a block drops traffic to borrowed addresses of %s", state.PoolsOf(drop...))
	}
	if len(x.Starve) > 0 {
		say("with strictAffinity %t, the next pod gets no address on %s: do the manual steps first", x.To, x.Starve)
	}
	if short := remedies.Of(after).Contests(); x.To && len(short) > 0 && len(x.Starve) == 0 {
		say("%s: with strict affinity on, those that come too late get no address", &short[0])
	}
	if x.To && x.Unusable > 0 {
		say("free addresses in blocks that no node owns, unusable under strict affinity: %d", x.Unusable)
	}
	if pods := namedElsewhere(after); x.To && len(pods) > 0 {
		say("pods that ask by name for an address of another node's block get none after a restart: %s", phrase.FullNames(pods))
	}
	if pods := namedHere(after); x.To && len(pods) > 0 {
		say("pods that ask by name for an address get it only on the node that owns its block: %s", pods)
	}
	if n := len(x.Borrowers); n > 0 {
		say("addresses that stay borrowed until their pods restart: %d", n)
	}
	return out
}

// droppingPools returns the pools that serve workloads and in which the topology drops traffic to
// borrowed addresses between at least some nodes.
func droppingPools(st *state.State) (out []*state.Pool) {
	if st.FirstMissing(state.RouteReads) != nil {
		return nil
	}
	for _, p := range st.Pools {
		if p.ServesWorkloads() && st.Forecast(p).Dropped > 0 {
			out = append(out, p)
		}
	}
	return out
}
