package cli_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// ownAddress returns an address of this machine that the API server is willing to proxy to:
// it refuses loopback and link-local ones.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Fatal("this test needs a network address other than a loopback or link-local one: the API server does not proxy to those")
	return ""
}

// agentServer serves host views like an agent, and returns its port.
func agentServer(t *testing.T, tls bool, handler http.HandlerFunc) int32 {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ownAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	_ = s.Listener.Close()
	s.Listener = l
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// agentPod creates the pod of an agent, like that of a DaemonSet on the host network.
func agentPod(t *testing.T, c *testcluster.Cluster, node string, port int32, change func(*corev1.Pod)) {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "calico-audit-agent-" + node, Labels: map[string]string{"app.kubernetes.io/name": "calico-audit-agent"}},
		Spec: corev1.PodSpec{NodeName: node, HostNetwork: true, Containers: []corev1.Container{{
			Name: "agent", Image: "registry.example.org/calico-audit:1", Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1, HostPort: 1}, {Name: "agent", ContainerPort: port, HostPort: port}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ownAddress(t), PodIPs: []corev1.PodIP{{IP: ownAddress(t)}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if change != nil {
		change(p)
	}
	status := p.Status
	made, err := c.Kube.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status = status
	if _, err := c.Kube.CoreV1().Pods(p.Namespace).UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// viewJSON returns a host view of a node whose kernel drops traffic to its blocks.
func viewJSON(node string, at time.Time, blocks ...string) string {
	var routes []string
	for _, b := range blocks {
		routes = append(routes, fmt.Sprintf(`{"dst":%q,"type":"blackhole","protocol":"bird","table":"main","metric":0}`, b))
	}
	return fmt.Sprintf(`{"apiVersion":"calico-audit/v1alpha1","kind":"HostView","node":%q,"takenAt":%q,"routes":[%s],"namespaces":[]}`,
		node, at.UTC().Format(time.RFC3339Nano), strings.Join(routes, ","))
}

// hostGapOf returns the gaps of a node.
func hostGapOf(r *audit.Report, node string) string {
	var out []string
	for _, g := range r.HostGaps {
		if g.Node == node {
			out = append(out, g.String())
		}
	}
	return strings.Join(out, "\n")
}

// TestAgents: requests to agents pass through a real API server, and prove the story's
// blackhole.
func TestAgents(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	r := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").Report(t)
	blocksOf := map[string][]string{}
	for _, n := range r.Nodes {
		blocksOf[n.Name] = n.Blocks
	}
	if got := clitest.Findings(r, "route/blackhole"); len(got) != 4 || got[0].Severity != state.Error || r.HostViews != nil || r.HostGaps != nil {
		t.Fatalf("without views: %+v, views %v, gaps %v", got, r.HostViews, r.HostGaps)
	}

	var asked atomic.Int64
	serve := func(view func() string) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path != "/hostview" || q.Method != http.MethodGet {
				http.NotFound(w, q)
				return
			}
			asked.Add(1)
			_, _ = w.Write([]byte(view()))
		}
	}
	agentPod(t, c, "old-1", agentServer(t, false, serve(func() string { return viewJSON("old-1", time.Now(), blocksOf["old-1"]...) })), nil)
	agentPod(t, c, "old-2", agentServer(t, true, serve(func() string { return viewJSON("old-2", time.Now(), blocksOf["old-2"]...) })), func(p *corev1.Pod) {
		p.Annotations = map[string]string{"calico-audit/agent-scheme": "https"}
	})
	// new-1's agent returns the view of another node; new-2 has no agent.
	agentPod(t, c, "new-1", agentServer(t, false, serve(func() string { return viewJSON("old-1", time.Now(), "10.64.75.0/24") })), nil)

	got := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "--agents", "-o", "json")
	r = got.Report(t)
	if got.Code != exit.CodeOK || !r.Complete {
		t.Errorf("exit code %d, complete %t: %s", got.Code, r.Complete, got.Err)
	}
	var views []string
	for _, v := range r.HostViews {
		views = append(views, fmt.Sprintf("%s %t %s %d", v.Node, v.Agent, v.Source, v.Routes))
	}
	if want := []string{"new-1 true pod kube-system/calico-audit-agent-new-1 1", "old-1 true pod kube-system/calico-audit-agent-old-1 2", "old-2 true pod kube-system/calico-audit-agent-old-2 2"}; !slices.Equal(views, want) {
		t.Errorf("views %v, want %v; gaps %v", views, want, r.HostGaps)
	}
	for node, want := range map[string]string{
		"new-1": `the agent reports node "old-1", but its pod is on "new-1"`,
		"new-2": "no agent runs on it: no pod in any namespace with the labels app.kubernetes.io/name=calico-audit-agent is bound to it",
	} {
		if got := hostGapOf(r, node); !strings.Contains(got, want) {
			t.Errorf("gap of %s: %q, want %q", node, got, want)
		}
	}
	proven := clitest.Findings(r, "route/blackhole")
	for _, f := range proven {
		if f.Severity != state.Critical || !strings.Contains(clitest.Evidence(f, "host view"), "pod kube-system/calico-audit-agent-"+clitest.Evidence(f, "owner")) {
			t.Errorf("%s %s: %v", f.Severity, f.Subject.IP, f.Evidence)
		}
	}
	if foreign := clitest.Findings(r, "route/stray-blackhole"); len(proven) != 4 || len(foreign) > 0 {
		t.Errorf("%d blackholes proven, want 4; strays %v", len(proven), foreign)
	}
	// A severe finding is read again, including the agents.
	if n := asked.Load(); n != 6 {
		t.Errorf("the agents were asked %d times, want twice each", n)
	}
	table := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "--agents")
	if !strings.Contains(table.Stdout, "Host views: of 3 of 4 nodes") || !strings.Contains(table.Stdout, "new-2: no agent runs on it") {
		t.Errorf("the table does not tell of the views:\n%s", table.Stdout)
	}
	explained := clitest.Run(t, "explain", proven[0].Subject.IP, "--kubeconfig", c.KubeconfigPath(), "--agents")
	if !strings.Contains(explained.Stdout, "it matches blackhole route ") {
		t.Errorf("explain does not tell what the node says:\n%s%s", explained.Stdout, explained.Err)
	}
}

