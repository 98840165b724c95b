package metrics

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
)

// scraped gathers the response to a scrape, without the metrics of the process.
func scraped(t *testing.T, e *Exporter) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		status, text := ask(e, "/metrics")
		if status != http.StatusOK {
			t.Errorf("/metrics: %d %s", status, text)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all, err := parser.TextToMetricFamilies(strings.NewReader(text))
		for name := range all {
			if !strings.HasPrefix(name, exporterPrefix) {
				delete(all, name)
			}
		}
		var out []*dto.MetricFamily
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out = append(out, all[name])
		}
		return out, err
	})
}

// exporterFamilies returns all families of the exporter.
func exporterFamilies() (out []*Family) {
	for _, g := range exporterGroups {
		out = append(out, g.Families...)
	}
	return out
}

// value returns the sum of a family's series with the given labels, as name and value pairs;
// -1 if there are none.
func value(t *testing.T, e *Exporter, name string, labels ...string) float64 {
	t.Helper()
	families, err := scraped(t, e).Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			found = true
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if !found {
		return -1
	}
	return sum
}

// borrowing: n3 has no block and borrows, a LoadBalancer block belongs to no node, one
// block lies outside the pools, and a deleted node left a block.
const borrowing = `
controllers grace=15m
bgp
namespace default
pool pods 10.0.0.0/25 26
pool six fd00::/64 122
node n1
node n2
node n3
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
block 10.0.0.64/26 n2
affinity 10.0.0.64/26 n2
block 10.9.0.0/26 gone
block 10.8.0.0/26 virtual:load-balancer
use 10.0.0.1 a n1
use 10.0.0.65 b n2
use 10.0.0.66 c n3
alloc 10.8.0.1
` + secondary

// secondary are Whereabouts networks: a range with an exclusion, an IPv6 range that is too
// large to run out, and a node's slice.
const secondary = `
nad shop/storage 10.99.0.0/24 exclude=10.99.0.0/25
nad shop/six fd99::/64 network=six
nad shop/fast 10.98.0.0/16 network=fast sliced
wslices fast n1@10.98.0.0/28
wpool 10.99.0.0-24 10.99.0.0/24
walloc 10.99.0.0-24 10.99.0.200 default/a id=c0 if=net1
wpool six-fd99---64 fd99::/64
walloc six-fd99---64 fd99::7 default/a id=c0 if=net2
wpool fast-n1-10.98.0.0-28 10.98.0.0/28
`

// TestFamilies: every family is served, is documented, and passes Prometheus' linter. The
// numbers match the state.
func TestFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		played(t, f, ExporterOptions{NodeMetrics: true, MaxNodes: 10, Build: Build{"v1", "abc", "go1"}, Agents: func() AgentCounts {
			return AgentCounts{Asked: 9, Failed: 2, Views: 3, Missing: 1, Oldest: time.Unix(1700000000, 0)}
		}}, func(e *Exporter) {
			if problems, err := testutil.GatherAndLint(scraped(t, e)); err != nil || len(problems) > 0 {
				t.Errorf("before the first audit: %v, %v", problems, err)
			}
			f.is(borrowing)
			pass(3 * time.Second)
			if problems, err := testutil.GatherAndLint(scraped(t, e)); err != nil || len(problems) > 0 {
				t.Errorf("lint: %v, %v", problems, err)
			}
			for _, family := range exporterFamilies() {
				if value(t, e, family.Name) < 0 {
					t.Errorf("%s is not served", family.Name)
				}
			}
			for _, c := range []struct {
				want   float64
				name   string
				labels string
			}{
				{128, "pool_capacity_addresses", "ippool=pods ip_family=IPv4"},
				{3, "pool_in_use_addresses", "ippool=pods"},
				{125, "pool_available_addresses", "ippool=pods"},
				{1, "pool_borrowed_addresses", "ippool=pods"},
				{2, "pool_blocks", "ippool=pods state=claimed"},
				{0, "pool_blocks", "ippool=pods state=free"},
				{0, "pool_allocatable_blocks", "ippool=pods"},
				{1 << 58, "pool_blocks", "ippool=six state=free"},
				{1.8446744073709552e19, "pool_available_addresses", "ippool=six ip_family=IPv6"},
				{1, "pool_info", "ippool=pods cidr=10.0.0.0/25 block_size=26 workloads=true"},
				{9, "host_view_requests_total", ""},
				{2, "host_view_errors_total", ""},
				{3, "host_views", ""},
				{1, "nodes_without_host_view", ""},
				{1700000000, "host_view_oldest_timestamp_seconds", ""},
				{1, "node_blocks", "node=n1 ippool=pods"},
				{0, "node_blocks", "node=n3 ippool=pods"},
				{1, "node_blocks", "node=gone ippool=none"},
				{1, "node_empty_blocks", "node=gone ippool=none"},
				{1, "node_blocks", "node=none ippool=none"},
				{1, "node_borrowed_addresses", "node=n3 ippool=pods"},
				{1, "node_lent_addresses", "node=n2 ippool=pods"},
				{1, "node_in_use_addresses", "node=n2 ippool=pods block_owner=self"},
				{1, "node_in_use_addresses", "node=n3 ippool=pods block_owner=other"},
				{-1, "node_in_use_addresses", "node=n1 block_owner=other"},
				{1, "nodes_without_block", "ip_family=IPv4"},
				{7, "joinable_nodes", ""},
				{127, "whereabouts_pool_capacity_addresses", "whereabouts_pool=kube-system/10.99.0.0-24 ip_family=IPv4"},
				{1, "whereabouts_pool_in_use_addresses", "whereabouts_pool=kube-system/10.99.0.0-24"},
				{126, "whereabouts_pool_available_addresses", "whereabouts_pool=kube-system/10.99.0.0-24"},
				{1, "whereabouts_pool_in_use_addresses", "whereabouts_pool=kube-system/six-fd99---64 network=six ip_family=IPv6"},
				{-1, "whereabouts_pool_capacity_addresses", "network=six"},
				{14, "whereabouts_pool_available_addresses", "whereabouts_pool=kube-system/fast-n1-10.98.0.0-28 network=fast"},
				{0, "nodes_without_block", "ip_family=IPv6"},
				{1, "findings", "check=pool/no-free-blocks severity=critical ippool=pods"},
				{0, "findings", "check=pool/no-free-blocks severity=critical ippool=none"},
				{-1, "findings", "check=pool/no-free-blocks severity=critical ippool=six"},
				{2, "findings", "check=block/no-pool ippool=none"},
				{0, "findings", "check=ip/duplicate severity=critical"},
				{1, "findings", "check=ip/borrowed severity=warning ippool=pods"},
				{1, "check_success", "check=ip/borrowed"},
				{0, "findings_muted", ""},
				{0, "datastore_locked", ""},
				{1, "snapshot_complete", ""},
				{3, "watch_restarts_total", "resource=pods"},
				{0, "watch_restarts_total", "resource=nodes"},
			} {
				labels := strings.FieldsFunc(c.labels, func(r rune) bool { return r == ' ' || r == '=' })
				if got := value(t, e, "calico_audit_"+c.name, labels...); got != c.want {
					t.Errorf("%s{%s} is %v, want %v", c.name, c.labels, got, c.want)
				}
			}
			f.is(strings.ReplaceAll(borrowing, "node n2\n", "") + "locked\n")
			pass(2 * time.Second)
			if got := value(t, e, "calico_audit_node_in_use_addresses", "node", "n2", "block_owner", "self"); got != 1 {
				t.Errorf("a block of a node that is gone has %v of its addresses", got)
			}
			f.is(strings.ReplaceAll(calm, "n2", "n3"))
			pass(2 * time.Second)
			if got := value(t, e, "calico_audit_node_blocks", "node", "n2"); got != -1 {
				t.Errorf("a node that is gone still has series: %v", got)
			}
			if got := value(t, e, "calico_audit_whereabouts_pool_in_use_addresses"); got != -1 {
				t.Errorf("a cluster without Whereabouts has series of its pools: %v", got)
			}
		})
	})
}

