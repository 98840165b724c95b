package storm

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
)

// used holds the rights that requests used, as verb and resource.
type used struct {
	mu  sync.Mutex
	all map[string]bool
}

// wrap records the requests to another transport.
func (u *used) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		// /apis/GROUP/VERSION/RESOURCE[/NAME]
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		if len(parts) >= 4 && strings.HasSuffix(parts[1], "projectcalico.org") {
			verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete"}[r.Method]
			if r.Method == http.MethodGet && len(parts) == 4 {
				verb = "list"
			}
			u.mu.Lock()
			u.all[verb+" "+parts[3]+"."+parts[1]] = true
			u.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// example reads a ClusterRole of the examples.
func example(t *testing.T, dir string) *rbacv1.ClusterRole {
	t.Helper()
	root, err := programs.ModuleRoot()
	must(t, err)
	data, err := os.ReadFile(filepath.Join(root, "examples", "kubernetes", dir, "clusterrole.yaml"))
	must(t, err)
	role := &rbacv1.ClusterRole{}
	must(t, yaml.UnmarshalStrict(data, role))
	return role
}

// TestExampleRights checks that a user with exactly the examples' rights to read and
// repair can carry out and undo a step of every kind. Every right to repair must be used:
// a missing right would fail a step, and a superfluous one is reported. Each day tries one of the
// API groups.
func TestExampleRights(t *testing.T) {
	t.Parallel()
	for _, group := range testenv.Sample(t, 1, groups) {
		t.Run(strings.ReplaceAll(string(group), "/", "-"), func(t *testing.T) {
			t.Parallel()
			x := newDamagedOn(t, testcluster.Start(t, testcluster.Options{}), group)
			read, write := example(t, "rbac"), example(t, "rbac-repair")
			must(t, x.Allow(t.Context(), "repairer", slices.Concat(read.Rules, write.Rules)...))
			// The guard rails must not block clients that follow Calico's protocol.
			root, err := programs.ModuleRoot()
			must(t, err)
			_, err = x.Kubectl(t.Context(), "apply", "-k", filepath.Join(root, "examples", "kubernetes", "guard-rails"))
			must(t, err)
			u := &used{all: map[string]bool{}}
			x.tool = x.as(t, "repairer", u)

			plan := x.awaitRights(t)
			did := map[repair.Kind]bool{}
			journal := x.carryOut(t, plan, did)
			res, err := x.tool.undo(t.Context(), journal)
			must(t, err)
			for _, o := range res.Outcomes {
				if o.Status == repair.Failed {
					t.Errorf("taking back %s failed: %s", o.Step.ID, o.Reason)
				}
			}
			// A missing configuration is created.
			must(t, x.Delete(t.Context(), group.Resource("ipamconfigs"), "", "default"))
			strict := true
			plan, err = x.tool.plan(t.Context(), repair.Request{StrictAffinity: &strict}, 0)
			must(t, err)
			x.carryOut(t, plan, did)

			for _, k := range stepKinds {
				if !did[k] {
					t.Errorf("no step of kind %s was carried out", k)
				}
			}
			// Blocks are created only to restore a released block, which does not happen
			// here.
			u.all["create ipamblocks."+strings.Split(string(group), "/")[0]] = true
			if d := cmp.Diff(rightsIn(write, group), slices.Sorted(maps.Keys(u.all))); d != "" {
				t.Errorf("rights to repair (-of the example +made use of):\n%s", d)
			}
		})
	}
}

// as returns the tool with a user's credentials. It records only writers' requests,
// because an audit has a separate role.
func (x *damaged) as(t *testing.T, user string, u *used) *tool {
	t.Helper()
	config, err := x.UserConfig(user)
	must(t, err)
	out, err := newTool(config, somewhere(x.fixture.Live))
	must(t, err)
	out.config = rest.CopyConfig(config)
	out.config.Wrap(u.wrap)
	return out
}

// awaitRights plans all repairs. It retries until the API server has applied the roles
// and allows the lists.
func (x *damaged) awaitRights(t *testing.T) *repair.Plan {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		plan, err := x.tool.plan(t.Context(), requests()["all"], 0)
		if err == nil && plan.Complete {
			return plan
		}
		if time.Now().After(deadline) {
			t.Fatalf("the example's rights to read do not suffice for a plan: %v, %+v", err, plan)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// carryOut applies a plan and fails the test unless each step is settled. It returns the
// journal.
func (x *damaged) carryOut(t *testing.T, plan *repair.Plan, did map[repair.Kind]bool) string {
	t.Helper()
	journal := filepath.Join(t.TempDir(), fmt.Sprintf("journal-%d", len(plan.Steps)))
	res, err := x.tool.apply(t.Context(), plan, journal, apply.Options{})
	must(t, err)
	for _, o := range res.Outcomes {
		if o.Open() {
			t.Errorf("%s is %s: %s %s", o.Step.ID, o.Status, o.Code, o.Reason)
		}
		did[o.Step.Kind] = did[o.Step.Kind] || o.Status == repair.Done
	}
	x.unharmed(t)
	return journal
}

// rightsIn returns a role's rights in one API group.
func rightsIn(role *rbacv1.ClusterRole, group testcluster.Group) []string {
	name, _, _ := strings.Cut(string(group), "/")
	var out []string
	for _, rule := range role.Rules {
		for _, g := range rule.APIGroups {
			for _, r := range rule.Resources {
				for _, v := range rule.Verbs {
					if g == name {
						out = append(out, v+" "+r+"."+g)
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
