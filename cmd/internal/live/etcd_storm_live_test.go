package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// running are the addresses of running pods, with their handles.
type running struct {
	sync.Mutex
	handles map[netip.Addr]string
}

func (r *running) start(t *testing.T, addr netip.Addr, handle string) {
	r.Lock()
	defer r.Unlock()
	if other := r.handles[addr]; other != "" {
		t.Errorf("%s is given to %s, and %s uses it", addr, handle, other)
	}
	r.handles[addr] = handle
}

// end reports whether the address is still recorded for its pod, which is about to end.
func (r *running) end(t *testing.T, c *testcluster.Cluster, addr netip.Addr) {
	r.Lock()
	defer r.Unlock()
	if got := recordedIn(t, c)[addr]; got != r.handles[addr] {
		t.Errorf("%s is used under %s, and etcd records %q", addr, r.handles[addr], got)
	}
	delete(r.handles, addr)
}

// recordedIn returns the handles of all addresses that blocks in etcd record.
func recordedIn(t *testing.T, c *testcluster.Cluster) map[netip.Addr]string {
	stored, err := c.Etcd.Get(context.WithoutCancel(t.Context()), "/calico/ipam/v2/assignment/", clientv3.WithPrefix())
	if err != nil {
		t.Error(err)
		return nil
	}
	out := map[netip.Addr]string{}
	for _, kv := range stored.Kvs {
		var b struct {
			CIDR        netip.Prefix
			Allocations []*int
			Attributes  []struct {
				Handle string `json:"handle_id"`
			}
		}
		if err := json.Unmarshal(kv.Value, &b); err != nil {
			t.Errorf("%s: %v", kv.Key, err)
		}
		addr := b.CIDR.Addr()
		for _, index := range b.Allocations {
			if index != nil {
				out[addr] = b.Attributes[*index].Handle
			}
			addr = addr.Next()
		}
	}
	return out
}

// TestStormInEtcd repairs a cluster with Calico's own etcd again and again, while pods start, end
// and leak addresses, and Calico's collector runs. No running pod may lose its address, and a
// repair must be able to clear the remaining problems.
func TestStormInEtcd(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	if err := c.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := seeding.NewEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	nodes := []string{"a", "b", "c"}
	for _, err := range []error{s.Init(ctx), s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}), s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.64.0.0/25", BlockSize: 29})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		if err := s.Node(ctx, seeding.Node{Name: n}); err != nil {
			t.Fatal(err)
		}
	}
	c.StartKubeControllersInEtcd(t)
	inEtcd(t, map[string]string{"ETCD_ENDPOINTS": c.EtcdEndpoint()})
	seed := testenv.Seed(t)
	end := time.Now().Add(20 * time.Second)
	pods := &running{handles: map[netip.Addr]string{}}
	var work sync.WaitGroup
	for i, node := range nodes {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		work.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				p := seeding.Pod{Namespace: "default", Name: fmt.Sprintf("%s-%d", node, n), Node: node}
				addrs, err := s.Pod(ctx, p)
				if err != nil {
					t.Logf("pod %s: %v", p.Name, err)
					continue
				}
				handle := seeding.Handle(p.Namespace, p.Name)
				pods.start(t, addrs[0], handle)
				time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
				if rnd.IntN(12) == 0 {
					continue // runs to the end
				}
				pods.end(t, c, addrs[0])
				release := rnd.IntN(4) > 0
				if err := s.DeletePod(ctx, p.Namespace, p.Name, release); err != nil {
					t.Error(err)
				}
				if _, err := c.Etcd.Delete(ctx, "/calico/resources/v3/projectcalico.org/workloadendpoints/default/"+node+"-k8s-"+strings.ReplaceAll(p.Name, "-", "--")+"-eth0"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Chdir(t.TempDir())
	repair := func() (done int) {
		o := clitest.Run(t, "repair", "--empty-blocks", "--leaked-ips", "--without-host-evidence", "--leaked-handles", "--orphan-affinities", "--missing-affinities",
			"--grace", "1s", "--apply", "--yes", "--wait", "-o", "json", "--kubeconfig", c.KubeconfigPath())
		if o.Code != exit.CodeOK && o.Code != exit.CodeUnfinished {
			t.Errorf("exit code %d: %s", o.Code, o.Err)
		}
		return strings.Count(o.Stdout, `"status": "done"`)
	}
	done := 0
	for time.Now().Before(end) {
		done += repair()
	}
	work.Wait()
	for range 5 {
		n := repair()
		if done += n; n == 0 {
			break
		}
	}
	recorded := recordedIn(t, c)
	for addr, handle := range pods.handles {
		if recorded[addr] != handle {
			t.Errorf("%s is used under %s, and etcd records %q", addr, handle, recorded[addr])
		}
	}
	r := clitest.Run(t, "report", "--grace", "1s", "-o", "json", "--kubeconfig", c.KubeconfigPath()).Report(t)
	for _, f := range r.Findings {
		switch f.Check {
		case "ip/leaked", "ip/unallocated", "ip/duplicate", "handle/leaked", "handle/count", "handle/missing", "affinity/no-block", "affinity/stuck", "block/no-affinity":
			t.Errorf("left: %s %s", f.Check, f.Message)
		}
	}
	t.Logf("seed %d: %d steps done, %d pods run", seed, done, len(pods.handles))
	if done < 3 {
		t.Errorf("only %d steps were done", done)
	}
}
