package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockOverlap = audit.Check{
	ID:         "block/overlap",
	Title:      "two blocks overlap",
	Severities: []state.Severity{state.Critical},
	Why: "Calico can assign one address twice, once from each block, so that two pods share it. Overlaps appear if a pool's block " +
		"size is changed while blocks of the old size exist: Calico compares exact CIDRs only.",
	Confirm: "kubectl get ipamblocks -o custom-columns=CIDR:.spec.cidr,OWNER:.spec.affinity",
	Remedies: []remedies.Remedy{
		releaseOverlapping("the empty one of the two blocks", "CIDR"),
		remedies.Restart("move the pods of the block that holds fewer, one controller at a time: annotate them with another pool (cni.projectcalico.org/ipv4pools) and restart them; then release the block",
			"each address has one block"),
	},
	Never:    "Never delete either block while it holds addresses.",
	Requires: []blocks.Resource{blocks.Blocks},
	Optional: state.ReleaseReads,
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			around := st.BlocksAt(b.CIDR)
			if outer := around[:slices.Index(around, b)]; len(outer) > 0 {
				f.Add(overlapFinding(b, outer))
			}
		}
	},
}

// overlapFinding returns the finding for a block that lies inside others.
func overlapFinding(b *state.Block, outer []*state.Block) audit.Finding {
	x := audit.Finding{
		Severity: state.Critical, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{b.Owner.Node()},
		Evidence: state.Evidences("in use", b.Used),
	}
	var with blocks.Names
	for _, o := range outer {
		with = append(with, fmt.Sprintf("%s of %s", o.CIDR, o.Owner))
		x.Pools = append(x.Pools, state.PoolsOf(o.Pool)...)
		x.Nodes = append(x.Nodes, o.Owner.Node())
		x.Evidence = append(x.Evidence, state.Evidences("other block", o.CIDR, "other object", o.Name, "other owner", o.Owner,
			"in use in the other", o.Used, "in use in both", sharedOrdinals(b, o))...)
	}
	// If two objects have the same CIDR, a plan changes neither.
	twins := slices.ContainsFunc(outer, func(o *state.Block) bool { return o.CIDR == b.CIDR })
	for _, e := range append([]*state.Block{b}, outer...) {
		if e.Releasability.OK && !twins {
			x.Remedies = []remedies.Remedy{releaseOverlapping("block "+e.CIDR.String()+", which is empty", e.CIDR.String())}
			break
		}
	}
	x.Message = fmt.Sprintf("block %s of %s overlaps block %s", b.CIDR, b.Owner, with)
	return x
}

// releaseOverlapping releases the unused one of the overlapping blocks. No pod moves.
func releaseOverlapping(what, cidr string) remedies.Remedy {
	return remedies.Repair("release "+what, "--empty-blocks --block "+cidr, "each address has one block", remedies.ReleaseBlock.Risk)
}

// sharedOrdinals counts the addresses that are in use in both blocks.
func sharedOrdinals(inner, outer *state.Block) int {
	n := 0
	for i, o := range inner.Ordinals {
		if o == blocks.Free {
			continue
		}
		if j, ok := outer.Ordinal(inner.Address(i)); ok && outer.Ordinals[j] != blocks.Free {
			n++
		}
	}
	return n
}
