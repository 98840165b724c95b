package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolOverlap = audit.Check{
	ID:         "pool/overlap",
	Title:      "two pools overlap",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error; warning if Calico marks one of them not allocatable",
	Why: "If the block sizes differ, one address may be assigned twice. Encapsulation, NAT and selectors of an address depend on " +
		"which of the two pools a component picks.",
	Confirm: "kubectl get ippools -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr",
	Misread: "Calico v3.32 and newer accept overlapping pools and use only one of them: see the pool's Allocatable condition.",
	Remedies: []remedies.Remedy{
		remedies.Restart("set disabled: true on one of the two pools, but not on one of Tigera's operator, restart the pods that use it, and when no pod does, delete it without Calico's API server: "+
			"kubectl delete ippools.crd.projectcalico.org NAME (ippools.projectcalico.org only where Calico's CRDs are of that group)",
			"each address has one pool; calicoctl, and kubectl through Calico's API server, would release the other pool's blocks in its CIDR, too"),
	},
	Never:    "Never delete a pool whose addresses are in use: its blocks would belong to the other pool.",
	Requires: []blocks.Resource{blocks.Pools},
	Run: func(st *state.State, f *audit.Findings) {
		for i, later := range st.Pools {
			var others []*state.Pool
			for _, earlier := range st.Pools[:i] {
				if later.CIDR.Overlaps(earlier.CIDR) {
					others = append(others, earlier)
				}
			}
			if len(others) > 0 {
				x := poolOverlapFinding(later, others)
				x.Remedies = f.Check.Remedies
				f.Add(x)
			}
		}
	},
}

// poolOverlapFinding returns the finding for a pool that overlaps others. An overlap is settled
// if Calico does not allocate from one of the two pools.
func poolOverlapFinding(later *state.Pool, others []*state.Pool) audit.Finding {
	sev := state.Warning
	var with, sizes, settled blocks.Names
	for _, o := range others {
		with = append(with, fmt.Sprintf("%s (%s)", o.Name, o.CIDR))
		sizes = append(sizes, fmt.Sprintf("/%d in %s", o.BlockSize, o.Name))
		switch {
		case later.NotAllocatable != "":
			settled = append(settled, fmt.Sprintf("Calico does not allocate from %s (%s)", later.Name, later.NotAllocatable))
		case o.NotAllocatable != "":
			settled = append(settled, fmt.Sprintf("Calico does not allocate from %s (%s)", o.Name, o.NotAllocatable))
		default:
			sev = state.Error
		}
	}
	return audit.Finding{
		Severity: sev, Subject: state.PoolSubject(later), Pools: append(state.PoolsOf(later), state.PoolsOf(others...)...),
		Message: fmt.Sprintf("pool %s (%s) overlaps pool %s", later.Name, later.CIDR, with),
		Evidence: state.Evidences("other pools", with, "block sizes", fmt.Sprintf("/%d here, %s", later.BlockSize, sizes),
			"settled", slices.Compact(settled)),
	}
}
