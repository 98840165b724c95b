package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "block/overlap",
		Title:    "two blocks overlap",
		Severity: "critical",
		Why: "One address can be handed out twice, once from each block, and two pods then share it. " +
			"It comes about when a pool's block size is changed while blocks of the old size exist: Calico compares exact CIDRs only.",
		Confirm: "kubectl get ipamblocks.crd.projectcalico.org -o custom-columns=CIDR:.spec.cidr,OWNER:.spec.affinity",
		Fix:     "Keep new pods off both blocks (cordon their owners), restart the pods of one so that they move to another pool, and release that block once it is empty.",
		Never:   "Never delete either block while it holds addresses.",
		Needs:   []blocks.Resource{blocks.Blocks},
		Run: func(st *State, f *Findings) {
			var open []*Block // blocks that reach to where we are, outermost first
			for _, b := range st.IPBlocks {
				for len(open) > 0 && !open[len(open)-1].CIDR.Overlaps(b.CIDR) {
					open = open[:len(open)-1]
				}
				for _, outer := range open {
					f.Add(Finding{
						Severity: Critical, Subject: blockSubject(b), Pools: poolsOf(b.Pool, outer.Pool), Nodes: []string{b.Owner.Node(), outer.Owner.Node()},
						Message: fmt.Sprintf("block %s of %s overlaps block %s of %s", b.CIDR, ownerText(b.Owner), outer.CIDR, ownerText(outer.Owner)),
						Evidence: Evidences("other block", outer.CIDR.String(), "other object", outer.Name, "other owner", ownerText(outer.Owner),
							"in use", fmt.Sprint(b.Used), "in use in the other", fmt.Sprint(outer.Used), "in use in both", fmt.Sprint(sharedOrdinals(b, outer))),
						Fix: Fix{"look", "calico-audit explain " + b.CIDR.String()},
					})
				}
				open = append(open, b)
			}
		},
	})
}

// sharedOrdinals counts the addresses that both blocks have in use.
func sharedOrdinals(inner, outer *Block) int {
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
