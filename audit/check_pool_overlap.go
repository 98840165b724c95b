package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "pool/overlap",
		Title:    "two pools overlap",
		Severity: "error, or warning where Calico marks one of them not allocatable",
		Why: "Where the block sizes differ, one address may be handed out twice; " +
			"and encapsulation, NAT and selectors of an address depend on which of the two pools is looked at.",
		Confirm: "kubectl get ippools.crd.projectcalico.org -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr",
		Misread: "Calico v3.32 and newer accept overlapping pools and use only one of them: see the pool's Allocatable condition.",
		Fix:     "Disable one of the two, let its pods move by restarting them, and delete it when nothing uses it any more.",
		Never:   "Never delete a pool whose addresses are in use: their blocks then belong to the other pool.",
		Needs:   []blocks.Resource{blocks.Pools},
		Run: func(st *State, f *Findings) {
			for i, later := range st.Pools {
				for _, earlier := range st.Pools[:i] {
					if !later.CIDR.Overlaps(earlier.CIDR) {
						continue
					}
					sev, settled := Error, ""
					for _, p := range []*Pool{earlier, later} {
						if p.NotAllocatable != "" {
							sev, settled = Warning, fmt.Sprintf("Calico does not allocate from %s (%s)", p.Name, p.NotAllocatable)
						}
					}
					f.Add(Finding{
						Severity: sev, Subject: poolSubject(later), Pools: poolsOf(earlier, later),
						Message: fmt.Sprintf("pool %s (%s) overlaps pool %s (%s)", later.Name, later.CIDR, earlier.Name, earlier.CIDR),
						Evidence: Evidences("other pool", earlier.Name, "other CIDR", earlier.CIDR.String(),
							"block sizes", fmt.Sprintf("/%d and /%d", earlier.BlockSize, later.BlockSize), "settled", settled),
						Fix: Fix{"manual", fmt.Sprintf("set disabled: true on one of %s and %s, and restart the pods that use it", earlier.Name, later.Name)},
					})
				}
			}
		},
	})
}
