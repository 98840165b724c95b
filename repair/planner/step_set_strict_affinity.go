package planner

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// setStrictAffinity writes this one setting of the IPAM configuration and no other field. It takes
// effect immediately and in the whole cluster. The nodes that could not allocate under it are a
// guard: if they differ when the plan is applied, or if another node may be unable to allocate, the
// plan has to be made and reviewed again.
var setStrictAffinity = &repair.StepKind{
	Kind:       repair.SetStrictAffinity,
	Requires:   state.SetStrictReads,
	Plain:      true,
	RestsOnAll: func(*repair.Step) bool { return true },
	Exact:      []string{repair.GuardName, repair.GuardUID, repair.GuardStrict, repair.GuardWanted, repair.GuardStarves},
	Loose:      map[string]func(*state.State, *repair.Step, *repair.Step) bool{repair.GuardMayStarve: namesStarving},
	Rights:     []repair.Right{repair.May(blocks.IPAMConfigs, "get create patch")},
	UndoRights: []repair.Right{repair.May(blocks.IPAMConfigs, "get patch")},
	Propose: func(p *repair.Proposals) {
		if p.Wants(state.ConfigSubject()) {
			proposeStrict(p, *p.Request.StrictAffinity)
		}
	},
	AddRefs: func(r *repair.Refs, _ *repair.Step) {
		r.Supply()
		for _, h := range r.State.NodeStates {
			if h.Node != nil && (h.Node.Windows || len(h.Blocks) == 0) {
				r.One(blocks.Nodes, h.Name)
			}
		}
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		want, err := strconv.ParseBool(s.Guard(repair.GuardWanted))
		if err != nil {
			return fmt.Errorf("%s does not name what to set", s.ID)
		}
		if !st.IPAM.Present {
			return w.SetStrictAffinity(ctx, nil, want)
		}
		ref := repair.Pin(blocks.IPAMConfigs, st.IPAM.Meta)
		return w.SetStrictAffinity(ctx, &ref, want)
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if want := s.Guard(repair.GuardWanted); strconv.FormatBool(st.IPAM.StrictAffinity) != want {
			return fmt.Errorf("strictAffinity is %t, and should be %s", st.IPAM.StrictAffinity, want)
		}
		return nil
	},
	Undo: undoStrict,
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		x.IPAM.Present, x.IPAM.StrictAffinity = true, step.Guard(repair.GuardWanted) == "true"
	},
}

func proposeStrict(p *repair.Proposals, want bool) {
	st := p.State
	c := repair.Concern{Target: state.ConfigSubject()}
	if st.IPAM.StrictAffinity == want {
		return // already set, as the plan's warnings report
	}
	if bars(p, c, st.WholeBar(state.SetStrictReads, false)) {
		return
	}
	result := st.IPAM
	result.StrictAffinity = want
	if why := result.Rejected(); why != "" {
		p.Refuse(c, repair.RefusedRejected, "Calico rejects the result: %s", why)
		return
	}
	if windows := windowsNodes(st); !want && len(windows) > 0 {
		p.Refuse(c, repair.RefusedRejected, "Calico assigns no address on Windows nodes without strict affinity: %s", windows)
		return
	}
	if want {
		if out := remedies.Of(st).CrowdedOut(); len(out) > 0 {
			p.Refuse(c, repair.RefusedConflict, "Windows nodes would claim blocks, too, and then none may be left for %s: add a pool first", out)
			return
		}
		if pool := servicesBorrow(st); pool != "" {
			p.Refuse(c, repair.RefusedConflict, "the next LoadBalancer Service can only borrow an address of pool %s, and with strict affinity on it would get none: free or add blocks first", pool)
			return
		}
		named := namedElsewhere(st)
		if i := slices.IndexFunc(named, (*blocks.Workload).Waiting); i >= 0 {
			p.Refuse(c, repair.RefusedConflict, "pod %s waits for an address of another node's block, which it asks for by name: with strict affinity on it would never get it", named[i].FullName())
			return
		}
	}
	stuck := cannotAllocate(st, want)
	pairs := []string{
		repair.GuardName, "default", repair.GuardUID, repair.Absent, repair.GuardStrict, strconv.FormatBool(st.IPAM.StrictAffinity), repair.GuardWanted, strconv.FormatBool(want),
		repair.GuardStarves, repair.OrAbsent(strings.Join(stuck, ",")),
		repair.GuardMayStarve, strings.Join(mayStarve(st, want, stuck), ","),
	}
	var pinned []blocks.Meta
	because := "no IPAM configuration exists, and one is created with strict affinity, automatic blocks and no limit of blocks"
	if st.IPAM.Present {
		pairs[3], pinned = st.IPAM.UID(), []blocks.Meta{st.IPAM.Meta}
		because = fmt.Sprintf("strictAffinity is %t, and %t is requested", st.IPAM.StrictAffinity, want)
	}
	p.Add(c, repair.Step{
		Because: because + "; it takes effect immediately in the whole cluster, and moves no borrowed address",
		Evidence: state.Evidences("strictAffinity", st.IPAM.StrictAffinity, "autoAllocateBlocks", st.IPAM.AutoAllocateBlocks,
			"maxBlocksPerHost", st.IPAM.MaxBlocksPerHost, "nodes that cannot allocate with it", stuck),
		Guards: repair.Guards(pairs...),
	}, pinned...)
}

