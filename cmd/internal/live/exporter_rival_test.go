package live_test

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// TestExporterBesideKubeControllers derives all IPAM metrics of Calico's own
// kube-controllers from the exporter's on the same cluster, except for those of its garbage
// collector.
func TestExporterBesideKubeControllers(t *testing.T) {
	for _, x := range testenv.Sample(t, 1, []struct {
		name     string
		scenario func(context.Context, *testcluster.Cluster) error
		has      []string // series that the state must have, so that the comparison is meaningful
	}{
		{"story", seeding.Story, []string{`ipam_allocations_borrowed{ippool="pods-v4",node="new-1"}`}},
		{"dual-stack", unevenDualStack, []string{
			`ipam_blocks{ippool="no_ippool",node="dual-1"}`, `ipam_blocks{ippool="pods-v4",node="no_affinity"}`,
			`ipam_allocations_borrowed{ippool="pods-v4",node="dual-3"}`, `ipam_allocations_in_use{ippool="services",node="unknown_node"}`,
		}},
	}) {
		t.Run(x.name, func(t *testing.T) {
			c := clitest.Play(t, x.scenario)
			url := c.StartKubeControllers(t).MetricsURL()
			e := clitest.StartExporter(t, c.KubeconfigPath())
			e.Ready()
			theirs := func() clitest.Series {
				out := clitest.Series{}
				for k, v := range clitest.Scrape(t, e.Client, url) {
					// Some of its families have zeros for each node and pool, others have
					// none.
					if strings.HasPrefix(k, "ipam_") && !strings.Contains(k, "_gc_") && v != 0 {
						out[k] = v
					}
				}
				return out
			}
			for _, name := range x.has {
				clitest.Await(t, "kube-controllers counts "+name, func() bool { return theirs()[name] > 0 })
			}
			var diff string
			for range 100 { // it may still be counting
				if diff = cmp.Diff(theirs(), derived(e.Scrape())); diff == "" {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Errorf("what is derived differs (-kube-controllers +exporter):\n%s", diff)
		})
	}
}

// unevenDualStack is the dual-stack cluster after one node gave up its IPv4 block with
// addresses in it, and a pool with blocks was deleted.
func unevenDualStack(ctx context.Context, c *testcluster.Cluster) error {
	if err := seeding.DualStack(ctx, c); err != nil {
		return err
	}
	s, err := seeding.New(c)
	if err != nil {
		return err
	}
	if err := s.ReleaseBlocks(ctx, "dual-3", netip.MustParsePrefix("10.65.0.0/22"), false); err != nil {
		return err
	}
	return c.Delete(ctx, testcluster.CRDv1.Resource("ippools"), "", "pods-v6")
}

var (
	oneSeries = regexp.MustCompile(`^calico_audit_([a-z_]+)\{(.*)\}$`)
	oneLabel  = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// derived computes kube-controllers' numbers from the exporter's, as the guide describes.
// There is only one replica, so no maximum is needed.
func derived(s clitest.Series) clitest.Series {
	out := clitest.Series{}
	add := func(name string, v float64, labels ...string) {
		if v == 0 {
			return
		}
		var pairs []string
		for i := 0; i < len(labels); i += 2 {
			pairs = append(pairs, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
		}
		out[name+"{"+strings.Join(pairs, ",")+"}"] += v
	}
	for k, v := range s {
		m := oneSeries.FindStringSubmatch(k)
		if m == nil {
			continue
		}
		l := map[string]string{}
		for _, pair := range oneLabel.FindAllStringSubmatch(m[2], -1) {
			l[pair[1]] = pair[2]
		}
		or := func(label, none string) string {
			if l[label] == "none" {
				return none
			}
			return l[label]
		}
		pool := or("ippool", "no_ippool")
		switch m[1] {
		case "pool_capacity_addresses":
			add("ipam_ippool_size", v, "ippool", pool)
		case "node_blocks":
			node := or("node", "no_affinity")
			add("ipam_blocks", v, "ippool", pool, "node", node)
			add("ipam_blocks_per_node", v, "node", node)
		case "node_in_use_addresses":
			node := or("node", "unknown_node")
			add("ipam_allocations_in_use", v, "ippool", pool, "node", node)
			if l["node"] == "none" {
				continue
			}
			add("ipam_allocations_per_node", v, "node", node)
			if l["block_owner"] != "self" {
				add("ipam_allocations_borrowed", v, "ippool", pool, "node", node)
				add("ipam_allocations_borrowed_per_node", v, "node", node)
			}
		}
	}
	return out
}
