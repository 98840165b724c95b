package live_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestOddRights: if rights hide a part of the cluster, gaps name the right. They cause no new error
// and no step, and a report is complete only if it equals that of the whole cluster.
func TestOddRights(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	rule := func(verbs, group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: strings.Split(verbs, ",")}
	}
	calico := func(resources ...string) rbacv1.PolicyRule {
		return rule("list", "crd.projectcalico.org", resources...)
	}
	named := rule("get,list", "", "pods", "nodes")
	named.ResourceNames = []string{"old-1"}
	rights := map[string][]rbacv1.PolicyRule{
		"list without get":        {rule("list", "", "*"), calico("*")},
		"get without list":        {rule("get", "", "*"), rule("get", "crd.projectcalico.org", "*")},
		"no nodes":                {rule("list", "", "pods", "namespaces"), calico("*")},
		"no pods":                 {rule("list", "", "nodes", "namespaces"), calico("*")},
		"pods of one namespace":   {rule("list", "", "nodes", "namespaces"), calico("*")}, // and a Role
		"objects by name":         {named, calico("*")},
		"Kubernetes' kinds only":  {rule("list", "", "*")},
		"Calico's kinds only":     {calico("*")},
		"blocks only":             {calico("ipamblocks")},
		"no settings":             {rule("list", "", "*"), calico("ippools", "ipamblocks", "blockaffinities", "ipamhandles", "clusterinformations")},
		"no handles, no affinity": {rule("list", "", "*"), calico("ippools", "ipamblocks", "ipamconfigs", "bgpconfigurations", "bgppeers", "bgpfilters", "clusterinformations", "ipreservations", "felixconfigurations", "kubecontrollersconfigurations")},
		"none":                    nil,
	}
	user := func(name string) string { return "odd " + name }
	for name, rules := range rights {
		if err := c.Allow(t.Context(), user(name), rules...); err != nil {
			t.Fatal(err)
		}
	}
	shop := metav1.ObjectMeta{Name: "odd", Namespace: "shop"}
	_, err := c.Kube.RbacV1().Roles("shop").Create(t.Context(), &rbacv1.Role{ObjectMeta: shop, Rules: []rbacv1.PolicyRule{rule("get,list,watch", "", "pods")}}, metav1.CreateOptions{})
	if err == nil {
		_, err = c.Kube.RbacV1().RoleBindings("shop").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: shop, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "odd"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user("pods of one namespace")}}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	plans := []string{"repair", "-o", "json", "--empty-blocks", "--orphan-affinities", "--missing-affinities", "--leaked-ips", "--leaked-handles", "--missing-handles", "--unrecorded-ips", "--dead-nodes", "--without-host-evidence"}
	severities, steps := map[string]state.Severity{}, map[string]bool{}
	for _, f := range clitest.RunOn(t, c, "report", "-o", "json").Report(t).Findings {
		severities[f.Fingerprint] = f.Severity
	}
	for _, s := range clitest.RunOn(t, c, plans...).Plan(t).Steps {
		steps[s.ID] = true
	}
	for _, name := range slices.Sorted(maps.Keys(rights)) {
		t.Run(name, func(t *testing.T) {
			kubeconfig, err := c.UserKubeconfig(user(name))
			if err != nil {
				t.Fatal(err)
			}
			got := clitest.Settled(t, kubeconfig)
			if name == "list without get" {
				if got.Code != exit.CodeOK || !got.Report(t).Complete {
					t.Errorf("exit code %d, %s", got.Code, got.Err)
				}
				return
			}
			if got.Code != exit.CodeUnread {
				t.Errorf("exit code %d: %s", got.Code, got.Err)
			}
			if got.Stdout == "" {
				t.Log(got.Err)
				if !strings.Contains(got.Err, "forbidden") && !strings.Contains(got.Err, "right to list") {
					t.Errorf("the error does not say why: %s", got.Err)
				}
				return
			}
			r := got.Report(t)
			t.Logf("complete %t, %d findings, gaps %v", r.Complete, len(r.Findings), r.Gaps)
			if r.Complete || len(r.Gaps) == 0 {
				t.Errorf("complete %t, gaps %v", r.Complete, r.Gaps)
			}
			for _, f := range r.Findings {
				if whole, known := severities[f.Fingerprint]; f.Severity >= state.Error && (!known || whole < f.Severity) {
					t.Errorf("new: %s %s", f.Check, f.Message)
				}
			}
			if p := clitest.Run(t, append(plans, "--kubeconfig", kubeconfig)...); p.Stdout != "" {
				for _, s := range p.Plan(t).Steps {
					if !steps[s.ID] {
						t.Errorf("new step %s: %s", s.ID, s.Because)
					}
				}
			}
		})
	}

	// The older group's schema accepts an IPAMConfig without spec, but not an empty one. Calico
	// then reads every setting as false, so this is a finding and not a gap as in a dump.
	config := testcluster.CRDv1.Resource("ipamconfigs")
	if err := c.Edit(t.Context(), config, "", "default", func(o map[string]any) { o["spec"] = map[string]any{} }); err == nil {
		t.Error("the API server accepts an empty spec")
	}
	if err := c.Edit(t.Context(), config, "", "default", func(o map[string]any) { delete(o, "spec") }); err != nil {
		t.Fatal(err)
	}
	r := clitest.RunOn(t, c, "report", "-o", "json").Report(t)
	if got := clitest.Findings(r, "config/strict-affinity"); !r.Complete || len(got) != 1 || got[0].Severity != state.Error || !strings.Contains(got[0].Message, "automatic blocks must be on") {
		t.Errorf("complete %t, gaps %v, %+v", r.Complete, r.Gaps, got)
	}
}
