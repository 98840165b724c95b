package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// TestClusterRole: the shipped roles allow listing all resources of an audit in each API
// group. The exporter's role also allows watching them. No role for reading allows anything
// else. "make generate" writes the lists.
func TestClusterRole(t *testing.T) {
	for file, verbs := range map[string][]string{"rbac": {"list"}, "rbac-exporter": {"list", "watch"}, "repair-cronjob": {"list"}} {
		data, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "kubernetes", file, "clusterrole.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(data, &role); err != nil {
			t.Fatal(err)
		}
		may := map[string]bool{} // by API group and resource
		for _, rule := range role.Rules {
			if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 || len(rule.APIGroups) != 1 {
				t.Errorf("%s: unexpected rule %+v", file, rule)
				continue
			}
			if file == "repair-cronjob" && !slices.Contains(rule.Verbs, "list") {
				continue // rules for writing
			}
			if diff := cmp.Diff(verbs, rule.Verbs); diff != "" {
				t.Errorf("%s: verbs of %v (-want +got):\n%s", file, rule.APIGroups, diff)
			}
			for _, r := range rule.Resources {
				may[rule.APIGroups[0]+"/"+r] = true
			}
		}
		for _, k := range decode.Kinds {
			for _, version := range slices.Compact([]string{k.Version(decode.GroupCRD), k.Version(decode.GroupNative)}) {
				gv, err := schema.ParseGroupVersion(version)
				if err != nil {
					t.Fatal(err)
				}
				right := gv.Group + "/" + k.Plural(version)
				if !may[right] {
					t.Errorf("%s/clusterrole.yaml: no rule lists %q of the API group %q", file, k.Plural(version), gv.Group)
				}
				delete(may, right)
			}
		}
		if len(may) > 0 {
			t.Errorf("%s/clusterrole.yaml lists what no audit reads: %v", file, may)
		}
	}
}
