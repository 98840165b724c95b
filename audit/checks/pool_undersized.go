package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolUndersized = audit.Check{
	ID:         "pool/undersized",
	Title:      "a pool has fewer blocks than its nodes will need",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "warning, or info if other pools make up for it",
	Why: "When the nodes fill up with pods, some of them will get no block. " +
		"Each needs at least one, and ⌈allocatable pods / block size⌉ of them when it runs as many pods as it may.",
	Confirm:  "Compare the pool's number of blocks, 2^(blockSize - prefix length), with the nodes that its nodeSelector matches.",
	Fix:      "Add a pool for the same nodes, choose a larger CIDR, or in a new pool smaller blocks (such as /28 instead of /26) where nodes run few pods.",
	Never:    "Never change the CIDR or block size of a pool in use.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Nodes, blocks.Reservations},
	Run: func(st *state.State, f *audit.Findings) {
		for _, p := range st.Pools {
			usable := usableSlots(st, p)
			if p.Needed.Cmp(usable) <= 0 {
				continue
			}
			sev, others := state.Warning, ""
			short := p.Needed.Sub(usable)
			if spare := spareElsewhere(st, p); spare.Cmp(short.Mul(p.BlockAddresses())) >= 0 {
				sev = state.Info
				others = fmt.Sprintf("other pools for the same nodes have %s to spare", state.PluralCount(spare, "address"))
			}
			selected, _ := selected(st, p)
			message := fmt.Sprintf("pool %s has %s, and its %s will need %s when full", p.Name, state.PluralCount(usable, "block"), state.Plural(selected, "node"), p.Needed)
			if others != "" {
				message += "; " + others
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Message: message,
				Evidence: state.Evidences(
					"needed", p.Needed.String(), "usable", usable.String(), "nodes", fmt.Sprint(selected),
					"addresses in a block", p.BlockAddresses().String(), "elsewhere", others),
				Fix: audit.Manual(fmt.Sprintf("add a pool for the same nodes with at least %s", state.PluralCount(short, "block"))),
			})
		}
	},
}

// usableSlots is how many blocks a pool can have in use at once.
func usableSlots(st *state.State, p *state.Pool) blocks.Count {
	none := blocks.PoolSlots(p.Pool, nil, st.Reserved)
	return none.Free
}

// selected counts the nodes that a pool selects.
func selected(st *state.State, p *state.Pool) (n int, which map[string]bool) {
	which = map[string]bool{}
	for _, h := range st.NodeStates {
		if h.Node != nil && p.SelectsNode(h.Node) {
			which[h.Name] = true
		}
	}
	return len(which), which
}

// spareElsewhere is how many addresses, in whole blocks, other pools have for all
// the nodes that p selects, beyond what nodes outside p need of them. Block sizes
// may differ, so that blocks cannot be compared.
func spareElsewhere(st *state.State, p *state.Pool) blocks.Count {
	_, mine := selected(st, p)
	spare := blocks.Count{}
	for _, q := range st.Pools {
		if q == p || q.Family() != p.Family() || !q.ServesWorkloads() || !q.Automatic || !q.ServesAllNamespaces() {
			continue
		}
		n, theirs := selected(st, q)
		if n < len(mine) || !containsAll(theirs, mine) {
			continue
		}
		left := usableSlots(st, q)
		for name := range theirs {
			if !mine[name] {
				left = left.Sub(state.NodeDemand(st.NodeState(name).Node, q))
			}
		}
		if left.Cmp(blocks.Count{}) > 0 {
			spare = spare.Add(left.Mul(q.BlockAddresses()))
		}
	}
	return spare
}

func containsAll(set, subset map[string]bool) bool {
	for x := range subset {
		if !set[x] {
			return false
		}
	}
	return true
}