// namesStarving reports whether the plan names every node that may now be unable to allocate.
func namesStarving(_ *state.State, planned, now *repair.Step) bool {
	named := strings.Split(planned.Guard(repair.GuardStarves)+","+planned.Guard(repair.GuardMayStarve), ",")
	for _, node := range strings.Split(now.Guard(repair.GuardMayStarve), ",") {
		if node != "" && !slices.Contains(named, node) {
			return false
		}
	}
	return true
}

// undoStrict restores the setting if it still has the written value and a plan that asks for the
// old value would be allowed. A created object stays: without it, Calico would use the same values.
func undoStrict(b *repair.Begun) repair.Move {
	c := b.Log.First(blocks.IPAMConfigs)
	if c == nil || c.After == nil {
		return repair.Cannot(repair.SkipUnknown, "the journal does not hold the configuration")
	}
	was := false // Calico's default if no object exists
	if v := c.Was().Spec.StrictAffinity; v != nil {
		was = *v
	}
	now, wrote := &b.State.IPAM, repair.StoredObject(c.After).Spec.StrictAffinity
	switch {
	case now.StrictAffinity == was:
		return repair.Nothing(repair.Already, "the setting already has its former value")
	case !now.Present || wrote == nil || now.StrictAffinity != *wrote:
		return repair.Cannot(repair.SkipChanged, "the setting was written meanwhile")
	}
	step, refusal := b.Kind.Derive(b.State, repair.Request{StrictAffinity: &was, AllowNewer: b.Request.AllowNewer}, repair.StepID(repair.SetStrictAffinity, state.ConfigSubject()))
	switch {
	case refusal != nil:
		return repair.Cannot(repair.SkipCode(refusal.Code), "%s", refusal.Reason)
	case step == nil:
		return repair.Cannot(repair.SkipNotDerived, "the cluster no longer needs it")
	}
	// The operator has reviewed the nodes that the setting keeps from allocating.
	already, stuck := cannotAllocate(b.State, now.StrictAffinity), cannotAllocate(b.State, was)
	may := mayStarve(b.State, was, slices.Concat(stuck, already))
	stuck = slices.DeleteFunc(stuck, func(node string) bool { return slices.Contains(already, node) })
	if len(stuck) > 0 {
		return repair.Cannot(repair.SkipHarm, "with strict affinity %t the next pod on %s would get no address", was, stuck)
	}
	if len(may) > 0 {
		return repair.Cannot(repair.SkipHarm, "with strict affinity %t the next pod on %s may get no address, if other nodes claim the last blocks first", was, may)
	}
	ref := repair.Pin(blocks.IPAMConfigs, now.Meta)
	return repair.ToWrite(func(ctx context.Context) error { return b.Writer.SetStrictAffinity(ctx, &ref, was) }, "set strictAffinity back to %t", was)
}
