package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/supervise"
)

func TestBothGroupsAreServed(t *testing.T) {
	c := Shared(t, Options{Groups: []Group{CRDv1, NativeV3}})
	for _, group := range c.Groups {
		served, err := c.served(group)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group.Resources() {
			if !served[r.Resource] {
				t.Errorf("discovery does not list %s of %s", r.Resource, group)
			}
			if _, err := c.List(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestKilledProcessLeavesNothingBehind(t *testing.T) {
	SkipIfShort(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envHelper+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var report helperReport
	err = json.NewDecoder(stdout).Decode(&report)
	if killErr := cmd.Process.Kill(); killErr != nil {
		t.Fatal(killErr)
	}
	if err != nil {
		t.Fatalf("reading the helper's report: %v", err)
	}
	_ = cmd.Wait()

	if len(report.PIDs) != 4 {
		t.Fatalf("the helper had processes %v, not two servers with their supervisors", report.PIDs)
	}
	eventually(t, "the servers' end", func() error {
		for _, pid := range report.PIDs {
			if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				return fmt.Errorf("process %d is still there", pid)
			}
		}
		if _, err := os.Stat(report.Dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is still there", report.Dir)
		}
		return nil
	})
}

func TestUserHasJustTheRightsGiven(t *testing.T) {
	c := Shared(t, Options{})
	ctx := t.Context()
	cfg, err := c.UserConfig("reader")
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	blocks := client.Resource(CRDv1.Resource("ipamblocks").GroupVersionResource)
	if _, err := blocks.List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("before any right is given, a LIST gives %v, not Forbidden", err)
	}
	err = c.Allow(ctx, "reader", rbacv1.PolicyRule{
		APIGroups: []string{"crd.projectcalico.org"}, Resources: []string{"ipamblocks"}, Verbs: []string{"list"},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the right to list blocks", func() error {
		_, err := blocks.List(ctx, metav1.ListOptions{})
		return err
	})
	if err := blocks.Delete(ctx, "x", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a DELETE that is not allowed gives %v, not Forbidden", err)
	}
	nodes := client.Resource(Core[1].GroupVersionResource)
	if _, err := nodes.List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a LIST of nodes that is not allowed gives %v, not Forbidden", err)
	}
}

func TestAPIServerComesBackWithItsData(t *testing.T) {
	c := Shared(t, Options{})
	ctx := t.Context()
	createNode(t, c)
	host := c.Config.Host
	c.StopAPIServer()
	if _, err := c.List(ctx, Core[1]); err == nil {
		t.Fatal("a stopped API server answers")
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if c.Config.Host != host {
		t.Errorf("the API server came back at %s, not %s", c.Config.Host, host)
	}
	nodes, err := c.List(ctx, Core[1])
	if err != nil || len(nodes) != 1 {
		t.Errorf("after the restart there are %d nodes (%v), not 1", len(nodes), err)
	}
}

func TestWatchCacheIsSwitched(t *testing.T) {
	c := Shared(t, Options{})
	ctx := t.Context()
	createNode(t, c)
	without := c.apiserver.process.PID()
	if err := c.SetWatchCache(ctx, true); err != nil {
		t.Fatal(err)
	}
	with := c.apiserver.process.PID()
	if with == without {
		t.Error("the API server was not started again")
	}
	nodes, err := c.List(ctx, Core[1])
	if err != nil || len(nodes) != 1 {
		t.Errorf("with the cache there are %d nodes (%v), not 1", len(nodes), err)
	}
	if err := c.SetWatchCache(ctx, true); err != nil || c.apiserver.process.PID() != with {
		t.Errorf("the API server was started again without need (%v)", err)
	}
}

func TestTakenPortIsTold(t *testing.T) {
	SkipIfShort(t)
	etcd, err := programs.Binary(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	url := "http://" + l.Addr().String()
	dir := t.TempDir()
	s := &server{
		name: "etcd", logPath: dir + "/log",
		spec: supervise.Spec{Path: etcd, Args: []string{
			"--data-dir=" + dir + "/data", "--listen-client-urls=" + url, "--advertise-client-urls=" + url,
			"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls=http://127.0.0.1:0",
			"--initial-cluster=default=http://127.0.0.1:0",
		}},
		ready: func(context.Context) error { return errors.New("never") },
	}
	if err := s.start(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("starting on a taken port gives %v, not that the port is taken", err)
	}
}

func TestResetEmpties(t *testing.T) {
	c := Shared(t, Options{})
	ctx := t.Context()
	createNode(t, c)
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	pod := map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "main", "image": "app"}}}
	pool := map[string]any{"cidr": "10.90.0.0/24", "blockSize": int64(28)}
	err := errors.Join(
		c.Create(ctx, Core[0], map[string]any{"metadata": named("shop")}),
		c.Create(ctx, Core[2], map[string]any{"metadata": map[string]any{"name": "p1", "namespace": "shop"}, "spec": pod}),
		c.Create(ctx, CRDv1.Resource("ippools"), map[string]any{"metadata": named("pods"), "spec": pool}),
		c.Create(ctx, CRDv1.Resource("ipamhandles"), map[string]any{"metadata": named("h1")}),
		c.Create(ctx, CRDv1.Resource("felixconfigurations"), map[string]any{"metadata": named("default")}), // namespaces may have the same name
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	for _, r := range append(CRDv1.Resources(), Core...) {
		objects, err := c.List(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if r.Kind == "Namespace" {
			want = len(systemNamespaces)
		}
		if len(objects) != want {
			t.Errorf("after a reset there are %d %s, not %d", len(objects), r.Resource, want)
		}
	}
}

// plays counts the calls of twoNodes.
var plays int

func twoNodes(ctx context.Context, c *Cluster) error {
	plays++
	for _, name := range []string{"n1", "n2"} {
		if err := c.Create(ctx, Core[1], map[string]any{"metadata": map[string]any{"name": name}}); err != nil {
			return err
		}
	}
	return c.Backdate(ctx, time.Hour)
}

// TestPlay checks that a scenario runs once, and that its restored state has its original
// age.
func TestPlay(t *testing.T) {
	c := Shared(t, Options{})
	c.Play(t, twoNodes)
	time.Sleep(1100 * time.Millisecond) // ages are whole seconds
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Play(t, twoNodes)
	nodes, err := c.List(t.Context(), Core[1])
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 2 || plays != 1 {
		t.Fatalf("%d nodes after %d runs, want 2 after 1", len(nodes), plays)
	}
	for _, n := range nodes {
		if age := time.Since(n.GetCreationTimestamp().Time); age < time.Hour || age > time.Hour+3*time.Second {
			t.Errorf("node/%s is %v old, want an hour", n.GetName(), age)
		}
	}
}

// createNode creates the node n1.
func createNode(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.Create(t.Context(), Core[1], map[string]any{"metadata": map[string]any{"name": "n1"}}); err != nil {
		t.Fatal(err)
	}
}

// eventually fails the test unless check returns nil within 15 seconds.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Errorf("waiting for %s: %v", what, err)
}
