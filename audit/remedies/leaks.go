package remedies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/releasable"
	"github.com/calico-audit/calico-audit/blocks"
)

// leaks groups leaked addresses by what a plan does with them.
type leaks struct {
	all, proven int
	// consented counts those released with --without-host-evidence, off those released with
	// --terminated.
	consented, off int
	// unseen and silent name the nodes whose addresses lack evidence: unseen the nodes that answer,
	// silent those whose machines may still run.
	unseen, silent blocks.Names
	bar            state.Bar
}

// allLeaks returns the leaked addresses that share the root of leaks.
func (st *Remedies) allLeaks() (out []state.AllocationRef) {
	for _, r := range st.Unowned() {
		if !r.Owned && st.RootOfLeak(r.AllocationRef) == "leaks" {
			out = append(out, r.AllocationRef)
		}
	}
	return out
}

func (st *Remedies) countLeaks(refs []state.AllocationRef) (x leaks) {
	x.all = len(refs)
	for _, r := range refs {
		node := state.NodeOf(r.Attributes())
		switch v := releasable.Of(st.State, releasable.Consents{}, r); {
		case v.Code == "":
			x.proven++
		case v.Code == releasable.NoEvidence:
			if node != "" {
				x.unseen = append(x.unseen, node)
			}
			if releasable.Of(st.State, releasable.Consents{WithoutHostEvidence: true}, r).Code == "" {
				x.consented++
			}
		case v.Code == releasable.MachineMayRun && releasable.Of(st.WithTerminated([]string{node}), releasable.Consents{}, r).Code == "":
			x.silent = append(x.silent, node)
			x.off++
		case x.bar.Code == "":
			x.bar = v.Bar
		}
	}
	slices.Sort(x.unseen)
	slices.Sort(x.silent)
	x.unseen, x.silent = slices.Compact(x.unseen), slices.Compact(x.silent)
	return x
}

// LeakRemedies are the remedies for leaked addresses, the preferred one first. Without proof that
// an address is unused, a plan refuses to release it, so the operator has to provide the proof: a
// host view or, for a node that is gone or NotReady, that its machine is off.
func (st *Remedies) LeakRemedies(refs ...state.AllocationRef) (out []Remedy) {
	x := st.countLeaks(refs)
	if x.proven > 0 {
		r := ReleaseLeaks
		if r.Yield = (&Yield{Addresses: x.proven}); x.proven < x.all {
			r.Effect = fmt.Sprintf("%d of %d addresses can be assigned again; repair explains why the others stay", x.proven, x.all)
		}
		return []Remedy{r}
	}
	if x.off > 0 {
		r := ReleaseLeaks.with(Shell(" --terminated %s", strings.Join(x.silent, ",")))
		r.Title = fmt.Sprintf("release the leaked addresses of machines that you know to be off (--terminated): %s", x.silent)
		r.Effect = fmt.Sprintf("addresses that can be assigned again: %d", x.off)
		r.Risk, r.Manual, r.Yield = terminatedRisk, true, &Yield{Addresses: x.off}
		out = append(out, r)
	}
	if len(x.unseen) > 0 {
		out = append(out, ByHand(fmt.Sprintf("take host views of %s (calico-audit agent), and plan with them: calico-audit repair --leaked-ips --host-views FILES", x.unseen),
			"addresses that no view shows in use can be released", "none"))
	}
	if x.consented > 0 {
		r := ReleaseLeaks.with(" --without-host-evidence")
		r.Title, r.Effect = "release the leaked addresses without proof that nothing uses them", fmt.Sprintf("addresses that can be assigned again: %d", x.consented)
		r.Risk, r.Manual, r.Yield = unprovenRisk, true, &Yield{Addresses: x.consented}
		out = append(out, r)
	}
	if len(out) == 0 {
		out = append(out, ReleaseLeaks.Unless(x.bar))
	}
	return out
}
