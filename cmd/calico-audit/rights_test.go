package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestExporterNeedsEachRight: less any one right of the role that is shipped for the
// exporter, what the exporter watches has a gap that names the right; with all of
// them it has none. So the role has neither too few nor too many.
func TestExporterNeedsEachRight(t *testing.T) {
	role := exporterRole(t)
	// Both of Calico's API groups, of which the exporter uses one at a time.
	for group, own := range map[testcluster.Group]string{testcluster.CRDv1: "crd.projectcalico.org", testcluster.NativeV3: "projectcalico.org"} {
		t.Run(own, func(t *testing.T) {
			cluster := testcluster.Start(t, testcluster.Options{WatchCache: true, Groups: []testcluster.Group{group, testcluster.KubeVirt}})
			var all sync.WaitGroup
			try := func(user, want string, rules []rbacv1.PolicyRule) {
				if err := cluster.Allow(t.Context(), user, rules...); err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					if got := watchAs(t, cluster, user); got != want {
						t.Errorf("%s, who should be told %q, is told %q", user, want, got)
					}
				})
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
			try("exporter", "", role.Rules)
			all.Wait()
			if rights < 30 {
				t.Errorf("only %d rights were tried", rights)
			}
		})
	}
}

// watchAs returns what a user is told to be missing, when that has not changed for a
// while.
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

// without returns the rules less one verb on one resource.
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
