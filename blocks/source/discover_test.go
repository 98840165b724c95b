package source

import (
	"strings"
	"testing"
)

func TestChooseGroup(t *testing.T) {
	type groups = map[string][]string
	for name, c := range map[string]struct {
		override      string
		served        groups
		group, reason string
	}{
		"older Calico": {
			served: groups{groupCRD: {"ipamblocks", "ippools"}}, group: groupCRD, reason: "only crd.projectcalico.org/v1 serves ipamblocks"},
		"with Calico's aggregated API server": {
			served: groups{groupCRD: {"ipamblocks"}, groupNative: {"ippools", "blockaffinities"}}, group: groupCRD, reason: "aggregated API"},
		"native CRDs": {
			served: groups{groupNative: {"ipamblocks"}}, group: groupNative, reason: "only projectcalico.org/v3 serves ipamblocks"},
		"migration": {
			served: groups{groupCRD: {"ipamblocks"}, groupNative: {"ipamblocks"}}, group: groupCRD, reason: "both API groups serve ipamblocks"},
		"native CRDs, a leftover of the older group": {
			served: groups{groupCRD: {"tiers"}, groupNative: {"ipamblocks"}}, group: groupNative,
			reason: "Calico itself reads that unless CALICO_API_GROUP is set"},
		"told to read the newer": {
			override: "ProjectCalico.org/v3", served: groups{groupCRD: {"ipamblocks"}}, group: groupNative, reason: "CALICO_API_GROUP is ProjectCalico.org/v3"},
		"told to read the older": {
			override: "crd.projectcalico.org/v1", served: groups{groupNative: {"ipamblocks"}}, group: groupCRD, reason: "CALICO_API_GROUP is"},
		"one CRD is missing": {
			served: groups{groupCRD: {"ippools"}}, group: groupCRD, reason: "is served, without ipamblocks"},
		"etcd, with Calico's aggregated API server": {
			served: groups{groupNative: {"ippools"}}, group: groupNative, reason: "is served, without ipamblocks"},
		"no Calico": {group: groupCRD, reason: "no API group of Calico is served"},
	} {
		t.Run(name, func(t *testing.T) {
			have, plurals := map[string]bool{}, map[string]map[string]bool{}
			for group, resources := range c.served {
				have[group], plurals[group] = true, map[string]bool{}
				for _, r := range resources {
					plurals[group][r] = true
				}
			}
			group, reason := chooseGroup(c.override, have, plurals)
			if group != c.group || !strings.Contains(reason, c.reason) {
				t.Errorf("got %s because %q, want %s because %q", group, reason, c.group, c.reason)
			}
		})
	}
}
