package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configStrictAffinity = audit.Check{
	ID:         "config/strict-affinity",
	Title:      "strict affinity is off although the cluster needs it, on while nodes cannot allocate, or in a combination that Calico rejects",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error for a combination that Calico rejects and for Windows nodes; else warning",
	Why:        "Strict affinity matters when no block is left. Without it, a node then borrows single addresses from other nodes' blocks; with it, the node's pods get no address. The setting in the object named \"default\" covers the whole cluster and takes effect immediately, for existing blocks too. Borrowed addresses stay borrowed until their pods restart.",
	Confirm:    "calicoctl ipam show --show-configuration, or kubectl get ipamconfigs (ipamconfigurations in the newer API group) default -o yaml",
	Misread:    "\"I turned it on and nothing changed\": it only stops new borrowing. \"I set it on the block\": Calico ignores the field of the same name in blocks.",
	Remedies:   []remedies.Remedy{remedies.SetStrict, remedies.UnsetStrict},
	Verify:     "New pods of every node get addresses from blocks of their own node.",
	Never:      "Never turn it on while nodes have no block and none is left: their next pods get no address. Never turn it off with Windows nodes.",
	Requires:   []blocks.Resource{blocks.IPAMConfigs},
	Optional:   slices.Concat(state.BlockStatusReads, blackholeReads),
	Run: func(st *state.State, f *audit.Findings) {
		for _, part := range strictParts {
			if g := st.FirstMissing(part.needs); g != nil {
				f.Inconclusive("%s: %s", part.subject, g)
				continue
			}
			if x := part.evaluate(st); x != nil {
				x.Subject = state.ConfigSubject()
				x.Evidence = append(x.Evidence, state.Evidences(
					"strictAffinity", st.IPAM.StrictAffinity, "autoAllocateBlocks", st.IPAM.AutoAllocateBlocks,
					"maxBlocksPerHost", st.IPAM.MaxBlocksPerHost, "object", presentText(st))...)
				f.Add(*x)
				return
			}
		}
	},
}

// strictParts are the parts of the check, most severe first. Only the first part with a finding
// is reported.
var strictParts = []struct {
	subject  string
	needs    []blocks.Resource
	evaluate func(*state.State) *audit.Finding
}{
	{"", nil, rejectedCombination},
	{"whether Windows nodes need strict affinity was not evaluated", []blocks.Resource{blocks.Nodes}, windowsRequiresStrict},
	{"whether nodes can allocate is not known", state.BlockStatusReads, strictCutsOff},
	{"whether owners drop traffic to borrowed addresses was not evaluated",
		append([]blocks.Resource{blocks.BGPConfigs, blocks.BGPPeers, blocks.FelixConfigs}, state.BlockStatusReads...), blackholesRequireStrict},
}

// blackholeReads are the reads, besides state.BlockStatusReads, that show whether owners drop
// traffic to borrowed addresses and whether the allocator takes empty blocks.
var blackholeReads = []blocks.Resource{blocks.BGPConfigs, blocks.BGPPeers, blocks.BGPFilters, blocks.FelixConfigs, blocks.ClusterInfos}

func presentText(st *state.State) string {
	if st.IPAM.Present {
		return "IPAMConfig default"
	}
	return "none: Calico's defaults hold"
}

// rejectedCombination finds settings that SetIPAMConfig rejects (libcalico-go ipam/ipam.go). Only
// a client that bypasses it can have written them.
func rejectedCombination(st *state.State) *audit.Finding {
	why := st.IPAM.Rejected()
	if why == "" {
		return nil
	}
	return &audit.Finding{
		Severity: state.Error, Message: "Calico rejects this combination of IPAM settings: " + why,
		Remedies: remedies.Of(st).StrictRemedies(),
	}
}

