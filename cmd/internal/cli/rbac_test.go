package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestClusterRole: the role that ships with the examples allows to list what an
// audit reads, in each API group, and nothing beyond.
func TestClusterRole(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "kubernetes", "rbac", "clusterrole.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(data, &role); err != nil {
		t.Fatal(err)
	}
	foreign := map[blocks.Resource]string{
		blocks.VMs: "kubevirt.io", blocks.VMInstances: "kubevirt.io", blocks.NetworkAttachments: "k8s.cni.cncf.io",
		blocks.WhereaboutsPools: "whereabouts.cni.cncf.io", blocks.WhereaboutsReservations: "whereabouts.cni.cncf.io", blocks.NodeSlicePools: "whereabouts.cni.cncf.io",
	}
	core := []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Namespaces}
	want := map[string][]string{}
	for _, r := range blocks.Resources {
		if slices.Contains(core, r) {
			want[""] = append(want[""], string(r))
			continue
		}
		if group := foreign[r]; group != "" {
			plural, _, _ := strings.Cut(string(r), ".")
			want[group] = append(want[group], plural)
			continue
		}
		want["crd.projectcalico.org"] = append(want["crd.projectcalico.org"], string(r))
		if r == blocks.IPAMConfigs {
			r = "ipamconfigurations"
		}
		want["projectcalico.org"] = append(want["projectcalico.org"], string(r))
	}
	got := map[string][]string{}
	for _, rule := range role.Rules {
		if diff := cmp.Diff([]string{"list"}, rule.Verbs); diff != "" {
			t.Errorf("verbs of %v (-want +got):\n%s", rule.APIGroups, diff)
		}
		if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 || len(rule.APIGroups) != 1 {
			t.Errorf("unexpected rule %+v", rule)
			continue
		}
		got[rule.APIGroups[0]] = append(got[rule.APIGroups[0]], rule.Resources...)
	}
	for _, m := range []map[string][]string{want, got} {
		for _, resources := range m {
			slices.Sort(resources)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources that may be listed (-what an audit reads +the role):\n%s", diff)
	}
}
