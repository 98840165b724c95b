package etcd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/blocks/etcd"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// large starts an etcd with 5,000 nodes, 10,000 blocks, and 150,000 endpoints and handles.
func large(b *testing.B) (*testcluster.Etcd, *etcd.Client) {
	b.Helper()
	const nodes, perNode = 5000, 30
	e := testcluster.StartEtcd(b)
	var ops []clientv3.Op
	put := func(key, value string) {
		if ops = append(ops, clientv3.OpPut(key, value)); len(ops) == 128 {
			if _, err := e.Client.Txn(b.Context()).Then(ops...).Commit(); err != nil {
				b.Fatal(err)
			}
			ops = nil
		}
	}
	at := netip.MustParseAddr("10.0.0.0")
	for n := range nodes {
		node := fmt.Sprintf("node-%d", n)
		put("/calico/resources/v3/projectcalico.org/nodes/"+node, fmt.Sprintf(`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"uid":"8c5cfd0e-6a4c-4a55-a5f5-%012d","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"bgp":{"ipv4Address":"192.168.%d.%d/16"}},"status":{}}`, node, n, n/250, n%250+1))
		for range 2 {
			var allocations, attributes, unallocated []string
			first := at
			for o := range 64 {
				if o >= perNode/2 {
					allocations, unallocated = append(allocations, "null"), append(unallocated, fmt.Sprint(o))
					at = at.Next()
					continue
				}
				pod := fmt.Sprintf("app-%d-%d", n, int(first.As4()[3])+o)
				handle := fmt.Sprintf("k8s-pod-network.%064d", n*1000+int(first.As4()[3])+o)
				allocations = append(allocations, fmt.Sprint(o))
				attributes = append(attributes, fmt.Sprintf(`{"handle_id":%q,"secondary":{"namespace":"default","node":%q,"pod":%q,"timestamp":"2026-01-01 00:00:00 +0000 UTC"}}`, handle, node, pod))
				put("/calico/ipam/v2/handle/"+handle, fmt.Sprintf(`{"block":{"%s/26":1},"deleted":false}`, first))
				name := strings.ReplaceAll(node, "-", "--") + "-k8s-" + strings.ReplaceAll(pod, "-", "--") + "-eth0"
				put("/calico/resources/v3/projectcalico.org/workloadendpoints/default/"+name, fmt.Sprintf(`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":"default","uid":"8c5cfd0e-6a4c-4a55-a5f5-%012d","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"web","projectcalico.org/namespace":"default","projectcalico.org/orchestrator":"k8s","projectcalico.org/serviceaccount":"default"}},"spec":{"orchestrator":"k8s","workload":"","node":%q,"containerID":"%064d","pod":%q,"endpoint":"eth0","ipNetworks":["%s/32"],"ipNATs":[],"ipv4Gateway":"","ipv6Gateway":"","profiles":["kns.default","ksa.default.default"],"interfaceName":"cali%011d","mac":"ee:ee:ee:ee:ee:ee","ports":[]}}`, name, n, node, n, pod, at, n))
				at = at.Next()
			}
			cidr := fmt.Sprintf("%s/26", first)
			put("/calico/ipam/v2/assignment/ipv4/block/"+strings.Replace(cidr, "/", "-", 1), fmt.Sprintf(`{"cidr":%q,"affinity":"host:%s","allocations":[%s],"unallocated":[%s],"attributes":[%s],"deleted":false,"sequenceNumber":1767225600000000000,"sequenceNumberForAllocation":{}}`,
				cidr, node, strings.Join(allocations, ","), strings.Join(unallocated, ","), strings.Join(attributes, ",")))
			put("/calico/ipam/v2/host/"+node+"/ipv4/block/"+strings.Replace(cidr, "/", "-", 1), `{"state":"confirmed","deleted":false}`)
		}
	}
	put("/calico/ipam/v2/config", `{"auto_allocate_blocks":true}`)
	if _, err := e.Client.Txn(b.Context()).Then(ops...).Commit(); err != nil {
		b.Fatal(err)
	}
	client, err := connect(e)
	if err != nil {
		b.Fatal(err)
	}
	return e, client
}

