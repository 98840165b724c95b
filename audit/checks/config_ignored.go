package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/blocks"
)

var configIgnored = audit.Check{
	ID:         "config/ignored",
	Title:      "Calico ignores an IPAM configuration that is not named default, or a setting of the FelixConfiguration that the environment of calico-node overrides",
	Severities: []state.Severity{state.Warning},
	Why: "The object suggests settings that are not in effect. Calico reads its IPAM settings only from the object named default, and " +
		"kubectl creates objects with other names, too. Felix prefers environment variables of calico-node (FELIX_…) to its FelixConfiguration (projectcalico/calico#10692).",
	Confirm: "kubectl get ipamconfigs (ipamconfigurations if Calico's CRDs are of the group projectcalico.org); calicoctl ipam show " +
		"--show-configuration prints the settings in effect. The log of calico-node names the source of each of Felix's settings when it starts.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("change the settings in the object named default if they are wanted, then delete the ignored object", "the settings in effect are the only ones",
			"none from the deletion; changed settings take effect immediately in the whole cluster", "calicoctl ipam show --show-configuration"),
		remedies.UnsetVariable("FELIX_…"),
	},
	Never:    "Never delete the object named default: Calico's defaults would replace its settings.",
	Requires: []blocks.Resource{blocks.IPAMConfigs},
	Optional: []blocks.Resource{blocks.FelixConfigs, blocks.Pods, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		for i := range st.IgnoredIPAM {
			c := &st.IgnoredIPAM[i]
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.Subject{Kind: state.KindConfig, Name: c.Name},
				Message:  fmt.Sprintf("IPAM configuration %s has no effect: Calico reads only the one named default", c.Name),
				Evidence: append(state.Evidences("created", c.Created), withoutEffect(c, &st.IPAM)...),
				Remedies: f.Check.Remedies[:1],
			})
		}
		var overrides, variables blocks.Names
		for _, o := range agents.Overrides(st) {
			overrides, variables = append(overrides, o.Text()), append(variables, o.Variable)
		}
		if slices.Sort(variables); len(overrides) > 0 {
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.ClusterSubject(st), Absence: true,
				Message:  "environment variables of calico-node override FelixConfiguration default: " + overrides.String(),
				Remedies: []remedies.Remedy{remedies.UnsetVariable(slices.Compact(variables).String())},
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
