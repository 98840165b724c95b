package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configIgnored = audit.Check{
	ID:         "config/ignored",
	Title:      "Calico ignores an IPAM configuration that is not named default",
	Severities: []state.Severity{state.Warning},
	Why: "Calico reads its IPAM settings only from the object named default. kubectl creates objects with other names, which " +
		"suggest settings that are not in effect.",
	Confirm: "kubectl get ipamconfigs (ipamconfigurations if Calico's CRDs are of the group projectcalico.org); calicoctl ipam show " +
		"--show-configuration prints the settings in effect.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("change the settings in the object named default if they are wanted, then delete the ignored object", "the settings in effect are the only ones",
			"none from the deletion; changed settings take effect immediately in the whole cluster", "calicoctl ipam show --show-configuration"),
	},
	Never:    "Never delete the object named default: Calico's defaults would replace its settings.",
	Requires: []blocks.Resource{blocks.IPAMConfigs},
	Run: func(st *state.State, f *audit.Findings) {
		for i := range st.IgnoredIPAM {
			c := &st.IgnoredIPAM[i]
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.Subject{Kind: state.KindConfig, Name: c.Name},
				Message:  fmt.Sprintf("IPAM configuration %s has no effect: Calico reads only the one named default", c.Name),
				Evidence: append(state.Evidences("created", c.Created), withoutEffect(c, &st.IPAM)...),
				Remedies: f.Check.Remedies,
			})
		}
	},
}

// withoutEffect lists the settings of an ignored IPAM configuration that differ from those in
// effect.
func withoutEffect(ignored, now *blocks.IPAMConfig) (out []state.Evidence) {
	add := func(name string, has, effective any, text string) {
		if has != effective {
			out = append(out, state.Evidence{Name: name, Value: fmt.Sprintf("%v, but %s is in effect", has, text)})
		}
	}
	limit := fmt.Sprint(now.MaxBlocksPerHost)
	if now.MaxBlocksPerHost == 0 {
		limit = fmt.Sprintf("the default of %d", blocks.DefaultMaxBlocks)
	}
	add("strictAffinity", ignored.StrictAffinity, now.StrictAffinity, fmt.Sprint(now.StrictAffinity))
	add("autoAllocateBlocks", ignored.AutoAllocateBlocks, now.AutoAllocateBlocks, fmt.Sprint(now.AutoAllocateBlocks))
	add("maxBlocksPerHost", ignored.MaxBlocksPerHost, now.MaxBlocksPerHost, limit)
	add("ipCooldownSeconds", ignored.Cooldown.Seconds(), now.Cooldown.Seconds(), fmt.Sprint(now.Cooldown.Seconds()))
	return out
}
