package audit

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

var poolOverlap = Check{
	ID:       "pool/overlap",
	Title:    "two pools overlap",
	Severity: "error, or warning where Calico marks one of them not allocatable",
	Why: "Where the block sizes differ, one address may be handed out twice; " +
		"and encapsulation, NAT and selectors of an address depend on which of the two pools is looked at.",
	Confirm: "kubectl get ippools -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr",
	Misread: "Calico v3.32 and newer accept overlapping pools and use only one of them: see the pool's Allocatable condition.",
	Fix:     "Disable one of the two, let its pods move by restarting them, and delete it when nothing uses it any more.",
	Never:   "Never delete a pool whose addresses are in use: their blocks then belong to the other pool.",
	Needs:   []blocks.Resource{blocks.Pools},
	Run: func(st *State, f *Findings) {
		for i, later := range st.Pools {
			var others []*Pool
			for _, earlier := range st.Pools[:i] {
				if later.CIDR.Overlaps(earlier.CIDR) {
					others = append(others, earlier)
				}
			}
			if len(others) > 0 {
				f.Add(poolOverlapFinding(later, others))
			}
		}
	},
}

// poolOverlapFinding makes the finding of a pool that overlaps others; it is settled
// where Calico allocates from all but one of each two.
func poolOverlapFinding(later *Pool, others []*Pool) Finding {
	sev := Warning
	var with, sizes, settled []string
	for _, o := range others {
		with = append(with, fmt.Sprintf("%s (%s)", o.Name, o.CIDR))
		sizes = append(sizes, fmt.Sprintf("/%d in %s", o.BlockSize, o.Name))
		switch {
		case later.NotAllocatable != "":
			settled = append(settled, fmt.Sprintf("Calico does not allocate from %s (%s)", later.Name, later.NotAllocatable))
		case o.NotAllocatable != "":
			settled = append(settled, fmt.Sprintf("Calico does not allocate from %s (%s)", o.Name, o.NotAllocatable))
		default:
			sev = Error
		}
	}
	return Finding{
		Severity: sev, Subject: PoolSubject(later), Pools: append(poolsOf(later), poolsOf(others...)...),
		Message: fmt.Sprintf("pool %s (%s) overlaps pool %s", later.Name, later.CIDR, List(with)),
		Evidence: Evidences("other pools", List(with), "block sizes", fmt.Sprintf("/%d here, %s", later.BlockSize, List(sizes)),
			"settled", List(slices.Compact(settled))),
		Fix: Fix{"manual", fmt.Sprintf("set disabled: true on one of %s and %s, and restart the pods that use it", later.Name, List(poolsOf(others...)))},
	}
}
