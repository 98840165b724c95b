package datastore_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// rulesIn returns the rules of a directory's ClusterRole and, if it has one, its Role.
func rulesIn(t *testing.T, directory string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, name := range []string{"clusterrole.yaml", "role.yaml"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "examples", "kubernetes", directory, name))
		if name == "role.yaml" && os.IsNotExist(err) {
			continue
		}
		must(t, err)
		role := &rbacv1.Role{}
		must(t, yaml.UnmarshalStrict(data, role))
		rules = append(rules, role.Rules...)
	}
	return rules
}

// TestClusterRole checks that the examples grant exactly the rights of the steps and
// their undo, in each API group.
func TestClusterRole(t *testing.T) {
	moving := []repair.Kind{repair.ReserveBlock, repair.UnreserveBlock, repair.CordonNode, repair.UncordonNode, repair.EvictPod}
	for directory, is := range map[string]bool{"rbac-repair": false, "rbac-repair-consolidate": true} {
		t.Run(directory, func(t *testing.T) {
			sumOfRights(t, rulesIn(t, directory), func(k repair.Kind) bool { return slices.Contains(moving, k) == is })
		})
	}
	// The CronJob's role also has the rules of a report, which only list.
	t.Run("repair-cronjob", func(t *testing.T) {
		writes := slices.DeleteFunc(rulesIn(t, "repair-cronjob"), func(r rbacv1.PolicyRule) bool { return slices.Equal(r.Verbs, []string{"list"}) })
		sumOfRights(t, writes, func(k repair.Kind) bool { return k == repair.ReleaseBlock })
	})
}

// sumOfRights compares rules with the rights of some kinds of step.
func sumOfRights(t *testing.T, rules []rbacv1.PolicyRule, of func(repair.Kind) bool) {
	t.Helper()
	want := map[string][]string{}
	for _, kind := range planner.Kinds() {
		for _, n := range slices.Concat(kind.Rights, kind.UndoRights) {
			if !of(kind.Kind) {
				continue
			}
			if group, core := datastore.CoreGroups[n.Resource]; core {
				plural, _, _ := strings.Cut(string(n.Resource), ".")
				want[plural+"."+group] = append(want[plural+"."+group], n.Verbs...)
				continue
			}
			native := string(n.Resource)
			if n.Resource == blocks.IPAMConfigs {
				native = "ipamconfigurations"
			}
			want[string(n.Resource)+".crd.projectcalico.org"] = append(want[string(n.Resource)+".crd.projectcalico.org"], n.Verbs...)
			want[native+".projectcalico.org"] = append(want[native+".projectcalico.org"], n.Verbs...)
		}
	}
	got := map[string][]string{}
	for _, rule := range rules {
		named := slices.Equal(rule.ResourceNames, []string{repair.LeaseName}) && slices.Equal(rule.Resources, []string{"leases"})
		if len(rule.ResourceNames) > 0 && !named || len(rule.NonResourceURLs) > 0 {
			t.Errorf("unexpected rule %+v", rule)
		}
		if slices.Contains(rule.Resources, "leases") && !named && !slices.Equal(rule.Verbs, []string{"create"}) { // which cannot be named
			t.Errorf("a rule about any Lease of its namespace: %+v", rule)
		}
		for _, group := range rule.APIGroups {
			for _, r := range rule.Resources {
				got[r+"."+group] = append(got[r+"."+group], rule.Verbs...)
			}
		}
	}
	for _, m := range []map[string][]string{want, got} {
		for r, verbs := range m {
			slices.Sort(verbs)
			m[r] = slices.Compact(verbs)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rights (-what steps need +the role):\n%s", d)
	}
}

// as returns a writer with a user's credentials.
func (w *world) as(user string) *datastore.Writer {
	w.Helper()
	cfg, err := w.UserConfig(user)
	must(w.T, err)
	cfg.Wrap(testcluster.Conditional(w.T))
	k, err := datastore.New(cfg, string(w.group), datastore.Options{})
	must(w.T, err)
	return k.Impatient()
}

// TestRights checks that each step works with exactly the example's rights. If all or a
// single one of its rights are missing, MissingRights must name them.
func TestRights(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		rules := exampleRules(t)
		must(t, w.Allow(t.Context(), "repairer", rules...))
		for _, s := range steps {
			w.restoreFor(s)
			w.missing("repairer", s.kind)
			if err := s.do(w, w.as("repairer")); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
		missing, err := w.as("repairer").MissingRights(t.Context(), kindsOf(steps), true)
		if err != nil || len(missing) > 0 {
			t.Errorf("undo: missing %v, %v", missing, err)
		}

		missing, err = w.as("nobody").MissingRights(t.Context(), []*repair.StepKind{planner.KindOf(repair.FixHandleCount), planner.KindOf(repair.DeleteHandle)}, false)
		must(t, err)
		group, _, _ := strings.Cut(string(w.group), "/")
		var got []string
		for _, m := range missing {
			got = append(got, m.String())
		}
		want := []string{
			"the right to get ipamblocks." + group + " (for delete-handle)",
			"the right to get ipamhandles." + group + " (for delete-handle, fix-handle-count)",
			"the right to patch ipamhandles." + group + " (for delete-handle, fix-handle-count)",
			"the right to delete ipamhandles." + group + " (for delete-handle)",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("missing (-want +got):\n%s", d)
		}
		for _, kind := range planner.Kinds() {
			for _, n := range kind.Rights {
				for _, verb := range n.Verbs {
					w.without(kind.Kind, n.Resource, verb)
				}
			}
		}
	})
}

