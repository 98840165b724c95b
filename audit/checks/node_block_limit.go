package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/finished"
	"github.com/calico-audit/calico-audit/blocks"
)

var nodeBlockLimitReads = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.IPAMConfigs, blocks.Nodes, blocks.Reservations, blocks.Affinities}

var nodeBlockLimit = audit.Check{
	ID:         "node/block-limit",
	Title:      "a node has as many blocks as it may have",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "warning; error if the blocks are full",
	Why:        "At the limit (maxBlocksPerHost; 20 unless set) a node claims no more blocks and does not borrow either. Once its blocks are full, its next pod gets no address.",
	Confirm:    "calicoctl ipam show --show-configuration shows maxBlocksPerHost; calicoctl ipam show --show-blocks shows the node's blocks.",
	Misread:    "A node at its limit often holds many leaked addresses. Compare the number of its addresses with the number of its pods.",
	Remedies:   []remedies.Remedy{remedies.DeleteFinished, remedies.LeaksFirst, remedies.RaiseLimit, remedies.FewerPods, remedies.LargerBlocks},
	Never:      "Never raise the limit just to silence the alert: find the cause of the full blocks first.",
	Requires:   nodeBlockLimitReads,
	Optional:   remedies.RootReads,
	Run: func(st *state.State, f *audit.Findings) {
		alike, restricted := namespacesAlike(st)
		if g := st.FirstMissing([]blocks.Resource{blocks.Namespaces, blocks.Pods}); g != nil && restricted {
			f.Inconclusive("the pools of each namespace were not evaluated: %s", g)
			return
		}
		for _, h := range st.NodeStates {
			if h.Node != nil {
				blockLimitFinding(st, h, alike, f)
			}
		}
	},
}

// blockLimitFinding adds a finding for a host at the limit in any family, with the worse severity.
func blockLimitFinding(st *state.State, h *state.NodeState, alike []string, f *audit.Findings) {
	limit, texts, limited := st.IPAM.BlockLimit(), []string(nil), []*state.Pool(nil)
	x := audit.Finding{Subject: state.NodeSubject(h.Name), Root: remedies.Of(st).RootOfLimit(h)}
	for _, family := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		worst := limitState{}
		for _, s := range limitStates(st, h, family, alike) {
			if s.have >= limit && (s.severity > worst.severity || s.severity == worst.severity && s.have > worst.have) {
				worst = s
			}
		}
		if worst.severity == 0 {
			continue
		}
		if worst.doubt != "" {
			worst.severity, worst.left = state.Warning, "they are full"
			f.SkipPartial("whether the next %s pod on %s gets an address was not evaluated: %s", family, h.Name, worst.doubt)
		}
		x.Severity = max(x.Severity, worst.severity)
		x.Pools, limited = append(x.Pools, state.PoolsOf(worst.pools...)...), append(limited, worst.pools...)
		texts = append(texts, fmt.Sprintf("has as many %s blocks as it may (%d of %d)%s; %s", family, worst.have, limit, worst.who, worst.left))
		x.Evidence = append(x.Evidence, state.Evidences("limit", LimitText(st), family.String()+" blocks", state.CIDRs(worst.blocks),
			family.String()+" unused addresses", worst.unused)...)
	}
	if len(texts) > 0 {
		x.Message = fmt.Sprintf("node %s %s", h.Name, strings.Join(texts, "; it "))
		held, of := finished.Count(st, h.Name)
		if _, unread := st.Missing(blocks.Pods); held > 0 && !unread {
			x.Message += fmt.Sprintf("; finished pods hold %d of its %d addresses", held, of)
			x.Evidence = append(x.Evidence, state.Evidences("addresses of finished pods", held)...)
		}
		if n := remedies.Of(st).LeakedOn(h.Name); n > 0 {
			x.Message += fmt.Sprintf("; leaked addresses: %d", n)
		}
		x.Remedies = remedies.Of(st).LimitRemedies(h.Name, limited)
		x.Evidence = append(x.Evidence, state.Evidences("pods on the node", len(h.Workloads))...)
		f.Add(x)
	}
}

