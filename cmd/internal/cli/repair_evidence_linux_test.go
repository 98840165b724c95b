package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// nodeMachine is a machine with its own processes, mounts and network, with a node's
// address and pods.
type nodeMachine struct {
	t    *testing.T
	pid  string
	node string
}

func newNodeMachine(t *testing.T, node string, address netip.Prefix) *nodeMachine {
	t.Helper()
	testenv.Root(t)
	testenv.Program(t, "ip", "iproute2")
	testenv.Program(t, "unshare", "util-linux")
	testenv.Program(t, "nsenter", "util-linux")
	// Mounts of the test's machine must not be visible.
	c := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--net", "--mount", "--propagation", "private", "sh", "-ec", `
		for d in $(awk '$4 ~ /^net:/ {print $5}' /proc/self/mountinfo); do umount $d || [ ! -e $d ]; done # it is gone if its maker has removed it
		ip link set lo up
		ip link add uplink type veth peer name far
		ip addr add `+address.String()+` dev uplink
		ip link set uplink up
		echo ready
		exec sleep 3600`)
	c.SysProcAttr, c.Stderr = &syscall.SysProcAttr{Setpgid: true}, os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	})
	ready := make([]byte, 6)
	if _, err := out.Read(ready); err != nil || string(ready) != "ready\n" {
		t.Fatalf("the machine does not start: %q, %v", ready, err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
	if err != nil || len(bytes.Fields(children)) != 1 {
		t.Fatalf("the machine's first process: %q, %v", children, err)
	}
	return &nodeMachine{t, string(bytes.TrimSpace(children)), node}
}

// command returns a command that runs on the machine.
func (m *nodeMachine) command(args ...string) *exec.Cmd {
	c := exec.Command("nsenter", append([]string{"-t", m.pid, "--pid", "--net", "--mount", "--"}, args...)...)
	c.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=")
	return c
}

// pod runs a process with its own address, and returns a function that ends it.
func (m *nodeMachine) pod(address netip.Addr) (end func()) {
	m.t.Helper()
	c := m.command("sh", "-ec", `
		ip link add cali1 type veth peer name eth0
		unshare --net sleep 3600 &
		until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep .01; done
		ip link set eth0 netns $!
		ip link set cali1 up
		nsenter -t $! -n ip addr add `+address.String()+`/32 dev eth0
		nsenter -t $! -n ip link set eth0 up
		echo $!
		wait`)
	out, err := c.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	var errOut bytes.Buffer
	c.Stderr = &errOut
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	text := make([]byte, 32)
	n, err := out.Read(text)
	if err != nil {
		m.t.Fatalf("the pod does not start: %v: %s", err, &errOut)
	}
	pid := strings.TrimSpace(string(text[:n]))
	return func() {
		m.t.Helper()
		if out, err := m.command("kill", "-9", pid).CombinedOutput(); err != nil {
			m.t.Fatalf("ending the pod: %v: %s", err, out)
		}
		_ = c.Wait()
		// The kernel removes its namespace a moment later, and with it the veth pair.
		for end := time.Now().Add(20 * time.Second); m.command("ip", "link", "show", "cali1").Run() == nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				m.t.Fatal("the pod's interface does not go away")
			}
		}
	}
}

// view runs the agent on the machine, which writes its host view to the directory of views.
func (m *nodeMachine) view() *blocks.HostView {
	m.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	program := filepath.Join(m.t.TempDir(), "calico-audit") // under this name TestMain runs the program
	if err := os.Symlink(exe, program); err != nil {
		m.t.Fatal(err)
	}
	c := m.command(program, "agent", "--once", "--node", m.node, "-o", "json")
	var errOut bytes.Buffer
	c.Stderr = &errOut
	text, err := c.Output()
	if err != nil {
		m.t.Fatalf("%v: %s", err, &errOut)
	}
	view := new(blocks.HostView)
	if err := json.Unmarshal(text, view); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("views", m.node+".json"), text, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return view
}

// TestEvidence: a leaked address of a real cluster, on a machine with a real kernel. It is
// only released if the machine itself shows that it is unused, both when the plan is made
// and when it is applied.
func TestEvidence(t *testing.T) {
	ctx := t.Context()
	cluster := testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(cluster)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	address := netip.MustParsePrefix("172.16.7.1/16")
	must(s.Init(ctx))
	must(s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.7.0.0/24", BlockSize: 28}))
	must(s.Node(ctx, seeding.Node{Name: "n1", IPv4: address}))
	must(s.Node(ctx, seeding.Node{Name: "n2", NotReady: true}))
	pod := func(name, node string) netip.Addr {
		t.Helper()
		addrs, err := s.Pod(ctx, seeding.Pod{Namespace: "default", Name: name, Node: node})
		must(err)
		return addrs[0]
	}
	pod("stays", "n1")
	leaked, silent := pod("leaver", "n1"), pod("silent", "n2")
	must(s.DeletePod(ctx, "default", "leaver", false))
	must(s.DeletePod(ctx, "default", "silent", false))
	must(cluster.Backdate(ctx, time.Hour))
	must(cluster.Heartbeat(ctx))
	t.Chdir(t.TempDir())
	must(os.Mkdir("views", 0o700))
	m := newNodeMachine(t, "n1", address)

	plan := func(args ...string) (*repair.Plan, clitest.Outcome) {
		t.Helper()
		got := clitest.RunOn(t, cluster, append([]string{"repair", "--leaked-ips", "--grace", "2s", "--out", "plan.json", "-o", "json"}, args...)...)
		if got.Code != exit.CodeOK {
			t.Fatalf("%v: exit code %d: %s", args, got.Code, got.Err)
		}
		return got.Plan(t), got
	}
	steps := func(p *repair.Plan) string {
		var out []string
		for _, s := range p.Steps {
			out = append(out, s.Target.IP)
		}
		return strings.Join(out, " ")
	}
	refusal := func(p *repair.Plan, ip netip.Addr) string {
		for _, r := range p.Refused {
			if r.Target.IP == ip.String() {
				return string(r.Code) + ": " + r.Reason
			}
		}
		return ""
	}
	applied := func(code int, want string, args ...string) {
		t.Helper()
		got := clitest.RunOn(t, cluster, append([]string{"repair", "apply", "plan.json", "--yes", "--wait", "-o", "json"}, args...)...)
		if has := clitest.Statuses(got.Result(t)); got.Code != code || has != want {
			t.Errorf("apply %v ends with %d, %s; want %d, %s: %s%s", args, got.Code, has, code, want, got.Stdout, got.Err)
		}
	}

	p, _ := plan()
	if r := refusal(p, leaked); steps(p) != "" || !strings.HasPrefix(r, "NoHostEvidence: ") || !strings.Contains(r, "calico-audit agent --once --node n1 -o json > n1.json") {
		t.Errorf("without any view: steps %s, %s", steps(p), r)
	}
	if r := refusal(p, silent); !strings.HasPrefix(r, "machine-may-run: ") || !strings.Contains(r, "--terminated n2") {
		t.Errorf("of a node that is not Ready: %s", r)
	}

	end := m.pod(leaked)
	if v := m.view(); !v.NamespacesComplete || v.BootID == "" {
		t.Fatalf("the machine's view is not complete: %q", v.Gaps)
	}
	p, _ = plan("--host-views", "views", "--without-host-evidence")
	if r := refusal(p, leaked); steps(p) != "" || !strings.HasPrefix(r, "HostView: ") {
		t.Errorf("while a process uses it: steps %s, %s", steps(p), r)
	}

	end()
	m.view()
	if p, _ = plan("--host-views", "views"); steps(p) != leaked.String() {
		t.Fatalf("once nothing uses it: steps %s, refused %+v", steps(p), p.Refused)
	}
	applied(exit.CodeUnfinished, "skipped NoHostEvidence")
	old, err := os.ReadFile("views/n1.json")
	must(err)
	var view map[string]any
	must(json.Unmarshal(old, &view))
	view["takenAt"] = time.Now().Add(-11 * time.Minute).UTC().Format(time.RFC3339)
	stale, err := json.Marshal(view)
	must(err)
	must(os.WriteFile("views/n1.json", stale, 0o600))
	applied(exit.CodeUnfinished, "skipped NoHostEvidence", "--host-views", "views")
	end = m.pod(leaked)
	m.view()
	applied(exit.CodeUnfinished, "skipped HostView", "--host-views", "views")
	end()
	m.view()
	applied(exit.CodeOK, "done", "--host-views", "views")

	// The other address: the operator confirms that its machine is off, until the node is
	// Ready again.
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--terminated", "n1"}, "--terminated n1: the node is Ready"},
		{[]string{"--terminated", "n9"}, "--terminated n9: no such node"},
	} {
		got := clitest.Run(t, append([]string{"repair", "--leaked-ips"}, append(c.args, "--kubeconfig", cluster.KubeconfigPath())...)...)
		if got.Code != exit.CodeUsage || !strings.Contains(got.Err, c.want) || strings.Count(strings.TrimSpace(got.Err), "\n") > 0 {
			t.Errorf("%v: exit code %d: %s", c.args, got.Code, got.Err)
		}
	}
	p, got := plan("--terminated", "all")
	if steps(p) != silent.String() || fmt.Sprint(p.Request.Terminated) != "[n2]" || p.Request.WithoutHostEvidence {
		t.Fatalf("steps %s, request %+v, refused %+v: %s", steps(p), p.Request, p.Refused, got.Err)
	}
	node, err := cluster.Kube.CoreV1().Nodes().Get(ctx, "n2", metav1.GetOptions{})
	must(err)
	for i := range node.Status.Conditions {
		if x := &node.Status.Conditions[i]; x.Type == corev1.NodeReady {
			x.Status = corev1.ConditionTrue
		}
	}
	_, err = cluster.Kube.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(err)
	applied(exit.CodeUnfinished, "skipped NoHostEvidence")
}