// connect returns a client of an etcd.
func connect(e *testcluster.Etcd) (*etcd.Client, error) {
	config := etcd.Config{CalicoAPIConfig: apiconfig.NewCalicoAPIConfig()}
	config.Spec.DatastoreType = apiconfig.EtcdV3
	config.Spec.EtcdEndpoints, config.Spec.EtcdCACertFile, config.Spec.EtcdCertFile, config.Spec.EtcdKeyFile = e.Endpoint, e.CAFile, e.CertFile, e.KeyFile
	return etcd.New(config, etcd.Options{})
}

// BenchmarkRead reports the time of a reading relative to a range over the same keys in pages of
// the same size that also unmarshals each value into Calico's own types, and the memory of a
// reading.
func BenchmarkRead(b *testing.B) {
	e, client := large(b)
	var ours, floor time.Duration
	for b.Loop() {
		began := time.Now()
		r, err := client.Read(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		ours += time.Since(began)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB/reading")
		runtime.KeepAlive(r)
		began = time.Now()
		rangeOver(b, e.Client)
		floor += time.Since(began)
	}
	b.ReportMetric(ours.Seconds()/floor.Seconds(), "of-range")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkWatch reports the time until a snapshot shows a change of an endpoint, relative to a
// complete reading, which the exporter would otherwise need. It also reports the memory of the
// watch with a snapshot.
func BenchmarkWatch(b *testing.B) {
	e, client := large(b)
	other, err := connect(e)
	if err != nil {
		b.Fatal(err)
	}
	w := etcd.NewWatch(client, true, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	for w.Snapshot() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	key := "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--0-k8s-app--0--0-eth0"
	stored, err := e.Client.Get(b.Context(), key)
	if err != nil || len(stored.Kvs) != 1 {
		b.Fatalf("%d values: %v", len(stored.Kvs), err)
	}
	var ours, reading time.Duration
	for b.Loop() {
		if _, err := e.Client.Put(b.Context(), key, string(stored.Kvs[0].Value)); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if err := w.CatchUp(b.Context()); err != nil {
			b.Fatal(err)
		}
		s := w.Snapshot()
		ours += time.Since(began)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB/watch")
		runtime.KeepAlive(s)
		began = time.Now()
		r, err := other.Read(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		r.Alone()
		reading += time.Since(began)
	}
	b.ReportMetric(ours.Seconds()/reading.Seconds(), "of-reading")
	b.ReportMetric(0, "ns/op")
}

// rangeOver reads Calico's keys in pages, and unmarshals their values.
func rangeOver(b *testing.B, client *clientv3.Client) {
	b.Helper()
	for from, end := "/calico/", clientv3.GetPrefixRangeEnd("/calico/"); ; {
		page, err := client.Get(b.Context(), from, clientv3.WithRange(end), clientv3.WithLimit(1000))
		if err != nil {
			b.Fatal(err)
		}
		for _, kv := range page.Kvs {
			var into any
			switch key := string(kv.Key); {
			case strings.Contains(key, "/assignment/"):
				into = new(model.AllocationBlock)
			case strings.Contains(key, "/handle/"):
				into = new(model.IPAMHandle)
			case strings.Contains(key, "/host/"):
				into = new(model.BlockAffinity)
			case strings.Contains(key, "/workloadendpoints/"):
				into = new(libapiv3.WorkloadEndpoint)
			case strings.Contains(key, "/nodes/"):
				into = new(libapiv3.Node)
			default:
				into = new(model.IPAMConfig)
			}
			if err := json.Unmarshal(kv.Value, into); err != nil {
				b.Fatal(err)
			}
		}
		if !page.More {
			return
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}
