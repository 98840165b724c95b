package live_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// facts are a report's findings and counts, without texts and evidence.
func facts(r *audit.Report) (out []string) {
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s %+v", f.Severity, f.Check, f.Subject))
	}
	for _, d := range r.Diagnoses {
		out = append(out, fmt.Sprintf("%s %s of %d", d.Severity, d.ID, len(d.Findings)))
	}
	for _, p := range r.Pools {
		out = append(out, fmt.Sprintf("pool %s %+v %+v", p.Name, p.Addresses, p.Blocks))
	}
	for _, n := range r.Nodes {
		out = append(out, fmt.Sprintf("node %+v", n))
	}
	return out
}

// inEtcd sets the environment of calicoctl for Calico's own etcd.
func inEtcd(t *testing.T, more map[string]string) {
	t.Helper()
	all := map[string]string{"DATASTORE_TYPE": "etcdv3", "KUBECONFIG": ""}
	maps.Copy(all, more)
	for name, value := range all {
		t.Setenv(name, value)
	}
}

// TestStoryInEtcd: with Calico's own etcd, the story has the same findings as with
// Kubernetes, from etcd and from a snapshot of it, and also for a user with only the shipped
// role. Calico's own check finds as little as with Kubernetes.
func TestStoryInEtcd(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	joined := func(args ...string) []string { return append(args, "--kubeconfig", c.KubeconfigPath()) }
	want := facts(clitest.Run(t, joined("report", "-o", "json")...).Report(t))
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := seeding.StoryInEtcd(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	inEtcd(t, map[string]string{"ETCD_ENDPOINTS": c.EtcdEndpoint()})
	got := clitest.Run(t, joined("report", "-o", "json")...)
	if got.Code != exit.CodeOK || got.Err != "" {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
	r := got.Report(t)
	if diff := cmp.Diff(want, facts(r)); diff != "" {
		t.Errorf("findings (-Kubernetes +etcd):\n%s", diff)
	}
	if len(want) < 10 || r.Cluster.Datastore != "etcdv3" || !r.Complete || r.Cluster.GUID != seeding.ClusterGUID {
		t.Errorf("%d findings, %+v, complete %t", len(want), r.Cluster, r.Complete)
	}
	if strings.Contains(got.Stdout, "kubectl get ippool") {
		t.Error("a command asks Kubernetes for Calico's pools")
	}

	file := filepath.Join(t.TempDir(), "snapshot.json")
	if saved := clitest.Run(t, joined("snapshot", "-o", file)...); saved.Code != exit.CodeOK {
		t.Errorf("snapshot: exit code %d: %s", saved.Code, saved.Err)
	}
	if diff := cmp.Diff(want, facts(clitest.Run(t, "report", "-f", file, "-o", "json").Report(t))); diff != "" {
		t.Errorf("findings (-Kubernetes +snapshot of etcd):\n%s", diff)
	}

	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{joined("report"), exit.CodeOK, "from Calico's etcd at " + c.EtcdEndpoint()},
		{joined("explain", "10.64.75.134"), exit.CodeOK, "It is borrowed: its block"},
		{joined("capacity", "--add-nodes", "2"), exit.CodeOK, "pods-v4"},
		{joined("repair", "--strict-affinity=true"), exit.CodeOK, "This plan cannot be applied: Calico keeps its data in its own etcd"},
		{joined("repair", "--strict-affinity=true", "--apply", "--yes"), exit.CodeUsage, "repair --apply is not supported yet"},
		{joined("repair", "undo"), exit.CodeUsage, "repair undo is not supported yet"},
		{joined("exporter"), exit.CodeUsage, "the exporter is not supported yet"},
		{joined("report", "--contexts", "all"), exit.CodeUsage, "--contexts is not supported yet"},
		{[]string{"report"}, exit.CodeUnread, "name its kubeconfig with --kubeconfig"},
	} {
		if o := clitest.Run(t, x.args...); o.Code != x.code || !strings.Contains(o.Stdout+o.Err, x.want) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s\n%s", x.args, o.Code, x.code, x.want, o.Stdout, o.Err)
		}
	}

	out, err := programs.Run(t.Context(), "calicoctl", []string{"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + c.EtcdEndpoint(), "KUBECONFIG=" + c.KubeconfigPath()}, "ipam", "check")
	if err != nil || !strings.Contains(out, "found 0 problems") {
		t.Errorf("calicoctl ipam check: %v: %s", err, out)
	}

	e := testcluster.StartEtcd(t)
	stored, err := c.Etcd.Get(t.Context(), "/calico/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range stored.Kvs {
		if _, err := e.Client.Put(t.Context(), string(kv.Key), string(kv.Value)); err != nil {
			t.Fatal(err)
		}
	}
	restrict(t, e)
	config := filepath.Join(t.TempDir(), "calicoctl.cfg")
	connection := func(ca, password string) {
		text := fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: %s\n  etcdCACertFile: %s\n"+
			"  etcdCertFile: %s\n  etcdKeyFile: %s\n  etcdUsername: calico-audit\n  etcdPassword: %s\n  kubeconfig: %s\n", e.Endpoint, ca, e.CertFile, e.KeyFile, password, c.KubeconfigPath())
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inEtcd(t, map[string]string{"DATASTORE_TYPE": "kubernetes", "ETCD_ENDPOINTS": ""})
	connection(e.CAFile, "secret")
	restricted := clitest.Run(t, "report", "-o", "json", "--calico-config", config)
	if diff := cmp.Diff(want, facts(restricted.Report(t))); diff != "" || restricted.Code != exit.CodeOK {
		t.Errorf("with the shipped role: exit code %d: %s\nfindings (-Kubernetes +etcd):\n%s", restricted.Code, restricted.Err, diff)
	}
	unread := func(why, want string) {
		t.Helper()
		o := clitest.Run(t, "report", "--calico-config", config)
		if o.Code != exit.CodeUnread || !strings.Contains(o.Err, "reading Calico's etcd at "+e.Endpoint+": "+want) || strings.Count(o.Err, "\n") > 2 {
			t.Errorf("%s: exit code %d: %s%s", why, o.Code, o.Stdout, o.Err)
		}
	}
	connection(e.CAFile, "guess")
	unread("wrong password", "the user name or the password is wrong")
	connection(e.OtherCAFile, "secret")
	unread("wrong CA", "tls: failed to verify certificate: x509: certificate signed by unknown authority")
	connection(e.CAFile, "secret")
	e.Stop()
	unread("unreachable", "dial tcp "+strings.TrimPrefix(e.Endpoint, "https://")+": connect: connection refused")

	endpoint := breaking(t, strings.TrimPrefix(c.EtcdEndpoint(), "http://"), 30_000)
	inEtcd(t, map[string]string{"ETCD_ENDPOINTS": endpoint})
	if o := clitest.Run(t, joined("report", "--request-timeout", "2s")...); o.Code != exit.CodeUnread || o.Stdout != "" || !strings.Contains(o.Err, "reading Calico's etcd at "+endpoint+": no answer in time: dial tcp") {
		t.Errorf("an endpoint that dies: exit code %d: %s%s", o.Code, o.Stdout, o.Err)
	}
}

// restrict enables authentication, and gives the user calico-audit the shipped role.
func restrict(t *testing.T, e *testcluster.Etcd) {
	t.Helper()
	script, err := os.ReadFile("../../../examples/etcd/role.sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for line := range strings.Lines(string(script)) {
		var err error
		switch words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "etcdctl ")); {
		case !strings.HasPrefix(line, "etcdctl "):
		case slices.Equal(words[:2], []string{"role", "add"}):
			_, err = e.Client.RoleAdd(ctx, words[2])
		case slices.Equal(words[:2], []string{"role", "grant-permission"}):
			key, end := words[len(words)-1], ""
			if words[4] == "--prefix=true" {
				end = clientv3.GetPrefixRangeEnd(key)
			}
			_, err = e.Client.RoleGrantPermission(ctx, words[2], key, end, clientv3.PermissionType(clientv3.PermRead))
		case slices.Equal(words[:2], []string{"user", "add"}):
			_, err = e.Client.UserAdd(ctx, words[2], "secret")
		case slices.Equal(words[:2], []string{"user", "grant-role"}):
			_, err = e.Client.UserGrantRole(ctx, words[2], words[3])
		default:
			t.Fatalf("unknown command %q", line)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if _, err := e.Client.RoleAdd(ctx, "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client.UserAdd(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
}

// breaking returns the URL of a proxy to a server, which dies after it has passed on a
// number of bytes of answers.
func breaking(t *testing.T, to string, limit int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	left := atomic.Int64{}
	left.Store(limit)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(server, from) }()
			go func() {
				buffer := make([]byte, 1024)
				for left.Load() > 0 {
					n, err := server.Read(buffer)
					if left.Add(-int64(n)); err != nil {
						break
					}
					_, _ = from.Write(buffer[:n])
				}
				if left.Load() <= 0 {
					_ = l.Close()
				}
				_, _ = server.Close(), from.Close()
			}()
		}
	}()
	return "http://" + l.Addr().String()
}