// TestAgentsThatFail: failing agents do not prevent the report, which names their nodes.
func TestAgentsThatFail(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	cases := []struct {
		node    string
		handler http.HandlerFunc
		change  func(*corev1.Pod)
		want    string
	}{
		{"silent", func(_ http.ResponseWriter, q *http.Request) {
			select {
			case <-q.Context().Done():
			case <-ended:
			}
		}, nil, "its agent did not answer within 2s"},
		{"broken", text(`{"apiVersion": "calico-audit/v1alpha1",`), nil, "the agent's answer is not JSON"},
		{"wrong", text(`{"kind": "Status"}`), nil, `it is of kind "Status"`},
		{"failing", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no netlink", http.StatusInternalServerError)
		}, nil, "500 Internal Server Error: no netlink"},
		{"moved", func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "http://192.0.2.1/", http.StatusFound)
		}, nil, "302 Found"},
		{"large", func(w http.ResponseWriter, _ *http.Request) {
			chunk := make([]byte, 1<<20)
			for range 20 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, nil, "its answer has more than 16 MiB"},
		{"stale", text(viewJSON("stale", time.Now().Add(-11*time.Minute))), nil, "more than 10 minutes before the cluster was read"},
		{"fast", text(viewJSON("fast", time.Now().Add(5*time.Minute))), nil, "in the future"},
		{"plain", text(viewJSON("plain", time.Now())), func(p *corev1.Pod) { p.Annotations = map[string]string{"calico-audit/agent-scheme": "https"} }, "its agent could not be queried: "},
		{"pending", text(""), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, "its agent's pod is not running, but Pending"},
		{"portless", text(""), func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }, "names no container port"},
		{"loopback", text(""), func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "127.0.0.1", []corev1.PodIP{{IP: "127.0.0.1"}} }, "its agent could not be queried: "},
		{"good", text(viewJSON("good", time.Now())), nil, ""},
	}
	for _, x := range cases {
		if err := s.Node(t.Context(), seeding.Node{Name: x.node}); err != nil {
			t.Fatal(err)
		}
		agentPod(t, c, x.node, agentServer(t, false, x.handler), x.change)
	}
	got := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "--agents", "--agents-timeout", "2s", "--agents-namespace", "kube-system", "-o", "json")
	r := got.Report(t)
	if got.Code != exit.CodeOK || !r.Complete || len(r.Findings) > 0 {
		t.Errorf("exit code %d, complete %t, findings %v: %s", got.Code, r.Complete, r.Findings, got.Err)
	}
	for _, x := range cases {
		if gap := hostGapOf(r, x.node); !strings.Contains(gap, x.want) || x.want == "" && gap != "" {
			t.Errorf("%s: gap %q, want %q", x.node, gap, x.want)
		}
	}
	none := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "--agents", "--agents-selector", "app=none", "-o", "json").Report(t)
	if len(none.HostGaps) != 1 || !strings.Contains(none.HostGaps[0].Reason, "no agent was found: no pod in any namespace has the labels app=none") {
		t.Errorf("gaps %v", none.HostGaps)
	}
}