// limitState compares a host with the block limit, for pods that may use the same pools.
type limitState struct {
	pools        []*state.Pool
	blocks       []*state.Block
	have, unused int
	severity     state.Severity
	// who names the pods concerned; empty for all pods of the node. left describes the room that
	// its blocks have left. doubt explains why an error is not certain.
	who, left, doubt string
}

// namespacesAlike returns one namespace of each group that the same pools select, and whether
// some pool does not serve all namespaces.
func namespacesAlike(st *state.State) (out []string, restricted bool) {
	var names []string
	for i := range st.Namespaces {
		names = append(names, st.Namespaces[i].Name)
	}
	if names == nil {
		names = []string{""} // an unknown namespace
	}
	seen := map[string]bool{}
	for _, name := range names {
		key := make([]byte, len(st.Pools))
		for i, p := range st.Pools {
			restricted = restricted || !p.ServesAllNamespaces()
			if p.SelectsNamespace(st.Namespace(name)) {
				key[i] = 1
			}
		}
		if !seen[string(key)] {
			seen[string(key)] = true
			out = append(out, name)
		}
	}
	return out, restricted
}

// limitStates compares a host with the limit of a family, for each set of pools that its pods may
// use. Calico counts only affinities in the pools that a pod may use.
func limitStates(st *state.State, h *state.NodeState, f blocks.Family, alike []string) (out []limitState) {
	n := &state.NodeBlockStatus{Host: h, Family: f}
	add := func(pools []*state.Pool, who string) {
		if slices.ContainsFunc(out, func(s limitState) bool { return slices.Equal(s.pools, pools) }) {
			return
		}
		s := limitState{pools: pools, who: who, have: st.LimitCount(n, pools), severity: state.Warning}
		for _, b := range h.Blocks {
			if b.Usable() && slices.Contains(pools, b.Pool) {
				s.blocks = append(s.blocks, b)
				s.unused += st.Unused(b)
			}
		}
		switch {
		case s.unused > 0:
			s.left = fmt.Sprintf("free addresses in them: %d", s.unused)
		case st.HealsItself(n, pools):
			s.left = "they are full; one more affinity has no block yet, which its next assignment creates"
		default:
			s.severity, s.left, s.doubt = state.Error, "they are full: its next pod gets no address", st.DoubtOf(n)
		}
		out = append(out, s)
	}
	all := st.WorkloadPools(h.Node, f)
	for _, name := range alike {
		mine, who := slices.DeleteFunc(slices.Clone(all), func(p *state.Pool) bool { return !p.SelectsNamespace(st.Namespace(name)) }), ""
		if len(mine) < len(all) && name != "" {
			who = " of those that namespace " + name + " may use"
		}
		add(mine, who)
	}
	for _, w := range h.Workloads {
		if _, asks := st.RequestedPools(w, f); asks && w.Live() {
			add(st.PodPools(w, h.Node, f), " of those that pod "+w.FullName()+" asks for")
		}
	}
	return out
}

// atLimit reports whether a host is known to be at its block limit in a family.
func atLimit(st *state.State, h *state.NodeState, f blocks.Family) bool {
	alike, restricted := namespacesAlike(st)
	if st.FirstMissing(nodeBlockLimitReads) != nil || restricted && st.FirstMissing([]blocks.Resource{blocks.Namespaces, blocks.Pods}) != nil {
		return false
	}
	return slices.ContainsFunc(limitStates(st, h, f, alike), func(s limitState) bool { return s.have >= st.IPAM.BlockLimit() })
}

// LimitText describes the block limit of a node, and where it is set.
func LimitText(st *state.State) string {
	if st.IPAM.MaxBlocksPerHost > 0 {
		return fmt.Sprintf("%d (maxBlocksPerHost)", st.IPAM.MaxBlocksPerHost)
	}
	return fmt.Sprintf("%d (Calico's default)", blocks.DefaultMaxBlocks)
}
