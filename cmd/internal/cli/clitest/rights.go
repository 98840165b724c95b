package clitest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit"
)

// ShippedRole reads the read-only ClusterRole of the examples; root is the repository's
// directory.
func ShippedRole(t *testing.T, root string) *rbacv1.ClusterRole {
	t.Helper()
	path := filepath.Join(root, "examples", "kubernetes", "rbac", "clusterrole.yaml")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(raw, &role); err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
	return &role
}

// rightName returns a right as the report's gaps name it: plural.group.
func rightName(group, resource string) string {
	if group == "" {
		return resource
	}
	return resource + "." + group
}

// RightsOf lists a role's rights on one Calico group, on core resources and on KubeVirt's.
func RightsOf(rules []rbacv1.PolicyRule, calico string) (out []string) {
	calico, _, _ = strings.Cut(calico, "/")
	for _, rule := range rules {
		for _, g := range rule.APIGroups {
			if g != "" && g != calico && g != "kubevirt.io" {
				continue
			}
			for _, r := range rule.Resources {
				out = append(out, rightName(g, r))
			}
		}
	}
	return out
}

// Without returns the rules without some rights.
func Without(rules []rbacv1.PolicyRule, left ...string) (out []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, g := range rule.APIGroups {
			for _, r := range rule.Resources {
				if !slices.Contains(left, rightName(g, r)) {
					out = append(out, rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: []string{g}, Resources: []string{r}})
				}
			}
		}
	}
	return out
}

// Settled runs the report until two runs in a row agree, because the API server needs a
// moment to apply changed rights.
func Settled(t *testing.T, kubeconfig string) Outcome {
	t.Helper()
	var last string
	for range 50 {
		time.Sleep(150 * time.Millisecond)
		got := Run(t, "report", "--kubeconfig", kubeconfig, "-o", "json")
		gaps := "unread"
		if got.Stdout != "" {
			gaps = strings.Join(gapTexts(got.Report(t)), ";")
		}
		if gaps == last {
			return got
		}
		last = gaps
	}
	t.Fatal("the API server's answers did not settle")
	return Outcome{}
}

func gapTexts(r *audit.Report) (out []string) {
	for _, g := range r.Gaps {
		out = append(out, g.String())
	}
	return out
}
