package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

var configBlockStrictAffinity = Check{
	ID:       "config/block-strict-affinity",
	Title:    "blocks carry the deprecated per-block strictAffinity, which Calico ignores",
	Severity: "info",
	Why:      "Somebody may believe that strict affinity is on for these blocks. Calico reads the setting from its IPAM configuration only.",
	Confirm:  "kubectl get ipamblocks -o custom-columns=CIDR:.spec.cidr,STRICT:.spec.strictAffinity",
	Fix:      "Nothing needs to be done; the field may stay. To have strict affinity, set it in the IPAM configuration.",
	Never:    "Never edit blocks for it.",
	Needs:    []blocks.Resource{blocks.Blocks, blocks.IPAMConfigs},
	Run: func(st *State, f *Findings) {
		var marked []string
		for _, b := range st.IPBlocks {
			if b.DeprecatedStrict {
				marked = append(marked, b.CIDR.String())
			}
		}
		if len(marked) == 0 {
			return
		}
		f.Add(Finding{
			Severity: Info, Subject: ConfigSubject(),
			Message:  fmt.Sprintf("strictAffinity: true stands in %s, where Calico ignores it; the setting that counts is %t", Plural(len(marked), "block"), st.IPAM.StrictAffinity),
			Evidence: Evidences("blocks", List(marked), "strictAffinity in the IPAM configuration", fmt.Sprint(st.IPAM.StrictAffinity)),
			Fix:      Fix{"look", "calicoctl ipam show --show-configuration"},
		})
	},
}
