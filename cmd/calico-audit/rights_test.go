package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestExporterNeedsEachRight: without any one right of the exporter's shipped role, the
// watch has a gap that names the right; with all rights it has none. So the role has
// neither too few nor too many.
func TestExporterNeedsEachRight(t *testing.T) {
	role := exporterRole(t)
	// The exporter uses one of Calico's two API groups at a time.
	for group, own := range map[testcluster.Group]string{testcluster.CRDv1: "crd.projectcalico.org", testcluster.NativeV3: "projectcalico.org"} {
		t.Run(own, func(t *testing.T) {
			cluster := testcluster.Shared(t, testcluster.Options{WatchCache: true, Groups: []testcluster.Group{group, testcluster.KubeVirt}})
			cluster.MakeClusterInformation(t, group)
			wants := map[string]string{} // by user
			try := func(user, want string, rules []rbacv1.PolicyRule) {
				if err := cluster.Allow(t.Context(), user, rules...); err != nil {
					t.Fatal(err)
				}
				wants[user] = want
			}
			rights := 0
			for _, rule := range role.Rules {
				apiGroup := rule.APIGroups[0]
				if apiGroup != "" && apiGroup != own && apiGroup != "kubevirt.io" {
					continue
				}
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights++
						name := strings.TrimSuffix(resource+"."+apiGroup, ".")
						try(fmt.Sprintf("exporter-%d", rights), "forbidden: needs the right to "+verb+" "+name, without(role.Rules, apiGroup, resource, verb))
					}
				}
			}
			try("exporter-all", "", role.Rules)
			awaitRights(t, cluster, "exporter-all")
			var all sync.WaitGroup
			for user, want := range wants {
				all.Go(func() {
					if got := watchAs(t, cluster, user); got != want {
						t.Errorf("%s, who should be told %q, is told %q", user, want, got)
					}
				})
			}
			all.Wait()
			if rights < 30 {
				t.Errorf("only %d rights were tried", rights)
			}
		})
	}
}

// awaitRights waits until the API server applies a user's rights, because a refused watch retries
// only much later. Then it also applies the rights of all users before.
func awaitRights(t *testing.T, server *testcluster.Cluster, user string) {
	t.Helper()
	for deadline := time.Now().Add(eventTimeout); ; time.Sleep(50 * time.Millisecond) {
		review, err := server.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the API server does not heed the rights of %s: %s", user, review.Status.Reason)
		}
	}
}

// watchAs returns the gaps of a watch by a user, once they have not changed for a while.
func watchAs(t *testing.T, server *testcluster.Cluster, user string) string {
	cfg, err := server.UserConfig(user)
	if err != nil {
		return err.Error()
	}
	w, err := cluster.NewWatch(cfg, cluster.WatchOptions{})
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("watching: %v", err)
		}
	}()
	var gaps []blocks.Gap
	var since time.Time
	for deadline := time.Now().Add(eventTimeout); ; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Sprintf("what it sees does not settle: %v", gaps)
		}
		s := w.Snapshot()
		switch {
		case s == nil:
		case since.IsZero() || !slices.Equal(gaps, s.Gaps):
			gaps, since = s.Gaps, time.Now()
		case time.Since(since) > 3*time.Second:
			var reasons []string
			for _, g := range gaps {
				reasons = append(reasons, g.Reason)
			}
			return strings.Join(reasons, "; ")
		}
	}
}

// without returns the rules without one verb on one resource.
func without(rules []rbacv1.PolicyRule, group, resource, verb string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		if r.APIGroups[0] != group {
			out = append(out, r)
			continue
		}
		rest := *r.DeepCopy()
		rest.Resources = slices.DeleteFunc(rest.Resources, func(s string) bool { return s == resource })
		narrowed := *r.DeepCopy()
		narrowed.Resources = []string{resource}
		narrowed.Verbs = slices.DeleteFunc(narrowed.Verbs, func(s string) bool { return s == verb })
		out = append(out, rest, narrowed)
	}
	return out
}
