package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configBlockStrictAffinity = audit.Check{
	ID:         "config/block-strict-affinity",
	Title:      "blocks carry the deprecated per-block strictAffinity, which Calico ignores",
	Severities: []state.Severity{state.Info},
	Why: "The field suggests that strict affinity is on for these blocks. Calico reads the setting only from its IPAM " +
		"configuration.",
	Confirm: "kubectl get ipamblocks -o custom-columns=CIDR:.spec.cidr,STRICT:.spec.strictAffinity",
	Remedies: []remedies.Remedy{
		remedies.ByHand("leave the field as it is; to change strict affinity, change the IPAM configuration", "none: Calico ignores the field", "none"),
	},
	Never:    "Never edit blocks to change strict affinity.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.IPAMConfigs},
	Run: func(st *state.State, f *audit.Findings) {
		var marked []string
		for _, b := range st.IPBlocks {
			if b.DeprecatedStrict {
				marked = append(marked, b.CIDR.String())
			}
		}
		if len(marked) == 0 {
			return
		}
		f.Add(audit.Finding{
			Severity: state.Info, Subject: state.ConfigSubject(),
			Message:  fmt.Sprintf("Calico ignores strictAffinity: true in blocks (%d); the IPAM configuration says %t", len(marked), st.IPAM.StrictAffinity),
			Evidence: state.Evidences("blocks", marked, "strictAffinity in the IPAM configuration", st.IPAM.StrictAffinity),
			Fix:      audit.Look("calicoctl ipam show --show-configuration"),
		})
	},
}