// exampleRules returns the rules of both roles for repairs.
func exampleRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	return append(rulesIn(t, "rbac-repair"), rulesIn(t, "rbac-repair-consolidate")...)
}

// without removes one right and expects it to be reported as missing.
func (w *world) without(kind repair.Kind, r blocks.Resource, verb string) {
	w.Helper()
	group, core := datastore.CoreGroups[r]
	plural, _, _ := strings.Cut(string(r), ".")
	if !core {
		group, _, _ = strings.Cut(string(w.group), "/")
		plural = w.group.Resource(plural).Resource
	}
	var rules []rbacv1.PolicyRule
	for _, rule := range exampleRules(w.T) {
		if rule.Resources[0] == plural && rule.APIGroups[0] == group {
			rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return v == verb })
		}
		if len(rule.Verbs) > 0 {
			rules = append(rules, rule)
		}
	}
	must(w.T, w.Allow(w.Context(), "short-of-one", rules...))
	w.missing("short-of-one", kind, verb+" "+plural+"."+group)
}

// missing fails the test unless exactly these rights become missing. The API server takes
// a moment to apply a new role.
func (w *world) missing(user string, kind repair.Kind, want ...string) {
	w.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		missing, err := w.as(user).MissingRights(w.Context(), []*repair.StepKind{planner.KindOf(kind)}, false)
		must(w.T, err)
		var got []string
		for _, m := range missing {
			got = append(got, m.Verb+" "+m.Resource+"."+m.Group)
		}
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s misses %v for %s, want %v", user, got, kind, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestForbidden checks that a step without a required right returns an error and reverts
// its writes: the affinity of a block that may not be deleted gets its state back.
func TestForbidden(t *testing.T) {
	w := newWorld(t, "crd.projectcalico.org/v1")
	before := w.contents()
	must(t, w.Allow(t.Context(), "half", rbacv1.PolicyRule{
		APIGroups: []string{"crd.projectcalico.org"}, Resources: []string{"ipamblocks"}, Verbs: []string{"get"},
	}, rbacv1.PolicyRule{
		APIGroups: []string{"crd.projectcalico.org"}, Resources: []string{"blockaffinities"}, Verbs: []string{"get", "patch"},
	}))
	w.missing("half", repair.ReleaseBlock,
		"create ipamblocks.crd.projectcalico.org", "patch ipamblocks.crd.projectcalico.org", "delete ipamblocks.crd.projectcalico.org",
		"create blockaffinities.crd.projectcalico.org", "delete blockaffinities.crd.projectcalico.org")
	err := steps[0].do(w, w.as("half"))
	if err == nil || !strings.Contains(err.Error(), "cannot patch resource") {
		t.Errorf("got %v", err)
	}
	same(t, "what must be as before", before, w.contents())
}

// TestNoAPIServer checks that an unreachable API server is reported soon.
func TestNoAPIServer(t *testing.T) {
	k, err := datastore.New(&rest.Config{Host: "https://127.0.0.1:1"}, "crd.projectcalico.org/v1", datastore.Options{})
	must(t, err)
	k.Impatient()
	ref := repair.ObjectRef{Resource: blocks.Handles, Name: "x", UID: "u", ResourceVersion: "1"}
	if err := k.DeleteHandle(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
	if _, err := k.MissingRights(t.Context(), []*repair.StepKind{planner.KindOf(repair.DeleteHandle)}, false); err == nil {
		t.Error("rights are known without an API server")
	}
	if _, err := datastore.New(&rest.Config{}, "example.com/v1", datastore.Options{}); err == nil {
		t.Error("any API group will do")
	}
}
