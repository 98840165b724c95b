package repair

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// setStrictAffinity writes the one setting, and no other field, into the IPAM
// configuration. It acts at once and for the whole cluster. Whom it would starve is
// a guard: should that be others when the plan is applied, the plan has to be made
// anew and looked at again.
var setStrictAffinity = &stepKind{
	kind:  SetStrictAffinity,
	flag:  "--strict-affinity",
	asked: func(r Request) bool { return r.StrictAffinity != nil },
	needs: []blocks.Resource{
		blocks.IPAMConfigs, blocks.Pools, blocks.Blocks, blocks.Affinities, blocks.Reservations, blocks.Nodes, blocks.Pods, blocks.Namespaces,
	},
	plain: true,
	whole: true,
	exact: []string{GuardName, GuardUID, GuardStrict, guardWanted, GuardStarves},
	propose: func(p *proposals) {
		if p.wants(audit.ConfigSubject()) {
			p.proposeStrict(*p.req.StrictAffinity)
		}
	},
	refs: func(st *audit.State, _ *Step) []blocks.Ref {
		r := newRefs(st)
		for _, p := range st.Pools {
			r.one(blocks.Pools, p.Name)
		}
		for _, h := range st.Hosts {
			if h.Node != nil && (h.Node.Windows || len(h.Blocks) == 0) {
				r.one(blocks.Nodes, h.Name)
			}
		}
		return r.out
	},
	do: func(ctx context.Context, w Writer, st *audit.State, s *Step) error {
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
	verify: func(st *audit.State, s *Step) error {
		if want := s.Guard(guardWanted); strconv.FormatBool(st.IPAM.StrictAffinity) != want {
			return fmt.Errorf("strictAffinity is %t, and should be %s", st.IPAM.StrictAffinity, want)
		}
		return nil
	},
	pretend: func(x *pretence, step *Step) {
		x.IPAM.Present, x.IPAM.StrictAffinity = true, step.Guard(guardWanted) == "true"
	},
}

// guardWanted is the setting that is asked for.
const guardWanted = "strictAffinity.wanted"

func (p *proposals) proposeStrict(want bool) {
	st := p.st
	c := concern{target: audit.ConfigSubject()}
	if st.IPAM.StrictAffinity == want {
		return // it is so already, which the plan's warnings say
	}
	result := st.IPAM
	result.StrictAffinity = want
	if why := audit.RejectedSettings(result); why != "" {
		p.refuse(c, RefusedRejected, "Calico rejects the result: %s", why)
		return
	}
	if windows := windowsNodes(st); !want && len(windows) > 0 {
		p.refuse(c, RefusedRejected, "Calico assigns no address on Windows nodes without strict affinity: %s", audit.List(windows))
		return
	}
	starve := starving(st, want)
	pairs := []string{
		GuardName, "default", GuardUID, Absent, GuardStrict, strconv.FormatBool(st.IPAM.StrictAffinity), guardWanted, strconv.FormatBool(want),
		GuardStarves, orAbsent(strings.Join(starve, ",")),
	}
	var pinned []blocks.Meta
	because := "no IPAM configuration exists, and one is created with strict affinity, automatic blocks and no limit of blocks"
	if st.IPAM.Present {
		pairs[3], pinned = st.IPAM.UID, []blocks.Meta{st.IPAM.Meta}
		because = fmt.Sprintf("strictAffinity is %t, and %t is asked for", st.IPAM.StrictAffinity, want)
	}
	p.add(c, Step{
		Because: because + "; it holds at once, for the whole cluster, and moves no address that is borrowed now",
		Evidence: audit.Evidences("strictAffinity", fmt.Sprint(st.IPAM.StrictAffinity), "autoAllocateBlocks", fmt.Sprint(st.IPAM.AutoAllocateBlocks),
			"maxBlocksPerHost", fmt.Sprint(st.IPAM.MaxBlocksPerHost), "nodes that it starves", audit.List(starve)),
		Guards: guards(pairs...),
	}, pinned...)
}
