package repair

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// setStrictAffinity writes the one setting, and no other field, into the IPAM
// configuration. It acts at once and for the whole cluster. Which nodes could then not allocate is
// a guard: should that be others when the plan is applied, the plan has to be made
// again and looked at again.
var setStrictAffinity = &StepKind{
	kind:  SetStrictAffinity,
	flag:  "--strict-affinity",
	asked: func(r Request) bool { return r.StrictAffinity != nil },
	needs: []blocks.Resource{
		blocks.IPAMConfigs, blocks.Pools, blocks.Blocks, blocks.Affinities, blocks.Reservations, blocks.Nodes, blocks.Pods, blocks.Namespaces,
	},
	plain: true,
	whole: func(*Step) bool { return true },
	exact: []string{GuardName, GuardUID, GuardStrict, guardWanted, GuardStarves},
	propose: func(p *proposals) {
		if p.wants(state.ConfigSubject()) {
			p.proposeStrict(*p.req.StrictAffinity)
		}
	},
	refs: func(r *refs, _ *Step) {
		for _, p := range r.st.Pools {
			r.one(blocks.Pools, p.Name)
		}
		for _, h := range r.st.NodeStates {
			if h.Node != nil && (h.Node.Windows || len(h.Blocks) == 0) {
				r.one(blocks.Nodes, h.Name)
			}
		}
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		want, err := strconv.ParseBool(s.Guard(guardWanted))
		if err != nil {
			return fmt.Errorf("%s does not say what to set", s.ID)
		}
		if !st.IPAM.Present {
			return w.SetStrictAffinity(ctx, nil, want)
		}
		ref := pin(blocks.IPAMConfigs, st.IPAM.Meta)
		return w.SetStrictAffinity(ctx, &ref, want)
	},
	verify: func(st *state.State, s *Step) error {
		if want := s.Guard(guardWanted); strconv.FormatBool(st.IPAM.StrictAffinity) != want {
			return fmt.Errorf("strictAffinity is %t, and should be %s", st.IPAM.StrictAffinity, want)
		}
		return nil
	},
	undo: (*Begun).undoStrict,
	pretend: func(x *pretence, step *Step) {
		x.IPAM.Present, x.IPAM.StrictAffinity = true, step.Guard(guardWanted) == "true"
	},
}

// guardWanted is the setting that is asked for.
const guardWanted = "strictAffinity.wanted"

func (p *proposals) proposeStrict(want bool) {
	st := p.st
	c := concern{target: state.ConfigSubject()}
	if st.IPAM.StrictAffinity == want {
		return // it is so already, which the plan's warnings say
	}
	result := st.IPAM
	result.StrictAffinity = want
	if why := state.RejectedSettings(result); why != "" {
		p.refuse(c, RefusedRejected, "Calico rejects the result: %s", why)
		return
	}
	if windows := windowsNodes(st); !want && len(windows) > 0 {
		p.refuse(c, RefusedRejected, "Calico assigns no address on Windows nodes without strict affinity: %s", phrase.List(windows))
		return
	}
	stuck := cannotAllocate(st, want)
	pairs := []string{
		GuardName, "default", GuardUID, Absent, GuardStrict, strconv.FormatBool(st.IPAM.StrictAffinity), guardWanted, strconv.FormatBool(want),
		GuardStarves, orAbsent(strings.Join(stuck, ",")),
	}
	var pinned []blocks.Meta
	because := "no IPAM configuration exists, and one is created with strict affinity, automatic blocks and no limit of blocks"
	if st.IPAM.Present {
		pairs[3], pinned = st.IPAM.UID, []blocks.Meta{st.IPAM.Meta}
		because = fmt.Sprintf("strictAffinity is %t, and %t is asked for", st.IPAM.StrictAffinity, want)
	}
	p.add(c, Step{
		Because: because + "; it holds at once, for the whole cluster, and moves no address that is borrowed now",
		Evidence: state.Evidences("strictAffinity", fmt.Sprint(st.IPAM.StrictAffinity), "autoAllocateBlocks", fmt.Sprint(st.IPAM.AutoAllocateBlocks),
			"maxBlocksPerHost", fmt.Sprint(st.IPAM.MaxBlocksPerHost), "nodes that cannot allocate with it", phrase.List(stuck)),
		Guards: guards(pairs...),
	}, pinned...)
}

// undoStrict puts the setting back, if it is the one that was written, and if a plan
// that asks for it would. An object that was created stays: without it, Calico would
// take the same values.
func (b *Begun) undoStrict() Move {
	c := b.Log.first(blocks.IPAMConfigs)
	if c == nil || c.After == nil {
		return cannot(SkipUnknown, "the journal does not hold the configuration")
	}
	was := false // what Calico takes where no object exists
	if v := c.was().Spec.StrictAffinity; v != nil {
		was = *v
	}
	now, wrote := &b.State.IPAM, storedObject(c.After).Spec.StrictAffinity
	switch {
	case now.StrictAffinity == was:
		return nothing(Already, "the setting is as it was")
	case !now.Present || wrote == nil || now.StrictAffinity != *wrote:
		return cannot(SkipChanged, "the setting was written since")
	}
	step, refusal := b.Kind.derive(b.State, Request{StrictAffinity: &was, AllowNewer: b.Request.AllowNewer}, stepID(SetStrictAffinity, state.ConfigSubject()))
	switch {
	case refusal != nil:
		return cannot(SkipCode(refusal.Code), "%s", refusal.Reason)
	case step == nil:
		return cannot(SkipNotDerived, "what the cluster holds now gives no reason for it")
	}
	// Whom a plan's setting starves, somebody has looked at.
	already := cannotAllocate(b.State, now.StrictAffinity)
	stuck := slices.DeleteFunc(cannotAllocate(b.State, was), func(node string) bool { return slices.Contains(already, node) })
	if len(stuck) > 0 {
		return cannot(SkipHarm, "with strict affinity %t the next pod on %s would get no address", was, phrase.List(stuck))
	}
	ref := pin(blocks.IPAMConfigs, now.Meta)
	return toWrite(func(ctx context.Context) error { return b.Writer.SetStrictAffinity(ctx, &ref, was) }, "set strict affinity to %t again", was)
}
