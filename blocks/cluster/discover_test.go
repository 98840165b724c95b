package cluster

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

func TestChooseGroup(t *testing.T) {
	type groups = map[string][]string
	for name, c := range map[string]struct {
		override      string
		served        groups
		group, reason string
	}{
		"older Calico": {
			served: groups{decode.GroupCRD: {"ipamblocks", "ippools"}}, group: decode.GroupCRD, reason: "only crd.projectcalico.org/v1 serves ipamblocks"},
		"with Calico's aggregated API server": {
			served: groups{decode.GroupCRD: {"ipamblocks"}, decode.GroupNative: {"ippools", "blockaffinities"}}, group: decode.GroupCRD, reason: "aggregated API"},
		"native CRDs": {
			served: groups{decode.GroupNative: {"ipamblocks"}}, group: decode.GroupNative, reason: "only projectcalico.org/v3 serves ipamblocks"},
		"native CRDs, a leftover of the older group": {
			served: groups{decode.GroupCRD: {"tiers"}, decode.GroupNative: {"ipamblocks"}}, group: decode.GroupNative,
			reason: "Calico itself reads that unless CALICO_API_GROUP is set"},
		"told to read the newer": {
			override: "ProjectCalico.org/v3", served: groups{decode.GroupCRD: {"ipamblocks"}}, group: decode.GroupNative, reason: "CALICO_API_GROUP is ProjectCalico.org/v3"},
		"told to read the older": {
			override: "crd.projectcalico.org/v1", served: groups{decode.GroupNative: {"ipamblocks"}}, group: decode.GroupCRD, reason: "CALICO_API_GROUP is"},
		"one CRD is missing": {
			served: groups{decode.GroupCRD: {"ippools"}}, group: decode.GroupCRD, reason: "is served, without ipamblocks"},
		"etcd, with Calico's aggregated API server": {
			served: groups{decode.GroupNative: {"ippools"}}, group: decode.GroupNative, reason: "is served, without ipamblocks"},
		"no Calico": {group: decode.GroupCRD, reason: "no API group of Calico is served"},
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
