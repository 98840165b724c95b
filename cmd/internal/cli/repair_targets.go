package cli

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// parseTargets parses the values of --ip and --block.
func (r *repairCommand) parseTargets() error {
	for _, text := range r.ips {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return exit.Usagef("--ip %q is not an IP address", text)
		}
		r.request.IPs = append(r.request.IPs, a.Unmap())
	}
	for _, text := range r.cidrs {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return exit.Usagef("--block %q is not a CIDR such as 10.0.0.0/26", text)
		case p != p.Masked():
			return exit.Usagef("--block %s is not a block: the block of that size is %s", text, p.Masked())
		}
		r.request.Blocks = append(r.request.Blocks, p)
	}
	return nil
}

// checkTargets returns an error if an address or block of --ip and --block is unknown: no block,
// affinity, reservation of calico-audit or live pod refers to it.
func (r *repairCommand) checkTargets(st *state.State) error {
	if !st.Complete() {
		return nil
	}
	for _, a := range r.request.IPs {
		pool := st.PoolOf(netip.PrefixFrom(a, a.BitLen()))
		switch {
		case st.CoveringBlock(a) != nil || st.UnrecordedUser(netip.PrefixFrom(a, a.BitLen())) != "" || secondary(st, a):
		case pool == nil:
			return exit.Usagef("--ip %s is in no block and in no pool", a)
		default:
			return exit.Usagef("--ip %s is in no block and unused: pool %s has not assigned it", a, pool.Name)
		}
	}
	for _, p := range r.request.Blocks {
		pool := st.PoolOf(p)
		switch {
		case st.BlockOf(p) != nil || len(st.AffinitiesOf(p)) > 0 || reserved(st, p):
		case pool == nil:
			return exit.Usagef("--block %s: no such block, no affinity to it, and no pool contains it", p)
		case p.Bits() != pool.BlockSize:
			return exit.Usagef("--block %s: no such block; blocks of pool %s are /%d, and %s is in %s", p, pool.Name, pool.BlockSize, p.Addr(), netip.PrefixFrom(p.Addr(), pool.BlockSize).Masked())
		case st.UnrecordedUser(p) == "":
			return exit.Usagef("--block %s: no such block: pool %s has not assigned it", p, pool.Name)
		}
	}
	return nil
}

// secondary reports whether an address is in a Whereabouts range or reservation.
func secondary(st *state.State, a netip.Addr) bool {
	return slices.ContainsFunc(st.WhereaboutsPools, func(p blocks.WhereaboutsPool) bool { return p.Range.Masked().Contains(a) }) ||
		slices.ContainsFunc(st.WhereaboutsReservations, func(r blocks.WhereaboutsReservation) bool {
			return slices.Contains(slices.Collect(maps.Values(r.Addresses())), a)
		})
}

func reserved(st *state.State, p netip.Prefix) bool {
	return slices.ContainsFunc(remedies.Of(st).Begun(), func(c *remedies.Consolidation) bool { return c.CIDR == p })
}

// checkNames returns an error if a pool or node of --pool and --node is unknown.
func (r *repairCommand) checkNames(st *state.State) error {
	rep := audit.NewReport(st, &audit.Result{})
	for i := range st.Affinities {
		// A host with only an affinity is not in the report.
		if n := st.Affinities[i].Owner.Node(); n != "" && st.NodeState(n) == nil {
			rep.Nodes = append(rep.Nodes, audit.NodeReport{Name: n})
		}
	}
	return r.checkSeen(rep, r.request.Pools, r.request.Nodes)
}

// terminatedNodes returns the nodes of --terminated, sorted, with "all" expanded. It is an
// error to name a Ready node, or a node that does not exist and owns nothing.
func (r *repairCommand) terminatedNodes(st *state.State) ([]string, error) {
	var out []string
	for _, name := range r.terminated {
		if name == "all" {
			out = append(out, planner.UnansweredNodes(st, r.request)...)
			continue
		}
		h := st.NodeState(name)
		switch {
		case h != nil && h.Node != nil && h.Node.Ready:
			return nil, exit.Usagef("--terminated %s: the node is Ready, so its machine is running", name)
		case h == nil && st.Complete() && !planner.Leaves(st, name):
			return nil, exit.Usagef("--terminated %s: no such node, and no allocation names it", name)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
