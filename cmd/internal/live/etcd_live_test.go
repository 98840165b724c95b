package live_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks/etcd"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
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

// TestStoryInEtcd: with Calico's own etcd, the story has the same findings as with Kubernetes, from
// etcd and from a snapshot of it, and also for a user with only the shipped role. Calico's own
// check finds no more than with Kubernetes.
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
		{joined("repair", "--strict-affinity=true"), exit.CodeOK, "needs a second observation, not before"},
		{joined("repair", "--strict-affinity=true", "--apply", "--yes"), exit.CodeUnfinished, "it needs two observations"},
		{[]string{"exporter", "--agents"}, exit.CodeUsage, "--agents cannot be used without"},
		{joined("report", "--contexts", "all"), exit.CodeUsage, "--contexts is not supported"},
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

	e := apart(t, c, script(t, "role.sh"))
	config := filepath.Join(t.TempDir(), "calicoctl.cfg")
	connection := func(ca, password string) { connection(t, c, e, config, ca, password) }
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

// script returns one of the shipped scripts.
func script(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../examples/etcd", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// apart starts an etcd with a copy of Calico's keys, and the roles of the shipped scripts.
func apart(t *testing.T, c *testcluster.Cluster, scripts ...string) *testcluster.Etcd {
	t.Helper()
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
	restrict(t, e, scripts...)
	return e
}

// connection writes calicoctl's configuration to a file.
func connection(t *testing.T, c *testcluster.Cluster, e *testcluster.Etcd, file, ca, password string) {
	t.Helper()
	text := fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: %s\n  etcdCACertFile: %s\n"+
		"  etcdCertFile: %s\n  etcdKeyFile: %s\n  etcdUsername: calico-audit\n  etcdPassword: %s\n  kubeconfig: %s\n", e.Endpoint, ca, e.CertFile, e.KeyFile, password, c.KubeconfigPath())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// restrict enables authentication, and runs the shipped scripts, which make the user calico-audit.
func restrict(t *testing.T, e *testcluster.Etcd, scripts ...string) {
	t.Helper()
	ctx := t.Context()
	for line := range strings.Lines(strings.Join(scripts, "\n")) {
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
			right := clientv3.PermRead
			if words[3] == "readwrite" {
				right = clientv3.PermReadWrite
			}
			_, err = e.Client.RoleGrantPermission(ctx, words[2], key, end, clientv3.PermissionType(right))
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

// breaking returns the URL of a proxy to a server. The proxy dies after it has forwarded a number
// of bytes of responses.
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

// steps returns a plan's steps by kind and target.
func steps(t *testing.T, file string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var plan repair.Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Steps {
		out = append(out, s.ID)
	}
	return out
}

// damaged creates a cluster in which a node holds two empty blocks, and a leaked address.
func damaged(t *testing.T, s *seeding.Seeder) {
	t.Helper()
	ctx := t.Context()
	errs := []error{s.Init(ctx), s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}), s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.64.0.0/24", BlockSize: 26})}
	for _, node := range []string{"a", "b", "c"} {
		errs = append(errs, s.Node(ctx, seeding.Node{Name: node}))
	}
	for _, p := range []seeding.Pod{{Name: "one", Node: "a"}, {Name: "gone", Node: "a"}, {Name: "two", Node: "b"}} {
		p.Namespace = "default"
		_, err := s.Pod(ctx, p)
		errs = append(errs, err)
	}
	for _, block := range []string{"10.64.0.0/26", "10.64.0.64/26", "10.64.0.128/26", "10.64.0.192/26"} {
		_ = s.ClaimBlocks(ctx, "a", netip.MustParsePrefix(block)) // one is node b's
	}
	errs = append(errs, s.DeletePod(ctx, "default", "gone", false))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	// The endpoint was deleted with the pod.
	if _, err := s.Cluster.Etcd.Delete(ctx, "/calico/resources/v3/projectcalico.org/workloadendpoints/default/a-k8s-gone-eth0"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // then the test's grace period has passed
}

// TestRepairInEtcd: repairs of a cluster have the same steps in etcd as in Kubernetes. They are
// applied and undone there, by a user with only the shipped roles.
func TestRepairInEtcd(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	roles := []string{script(t, "role.sh"), script(t, "role-repair.sh")}
	t.Chdir(t.TempDir())
	more := []string{"--kubeconfig", c.KubeconfigPath()}
	run := func(code int, args ...string) clitest.Outcome {
		t.Helper()
		o := clitest.Run(t, append(args, more...)...)
		if o.Code != code {
			t.Fatalf("%q: exit code %d, want %d:\n%s\n%s", args, o.Code, code, o.Stdout, o.Err)
		}
		return o
	}
	plan := func(file string) []string {
		t.Helper()
		run(exit.CodeOK, "repair", "--empty-blocks", "--leaked-ips", "--without-host-evidence", "--strict-affinity=true", "--grace", "1s", "--out", file)
		return steps(t, file)
	}
	var want []string
	for _, start := range []func(*testcluster.Cluster) (*seeding.Seeder, error){seeding.New, seeding.NewEtcd} {
		if err := c.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := start(c)
		if err != nil {
			t.Fatal(err)
		}
		if damaged(t, s); want == nil {
			want = plan("twin.json")
		}
	}
	e := apart(t, c, roles...)
	connection(t, c, e, "calicoctl.cfg", e.CAFile, "secret")
	more = []string{"--calico-config", "calicoctl.cfg"}
	if diff := cmp.Diff(want, plan("plan.json")); diff != "" || len(want) < 4 {
		t.Errorf("steps (-Kubernetes +etcd):\n%s", diff)
	}
	before := run(exit.CodeOK, "report", "--grace", "1s", "-o", "json").Report(t)
	run(exit.CodeOK, "repair", "apply", "plan.json", "--yes", "--wait", "--journal", "run.jsonl")
	after := run(exit.CodeOK, "report", "--grace", "1s", "-o", "json").Report(t)
	if was, is := free(before), free(after); was != 0 || is != 2 {
		t.Errorf("blocks free: %d before and %d after", was, is)
	}
	for _, f := range after.Findings {
		if f.Check == "ip/leaked" || f.Check == "block/empty" {
			t.Errorf("left: %s", f.Message)
		}
	}
	if n := runs(t, "calicoctl.cfg"); n != 0 {
		t.Errorf("%d records of runs are left", n)
	}
	out, err := programs.Run(t.Context(), "calicoctl", []string{
		"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + e.Endpoint, "ETCD_CA_CERT_FILE=" + e.CAFile, "ETCD_CERT_FILE=" + e.CertFile, "ETCD_KEY_FILE=" + e.KeyFile,
		"ETCD_USERNAME=root", "ETCD_PASSWORD=root", "KUBECONFIG=" + c.KubeconfigPath(),
	}, "ipam", "check")
	if err != nil || !strings.Contains(out, "found 0 problems") {
		t.Errorf("calicoctl ipam check: %v: %s", err, out)
	}
	run(exit.CodeOK, "repair", "undo", "run.jsonl", "--yes")
	back := run(exit.CodeOK, "report", "--grace", "1s", "-o", "json").Report(t)
	if !slices.ContainsFunc(back.Findings, func(f audit.Finding) bool { return f.Check == "ip/leaked" }) {
		t.Error("the leaked address is not back")
	}
}

// runs returns the number of records of runs in etcd.
func runs(t *testing.T, file string) int64 {
	t.Helper()
	config, err := etcd.LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := etcd.New(config, etcd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	conn, err := client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	records, err := conn.Get(t.Context(), etcd.RunPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return records.Count
}

// free returns the number of free blocks of all pools.
func free(r *audit.Report) (n int) {
	for _, p := range r.Pools {
		n += int(p.Blocks.Free.Float())
	}
	return n
}

// TestExporterInEtcd: the exporter's numbers are those of a report, and follow changes in etcd and in
// Kubernetes. Agents are asked through the cluster's API server.
func TestExporterInEtcd(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := seeding.StoryInEtcd(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	inEtcd(t, map[string]string{"ETCD_ENDPOINTS": c.EtcdEndpoint()})
	e := clitest.StartExporter(t, c.KubeconfigPath(), "--agents")
	e.Ready()
	compare := func() {
		t.Helper()
		checkNumbers(t, e.Scrape(), clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").Report(t), true)
	}
	compare()
	if _, asks := e.Scrape()["calico_audit_host_view_requests_total"]; !asks {
		t.Error("it does not ask agents")
	}
	key := "/calico/resources/v3/projectcalico.org/ippools/pods-v4"
	for _, disabled := range []string{"true", "false"} {
		stored, err := c.Etcd.Get(t.Context(), key)
		if err != nil || len(stored.Kvs) != 1 {
			t.Fatalf("%d values: %v", len(stored.Kvs), err)
		}
		text := string(stored.Kvs[0].Value)
		text = strings.ReplaceAll(text, `,"disabled":true`, "")
		if disabled == "true" {
			text = strings.Replace(text, `"spec":{`, `"spec":{"disabled":true,`, 1)
		} else {
			text = strings.ReplaceAll(text, `"disabled":true,`, "")
		}
		if _, err := c.Etcd.Put(t.Context(), key, text); err != nil {
			t.Fatal(err)
		}
		clitest.Await(t, "disabled is "+disabled, func() bool {
			_, body := e.Get("/report.json")
			return strings.Contains(body, `"disabled": `+disabled) || strings.Contains(body, `"disabled":`+disabled) || disabled == "false" && !strings.Contains(body, `"disabled"`)
		})
	}
	const without = `calico_audit_nodes_without_block{ip_family="IPv4"}`
	before := e.Scrape()[without]
	if _, err := c.Kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new-3"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clitest.Await(t, "one more node needs a block", func() bool { return e.Scrape()[without] == before+1 })
	clitest.Await(t, "all is confirmed by a second reading", func() bool {
		_, body := e.Get("/report.json")
		return !strings.Contains(body, "it awaits a second reading")
	})
	compare()
	for _, name := range []string{"old-1", "old-2", "new-1", "new-2"} { // only new-3 is left, which Calico does not know
		if err := c.Kube.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Await(t, "gaps, because Kubernetes and etcd have no node in common", func() bool {
		_, body := e.Get("/report.json")
		return strings.Contains(body, "is it another cluster?") && strings.Contains(body, `"complete": false`)
	})
	if code, logs := e.End(); code != exit.CodeOK {
		t.Errorf("it ended with %d:\n%s", code, logs)
	}
}

// TestTwins: a random state gives the same findings and the same plans in etcd as in Kubernetes.
func TestTwins(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	seed := testenv.Seed(t)
	if err := seeding.Random(t.Context(), c, seed); err != nil {
		t.Fatal(err)
	}
	if err := c.Backdate(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var plans [][]string
	for _, q := range repair.Requests {
		if q.Field != nil {
			plans = append(plans, []string{"--" + q.Flag})
		}
	}
	plans = append(plans, []string{"--strict-affinity=true"})
	read := func() (out []string) {
		r := clitest.Run(t, "report", "--grace", "1s", "--kubeconfig", c.KubeconfigPath(), "-o", "json")
		out = append(facts(r.Report(t)), "exit "+fmt.Sprint(r.Code))
		for _, p := range plans {
			file := filepath.Join(dir, "plan.json")
			o := clitest.Run(t, append([]string{"repair", "--grace", "1s", "--kubeconfig", c.KubeconfigPath(), "--out", file}, p...)...)
			if out = append(out, fmt.Sprintf("%v: exit %d", p, o.Code)); o.Code == exit.CodeOK {
				out = append(out, steps(t, file)...)
			}
		}
		return out
	}
	time.Sleep(1200 * time.Millisecond) // ages that etcd does record are kept
	want := read()
	if err := seeding.CopyToEtcd(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	inEtcd(t, map[string]string{"ETCD_ENDPOINTS": c.EtcdEndpoint()})
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("seed %d (-Kubernetes +etcd):\n%s", seed, diff)
	}
}

// TestRepairWithoutKubernetes repairs a Calico of hosts, without a cluster. Addresses of its
// endpoints stay. The ID of the leaked handle has capital letters, which only etcd's keys preserve.
func TestRepairWithoutKubernetes(t *testing.T) {
	ctx, c := t.Context(), testcluster.Shared(t, testcluster.Options{})
	if err := c.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := seeding.NewEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	calico, handle := s.Calico, "vm-1"
	errs := []error{s.Init(ctx), s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}), s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.64.0.0/24", BlockSize: 26})}
	for _, name := range []string{"a", "b"} {
		node := libapiv3.NewNode()
		node.Name = name
		_, err := calico.Nodes().Create(ctx, node, options.SetOptions{})
		errs = append(errs, err)
	}
	errs = append(errs, s.ClaimBlocks(ctx, "a", netip.MustParsePrefix("10.64.0.0/26")), s.ClaimBlocks(ctx, "a", netip.MustParsePrefix("10.64.0.64/26")),
		calico.IPAM().AssignIP(ctx, ipam.AssignIPArgs{IP: cnet.MustParseIP("10.64.0.1"), HandleID: &handle, Hostname: "a", Attrs: map[string]string{"node": "a"}}))
	e := libapiv3.NewWorkloadEndpoint()
	e.Name, e.Namespace = "a-openstack-vm--1-eth0", "default"
	e.Spec = libapiv3.WorkloadEndpointSpec{Orchestrator: "openstack", Node: "a", Workload: "vm-1", Endpoint: "eth0", InterfaceName: "tap1", IPNetworks: []string{"10.64.0.1/32"}}
	_, err = calico.WorkloadEndpoints().Create(ctx, e, options.SetOptions{})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	leaked := "/calico/ipam/v2/handle/Hosts.VM-2"
	if _, err := c.Etcd.Put(ctx, leaked, `{"block":{"10.64.0.64/26":1}}`); err != nil {
		t.Fatal(err)
	}
	inEtcd(t, map[string]string{"ETCD_ENDPOINTS": c.EtcdEndpoint(), "HOME": t.TempDir()})
	t.Chdir(t.TempDir())
	time.Sleep(1200 * time.Millisecond)
	for _, args := range [][]string{
		{"repair", "--empty-blocks", "--leaked-ips", "--leaked-handles", "--without-host-evidence", "--grace", "1s", "--out", "plan.json"},
		{"repair", "apply", "plan.json", "--yes", "--wait"},
	} {
		if o := clitest.Run(t, args...); o.Code != exit.CodeOK {
			t.Fatalf("%q: exit code %d:\n%s\n%s", args, o.Code, o.Stdout, o.Err)
		}
	}
	left, err := c.Etcd.Get(ctx, "/calico/ipam/v2/assignment/", clientv3.WithPrefix())
	if err != nil || len(left.Kvs) != 1 || recordedIn(t, c)[netip.MustParseAddr("10.64.0.1")] != handle {
		t.Errorf("%d blocks, which record %v: %v", len(left.Kvs), recordedIn(t, c), err)
	}
	if left, err := c.Etcd.Get(ctx, leaked); err != nil || len(left.Kvs) > 0 {
		t.Errorf("the leaked handle is %v: %v", left.Kvs, err)
	}
}

// TestPlanOfASnapshotOfEtcd: a snapshot of etcd leads to the same plan as etcd itself. apply makes
// the two observations that objects without an age need.
func TestPlanOfASnapshotOfEtcd(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := seeding.NewEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	damaged(t, s)
	inEtcd(t, map[string]string{"ETCD_ENDPOINTS": c.EtcdEndpoint()})
	t.Chdir(t.TempDir())
	time.Sleep(1200 * time.Millisecond)
	var plans [][]string
	for _, args := range [][]string{
		{"snapshot", "-o", "etcd.yaml", "--kubeconfig", c.KubeconfigPath()},
		{"repair", "--grace", "1s", "--empty-blocks", "--out", "live.json", "--kubeconfig", c.KubeconfigPath()},
		{"repair", "--grace", "1s", "--empty-blocks", "--out", "files.json", "-f", "etcd.yaml"},
		{"repair", "apply", "files.json", "--yes", "--wait", "--kubeconfig", c.KubeconfigPath()},
	} {
		o := clitest.Run(t, args...)
		if o.Code != exit.CodeOK {
			t.Fatalf("%q: exit code %d:\n%s\n%s", args, o.Code, o.Stdout, o.Err)
		}
		if args[0] == "repair" && args[1] == "--grace" {
			plans = append(plans, steps(t, args[5]))
		}
	}
	if len(plans[0]) == 0 || !slices.Equal(plans[0], plans[1]) {
		t.Errorf("steps from etcd %q, from the snapshot %q", plans[0], plans[1])
	}
	left, err := c.Etcd.Get(t.Context(), "/calico/ipam/v2/assignment/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 4-int64(len(plans[0])) {
		t.Errorf("%d blocks are left after %q: %v", left.Count, plans[0], err)
	}
}
