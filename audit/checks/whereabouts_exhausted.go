package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsExhausted = audit.Check{
	ID: "whereabouts/exhausted", Title: "a range of a secondary network has no address left", Severities: []state.Severity{state.Error},
	Why:      "The next pod on the network does not start.",
	Confirm:  "kubectl get ippools.whereabouts.cni.cncf.io POOL -n NAMESPACE -o yaml shows an entry for each address of the range, except its first, its last and those that the network attachment excludes.",
	Misread:  "Excluded addresses are known only from the network attachment. If it was not read, the whole range counts.",
	Remedies: moreAddresses,
	Never:    "Never remove entries of the pool to make room, unless their pods are proven gone.",
	Requires: []blocks.Resource{blocks.WhereaboutsPools}, Optional: []blocks.Resource{blocks.NetworkAttachments, blocks.NodeSlicePools, blocks.Nodes, blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		eachCapacity(st, func(p *whereabouts.Pool, usable, used uint64) {
			if used >= usable {
				f.Add(capacityFinding(st, f, p, usable, used, fmt.Sprintf("pool %s has no address left to assign: %d of %d are in use", p.FullName(), used, usable)))
			}
		})
	},
}

var moreAddresses = []remedies.Remedy{
	remedies.ByHand("look for stranded addresses first; otherwise add a range (ipRanges) or enlarge the range, in the network attachment and in the network itself", "new pods get addresses",
		"the network must route and admit the new addresses; pods that run keep theirs", "calico-audit report --check whereabouts"),
	remedies.ByHand("delete the finished pods that hold addresses of the range, and let their Jobs delete them (ttlSecondsAfterFinished)", "Whereabouts frees their addresses", "the pods' logs are gone", "calico-audit report --check whereabouts"),
}

// eachCapacity calls fn for each pool with a known size.
func eachCapacity(st *state.State, fn func(p *whereabouts.Pool, usable, used uint64)) {
	for _, p := range whereabouts.Of(st).SecondaryPools {
		if usable, used, ok := p.Capacity(); ok {
			fn(p, usable, used)
		}
	}
}

func capacityFinding(st *state.State, f *audit.Findings, p *whereabouts.Pool, usable, used uint64, message string) audit.Finding {
	by := moreAddresses[:1]
	if ended := whereabouts.Of(st).Ended(p); len(ended) > 0 {
		message += fmt.Sprintf(", %d of them recorded for finished pods (%s)", len(ended), slices.Compact(ended))
		by = []remedies.Remedy{moreAddresses[1], moreAddresses[0]}
	}
	return audit.Finding{
		Severity: f.Check.Severities[0], Subject: poolSubject(p), Message: message, Remedies: by, Pools: []string{p.FullName()},
		Evidence: state.Evidences("range", p.RangeText, "addresses", usable, "in use", used, "node", p.Node),
	}
}