// windowsRequiresStrict finds Windows nodes without strict affinity. Calico refuses to assign
// addresses on them.
func windowsRequiresStrict(st *state.State) *audit.Finding {
	if st.IPAM.StrictAffinity {
		return nil
	}
	var windows blocks.Names
	for _, h := range st.NodeStates {
		if h.Node != nil && h.Node.Windows {
			windows = append(windows, h.Name)
		}
	}
	if len(windows) == 0 {
		return nil
	}
	return &audit.Finding{
		Severity: state.Error, Nodes: windows, Message: fmt.Sprintf("strict affinity is off, and Windows nodes need it on: %s", windows),
		Evidence: state.Evidences("Windows nodes", windows),
		Remedies: remedies.Of(st).StrictRemedies(),
	}
}

// strictCutsOff finds nodes that cannot get addresses because of strict affinity.
func strictCutsOff(st *state.State) *audit.Finding {
	if !st.IPAM.StrictAffinity {
		return nil
	}
	var blockless blocks.Names
	root := ""
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if h.Schedulable && n.Unused == 0 && n.Cause == state.CauseStrict && st.DoubtOf(n) == "" {
				blockless, root = append(blockless, h.Name), cmp.Or(root, remedies.Of(st).RootOfNode(n))
				break
			}
		}
	}
	if len(blockless) == 0 {
		return nil
	}
	return &audit.Finding{
		Absence: true, Severity: state.Warning, Nodes: blockless,
		Message:  fmt.Sprintf("strict affinity is on, and nodes without a free address of their own can neither claim a block nor borrow: %s", blockless),
		Evidence: state.Evidences("nodes that cannot allocate", blockless, "waiting pods", waitingOn(st, blockless)),
		Root:     root,
	}
}

// waitingOn lists the pods of the given nodes that wait for an address.
func waitingOn(st *state.State, nodes []string) blocks.Names {
	var out []string
	for _, name := range nodes {
		for _, w := range st.NodeState(name).Workloads {
			if w.Waiting() {
				out = append(out, w.FullName())
			}
		}
	}
	return out
}

// blackholesRequireStrict finds clusters where nodes borrow addresses that then do not work.
func blackholesRequireStrict(st *state.State) *audit.Finding {
	if st.IPAM.StrictAffinity {
		return nil
	}
	dropped, example := map[*state.Pool]int{}, map[*state.Pool]*state.Borrow{}
	for _, b := range st.Borrows {
		if b.Block.Pool != nil && st.Predict(b).Outcome == affinity.Dropped {
			if dropped[b.Block.Pool]++; example[b.Block.Pool] == nil {
				example[b.Block.Pool] = b
			}
		}
	}
	var concerned, reasons blocks.Names
	total := 0
	for _, p := range st.Pools {
		if n := dropped[p]; n > 0 {
			total += n
			concerned = append(concerned, fmt.Sprintf("%s (%d borrowed)", p.Name, n))
			reasons = append(reasons, fmt.Sprintf("%s: %s, such as %s: %s", p.Name, forecastText(st, p), example[p].Addr, st.Predict(example[p]).Reason))
		}
	}
	if total == 0 {
		return nil
	}
	return &audit.Finding{
		Severity: state.Warning, Root: remedies.Of(st).RootOfDropped(),
		Message: fmt.Sprintf("strict affinity is off, so nodes borrow, and in this topology the owner of a block drops traffic to borrowed addresses: %s", concerned),
		Evidence: state.Evidences("topology", strings.Join(reasons, "; "),
			"scope", "the setting takes effect immediately in the whole cluster; strictAffinity in a block is ignored",
			"existing addresses", fmt.Sprintf("stay borrowed until their pods restart: %d", total),
			"nodes that could not allocate then", remedies.Of(st).WouldNotAllocate()),
		Remedies: remedies.Of(st).StrictRemedies(),
	}
}

// forecastText counts the pairs of the pool's nodes between which borrowing does not work.
func forecastText(st *state.State, p *state.Pool) string {
	switch o := st.Forecast(p); {
	case o.AllDropped():
		return "each owner drops traffic to addresses that other nodes of the pool borrow"
	case !o.Whole:
		return "owners drop traffic to addresses that some other nodes borrow"
	default:
		return fmt.Sprintf("owners drop traffic in %d of %d pairs of the pool's nodes", o.Dropped, o.Dropped+o.Delivered+o.Unknown)
	}
}
