package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolNonCanonical = audit.Check{
	ID:         "pool/non-canonical",
	Title:      "a pool's CIDR has host bits set",
	Severities: []state.Severity{state.Warning},
	Why: "Calico's IPAM uses the network that contains the CIDR, which may be more addresses than the author meant. calicoctl and " +
		"Calico's API server reject every change of such a pool (\"IPPool CIDR is not strictly masked\"); kubectl on the CRDs " +
		"accepts it.",
	Confirm:  "kubectl get ippools -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr",
	Remedies: []remedies.Remedy{remedies.MaskPool},
	Never:    "Never delete the pool to correct its CIDR: its addresses are in use.",
	Requires: []blocks.Resource{blocks.Pools},
	Run: func(st *state.State, f *audit.Findings) {
		for _, p := range st.Pools {
			if !p.Unmasked.IsValid() {
				continue
			}
			fix := f.Check.Remedies[0]
			fix.Commands = []string{remedies.Shell("kubectl get ippools %s -o yaml", p.Name)}
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p),
				Message:  fmt.Sprintf("pool %s has the CIDR %s, which has host bits set: Calico uses %s", p.Name, p.Unmasked, p.CIDR),
				Evidence: state.Evidences("spec.cidr", p.Unmasked, "network in use", p.CIDR),
				Remedies: []remedies.Remedy{fix},
			})
		}
	},
}