// TestAgentRights: the rights in examples/kubernetes/rbac-agents suffice to ask the agents.
// Without them the report names the missing right.
func TestAgentRights(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	kubeconfig, err := c.UserKubeconfig("asker")
	if err != nil {
		t.Fatal(err)
	}
	s, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Node(t.Context(), seeding.Node{Name: "n1"}); err != nil {
		t.Fatal(err)
	}
	agentPod(t, c, "n1", agentServer(t, false, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(viewJSON("n1", time.Now())))
	}), nil)
	if err := c.Allow(t.Context(), "asker", clitest.ShippedRole(t, "../../..").Rules...); err != nil {
		t.Fatal(err)
	}
	ask := func() *audit.Report {
		return clitest.Run(t, "report", "--kubeconfig", kubeconfig, "--agents", "-o", "json").Report(t)
	}
	clitest.AwaitReport(t, "the base rights alone", ask, func(r *audit.Report) bool {
		return r.Complete && len(r.HostViews) == 0 && strings.Contains(hostGapOf(r, "n1"), "forbidden: needs the right to get pods/proxy")
	})
	var role rbacv1.ClusterRole
	var binding rbacv1.RoleBinding
	readExample(t, "rbac-agents/clusterrole.yaml", &role)
	readExample(t, "rbac-agents/rolebinding.yaml", &binding)
	if got := fmt.Sprint(role.Rules); got != fmt.Sprint([]rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods/proxy"}}}) {
		t.Errorf("the role allows more than to ask agents, or less: %s", got)
	}
	if err := c.ApplyClusterRole(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
	binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "asker"}}
	if _, err := c.Kube.RbacV1().RoleBindings(binding.Namespace).Create(t.Context(), &binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clitest.AwaitReport(t, "the rights of rbac-agents as well", ask, func(r *audit.Report) bool {
		return r.Complete && len(r.HostViews) == 1 && len(r.HostGaps) == 0
	})
}

func readExample(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../../examples/kubernetes", name))
	if err == nil {
		err = yaml.UnmarshalStrict(raw, into)
	}
	if err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
}

// TestHostFlags: invalid flags are usage errors.
func TestHostFlags(t *testing.T) {
	story := "../../../examples/snapshots/story"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-f", story, "--agents"}, "--agents cannot be used with -f"},
		{[]string{"-f", story, "--agents-namespace", "x"}, "--agents-namespace requires --agents"},
		{[]string{"-f", story, "--host-views-at", "2026-01-01T00:00:00Z"}, "--host-views-at requires --host-views"},
		{[]string{"-f", story, "--host-views", story, "--host-views-at", "noon"}, `reading --host-views-at: "noon" is not a time`},
		{[]string{"-f", story, "--host-views", "nowhere"}, "nowhere"},
		{[]string{"-f", story, "--host-views", "../../../Makefile"}, "Makefile: document 1, line "},
	} {
		for _, command := range [][]string{{"report"}, {"explain", "old-1"}} {
			got := clitest.Run(t, append(command, c.args...)...)
			if got.Code != exit.CodeUsage || !strings.Contains(got.Err, c.want) || got.Stdout != "" {
				t.Errorf("%v %v: exit code %d, %s", command, c.args, got.Code, got.Err)
			}
		}
	}
}

// TestProvenStory: the shipped host views prove the topology's prediction for the shipped
// story, and change nothing else.
func TestProvenStory(t *testing.T) {
	args := []string{"report", "-f", "../../../examples/snapshots/story", "-o", "json"}
	before := clitest.Run(t, args...).Report(t)
	got := clitest.Run(t, append(args, "--host-views", "../../../examples/hostviews/story")...)
	after := got.Report(t)
	if got.Code != exit.CodeOK || !after.Complete || len(after.HostViews) != 2 || len(after.HostGaps) > 0 {
		t.Fatalf("exit code %d, views %v, gaps %v", got.Code, after.HostViews, after.HostGaps)
	}
	severities := map[string]string{}
	for _, f := range before.Findings {
		severities[f.Fingerprint] = f.Severity.String()
	}
	if len(after.Findings) != len(before.Findings) {
		t.Errorf("%d findings with views, %d without", len(after.Findings), len(before.Findings))
	}
	proven := 0
	for _, f := range after.Findings {
		switch was := severities[f.Fingerprint]; {
		case f.Check == "route/blackhole" && was == "error" && f.Severity == state.Critical:
			proven++
		case was != f.Severity.String():
			t.Errorf("%s of %s was %q, and is %s with views", f.Check, f.Subject.ID(), was, f.Severity)
		}
	}
	if proven != 4 {
		t.Errorf("%d blackholes proven, want 4 (%s)", proven, strconv.Quote(got.Err))
	}
}
