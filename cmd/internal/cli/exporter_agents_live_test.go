package cli_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestExporterAgents: the exporter asks the agents over TLS, with the shipped rights, and
// so proves that the story's traffic is dropped. It sees a foreign route and an unrecorded
// address within one round of requests, and their end. A round without news causes no
// audit. The report names nodes whose agents do not respond. A certificate of a new CA is
// accepted without a restart.
func TestExporterAgents(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	blocksOf := map[string][]string{}
	for _, n := range clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").Report(t).Nodes {
		blocksOf[n.Name] = n.Blocks
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", delegator(t, c))
	if err != nil {
		t.Fatal(err)
	}
	callers, err := agents.NewCallers(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	newAgentCA(t).files(dir)
	writeFile(t, filepath.Join(dir, "token"), accountToken(t, c, "exporter", agents.ServerName))
	bindAccount(t, c, "exporter", "agent-tls/clusterrole.yaml")

	var mu sync.Mutex
	extra := map[string]func(*blocks.HostView){}
	change := func(node string, f func(*blocks.HostView)) {
		mu.Lock()
		defer mu.Unlock()
		extra[node] = f
	}
	blackhole := func(v *blocks.HostView, cidr string) {
		v.Routes = append(v.Routes, blocks.HostRoute{Dst: netip.MustParsePrefix(cidr), Type: blocks.RouteBlackhole, Protocol: "bird", Table: "main"})
	}
	for _, node := range []string{"old-1", "old-2", "new-1"} { // new-2 has no agent
		port := serveAgent(t, func() *blocks.HostView {
			v := &blocks.HostView{APIVersion: "calico-audit/v1alpha1", Kind: blocks.HostViewKind, Node: node, BootID: node, TakenAt: time.Now().UTC(), Routes: []blocks.HostRoute{}, Namespaces: []blocks.HostNamespace{}}
			for _, b := range blocksOf[node] {
				blackhole(v, b)
			}
			mu.Lock()
			defer mu.Unlock()
			if f := extra[node]; f != nil {
				f(v)
			}
			return v
		}, dir, func(h http.Handler) http.Handler { return callers.Guard(h) })
		agentPod(t, c, node, port, nil)
	}

	// It must not use the API server's proxy: it only has the exporter's role.
	var role rbacv1.ClusterRole
	readExample(t, "rbac-exporter/clusterrole.yaml", &role)
	if err := c.Allow(t.Context(), "exporter", role.Rules...); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.UserKubeconfig("exporter")
	if err != nil {
		t.Fatal(err)
	}
	cli.AllowAgentsInterval(t, time.Second)
	e := clitest.StartExporter(t, kubeconfig, "--agents", "--agents-interval", "1s", "--agents-ca-file", filepath.Join(dir, "ca.crt"), "--agents-token-file", filepath.Join(dir, "token"))
	e.Restarted = true // the agents' connection to the API server belongs to the test
	e.Ready()
	// The first report already has the views of all responding agents.
	critical := func(check string) []audit.Finding {
		var out []audit.Finding
		for _, f := range clitest.Findings(e.Report(), check) {
			if f.Severity == state.Critical {
				out = append(out, f)
			}
		}
		return out
	}
	if got := critical("route/blackhole"); len(got) != 4 {
		t.Errorf("%d blackholes are proven at first, want 4: gaps %v", len(got), e.Report().HostGaps)
	}
	r := e.Report()
	if len(r.HostViews) != 3 || !strings.Contains(hostGapOf(r, "new-2"), "no agent runs on it") {
		t.Errorf("views %v, gaps %v", r.HostViews, r.HostGaps)
	}
	s := e.Scrape()
	now := float64(time.Now().Unix())
	if s["calico_audit_host_views"] != 3 || s["calico_audit_nodes_without_host_view"] != 1 || s["calico_audit_host_view_requests_total"] < 3 || s["calico_audit_host_view_errors_total"] != 0 ||
		now-s["calico_audit_host_view_oldest_timestamp_seconds"] > 60 || s[`calico_audit_check_success{check="route/stray-blackhole"}`] != 1 {
		t.Errorf("metrics: %v", s)
	}

	// Rounds without news.
	clitest.Await(t, "the state is confirmed", func() bool { return e.Scrape()["calico_audit_findings_unconfirmed"] == 0 })
	time.Sleep(3 * time.Second)
	before := e.Scrape()
	clitest.Await(t, "all were asked twice more", func() bool {
		return e.Scrape()["calico_audit_host_view_requests_total"] >= before["calico_audit_host_view_requests_total"]+6
	})
	if after := e.Scrape(); after["calico_audit_audits_total"] > before["calico_audit_audits_total"] {
		t.Errorf("%v audits were made of views that show the same", after["calico_audit_audits_total"]-before["calico_audit_audits_total"])
	}

	foreign, free := blocksOf["old-1"][0], freeAddress(t, c)
	change("new-1", func(v *blocks.HostView) {
		blackhole(v, foreign)
		v.Namespaces = append(v.Namespaces, blocks.HostNamespace{ID: "7", Addresses: []netip.Prefix{netip.PrefixFrom(free, free.BitLen())}, HostInterfaces: []string{"cali7"}, Pids: []int{42}, States: []string{"D"}, Processes: 1})
	})
	clitest.Await(t, "a route and an address without a record are found", func() bool {
		return len(critical("route/stray-blackhole")) == 1 && len(critical("ip/host-in-use")) == 1
	})
	if f := critical("route/stray-blackhole")[0]; f.Subject.CIDR != foreign || f.Subject.Node != "new-1" {
		t.Errorf("the stray blackhole is %+v", f.Subject)
	}
	if f := critical("ip/host-in-use")[0]; f.Subject.IP != free.String() || !strings.Contains(fmt.Sprint(f.Evidence), "42 (state D") {
		t.Errorf("the address in use is %+v, %v", f.Subject, f.Evidence)
	}

	newAgentCA(t).write(dir, time.Now().Add(time.Hour))
	change("new-1", nil)
	clitest.Await(t, "they end", func() bool {
		return len(critical("route/stray-blackhole"))+len(critical("ip/host-in-use")) == 0
	})
	if got := critical("route/blackhole"); len(got) != 4 {
		t.Errorf("%d blackholes are proven in the end", len(got))
	}
}

// freeAddress returns an address of the story's pool that is free in the datastore.
func freeAddress(t *testing.T, c *testcluster.Cluster) netip.Addr {
	t.Helper()
	k, err := cluster.NewKubernetes(c.Config, cluster.KubernetesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Blocks {
		for n, o := range s.Blocks[i].Ordinals {
			if o == blocks.Free {
				return s.Blocks[i].Address(n)
			}
		}
	}
	t.Fatal("no address is free")
	return netip.Addr{}
}