// TestNothingRead: before the first snapshot there are no numbers, and the state counts as
// incomplete.
func TestNothingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		played(t, newFed(t), ExporterOptions{NodeMetrics: true}, func(e *Exporter) {
			pass(3 * time.Second)
			for name, want := range map[string]float64{
				"snapshot_complete": 0, "snapshot_timestamp_seconds": -1, "snapshot_gaps": -1, "pool_capacity_addresses": -1, "findings": -1,
			} {
				if got := value(t, e, "calico_audit_"+name); got != want {
					t.Errorf("%s is %v, want %v", name, got, want)
				}
			}
		})
	})
}

// TestAbsent: numbers and findings that need an unread resource are absent.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(calm + "gap ipamblocks forbidden\n")
		played(t, f, ExporterOptions{NodeMetrics: true}, func(e *Exporter) {
			pass(3 * time.Second)
			for name, want := range map[string]float64{
				"pool_capacity_addresses": 256, "pool_in_use_addresses": -1, "pool_available_addresses": -1, "pool_blocks": -1,
				"pool_releasable_blocks": -1, "joinable_nodes": -1, "node_blocks": -1, "nodes_without_block": -1, "snapshot_complete": 0, "snapshot_gaps": 1,
			} {
				if got := value(t, e, "calico_audit_"+name); got != want {
					t.Errorf("%s is %v, want %v", name, got, want)
				}
			}
			if value(t, e, "calico_audit_findings", "check", "ip/borrowed") != -1 || value(t, e, "calico_audit_check_success", "check", "ip/borrowed") != 0 {
				t.Error("a check that could not judge has findings")
			}
			if value(t, e, "calico_audit_check_success", "check", "pool/overlap") != 1 {
				t.Error("a check that could judge has no success")
			}
		})
	})
}

// TestSwitches: series of nodes can be switched off, and muted findings are counted as
// such.
func TestSwitches(t *testing.T) {
	rule, err := checks.All.ParseMuteRule("check=ip/borrowed")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(borrowing)
		played(t, f, ExporterOptions{MaxNodes: 2, Mutes: &audit.Mutes{Rules: []audit.MuteRule{rule}}, Agents: func() AgentCounts { return AgentCounts{Oldest: time.Unix(1, 0)} }}, func(e *Exporter) {
			pass(3 * time.Second)
			for _, family := range exporterFamilies() {
				perNode := len(family.Labels) > 0 && family.Labels[0] == "node"
				if served := value(t, e, family.Name) >= 0; served == perNode {
					t.Errorf("%s: served %t", family.Name, served)
				}
			}
			if value(t, e, "calico_audit_whereabouts_pool_in_use_addresses", "network", "fast") != -1 {
				t.Error("a node's slice has series, though nodes have none")
			}
			if value(t, e, "calico_audit_findings", "check", "ip/borrowed") != 0 || value(t, e, "calico_audit_findings_muted") != 1 {
				t.Error("a muted finding is not counted as such")
			}
		})
	})
}
