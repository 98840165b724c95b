package agents

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
)

// The size of the measured cluster: the limits of Kubernetes for nodes and pods.
const (
	viewNodes = 5000
	viewPods  = 30 // per node
)

// manyViews returns a cluster with one block per node, and a function for the agents'
// responses.
func manyViews() (s *blocks.Snapshot, answer func(node int) []byte) {
	s = &blocks.Snapshot{}
	address := func(node, pod int) netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(node >> 10), byte(node >> 2), byte(node<<6 | pod&63)})
	}
	s.Pools = append(s.Pools, blocks.Pool{Meta: blocks.Meta{Name: "pods"}, CIDR: netip.MustParsePrefix("10.0.0.0/8")})
	uid := func(node, pod int) string { return fmt.Sprintf("5d4dd2f5-0f5a-4ce3-9f5e-%06d%06d", node, pod) }
	for n := range viewNodes {
		name := fmt.Sprintf("node-%04d", n)
		s.Nodes = append(s.Nodes, blocks.Node{Meta: blocks.Meta{Name: name}, Ready: true})
		s.Blocks = append(s.Blocks, blocks.Block{CIDR: netip.PrefixFrom(address(n, 0), 26), Owner: blocks.Owner{Kind: blocks.HostOwner, Name: name}})
		for p := range viewPods {
			s.Workloads = append(s.Workloads, &blocks.Workload{Meta: blocks.Meta{Name: fmt.Sprintf("p-%d-%d", n, p), Pin: blocks.PinOf(uid(n, p), "")}, Namespace: "default", Node: name, StatusIPs: []netip.Addr{address(n, p)}})
		}
	}
	return s, func(n int) []byte {
		v := blocks.HostView{APIVersion: "calico-audit/v1alpha1", Kind: blocks.HostViewKind, Node: s.Nodes[n].Name, TakenAt: time.Now(), NamespacesComplete: true, BootID: uid(n, 0)}
		block := s.Blocks[n].CIDR
		v.Routes = append(v.Routes, blocks.HostRoute{Dst: netip.MustParsePrefix("0.0.0.0/0"), Type: blocks.RouteUnicast, Table: "main", Gateway: "192.168.0.1", Dev: "eth0"},
			blocks.HostRoute{Dst: block, Type: blocks.RouteBlackhole, Protocol: "bird", Table: "main"})
		v.Lookups = append(v.Lookups, blocks.HostLookup{Dst: block, Result: blocks.RouteBlackhole, Match: block, Table: "main"})
		for p := range viewPods {
			a, dev := netip.PrefixFrom(address(n, p), 32), fmt.Sprintf("cali%011x", n*64+p)
			v.Routes = append(v.Routes, blocks.HostRoute{Dst: a, Type: blocks.RouteUnicast, Protocol: "80", Table: "main", Dev: dev})
			v.Lookups = append(v.Lookups, blocks.HostLookup{Dst: a, Result: blocks.RouteUnicast, Match: a, Dev: dev, Table: "main"})
			v.Namespaces = append(v.Namespaces, blocks.HostNamespace{
				ID: fmt.Sprint(4026530000 + n*64 + p), Name: "cni-" + uid(n, p), Addresses: []netip.Prefix{a}, HostInterfaces: []string{dev}, PodUID: uid(n, p),
				Sandbox: fmt.Sprintf("%064x", n*64+p), Pids: []int{p, p + 1, p + 2}, Commands: []string{"pause", "tini", "java"}, States: []string{"S", "S", "S"}, Processes: 3,
			})
		}
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return text
	}
}

// BenchmarkAgentViews measures, for 5,000 nodes with 150,000 pods, the memory of all views,
// the time to read one, and the time to combine them for a snapshot.
func BenchmarkAgentViews(b *testing.B) {
	s, answer := manyViews()
	texts := make([][]byte, viewNodes)
	for n := range texts {
		texts[n] = answer(n)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		watch, err := cluster.NewWatch(&rest.Config{Host: "http://unused.invalid"}, cluster.WatchOptions{})
		if err != nil {
			b.Fatal(err)
		}
		w := NewWatch(watch, WatchOptions{Reader: func(s *blocks.Snapshot) Reader { return hostviews.OfAgent(s, hostviews.Options{}) }})
		before := heap()
		began := time.Now()
		for first := 0; first < viewNodes; first += 100 { // as many as one reader handles
			round := w.newRound(s)
			for n := first; n < first+100; n++ {
				node := s.Nodes[n].Name
				r := round.read("pod x/y", node, texts[n], true)
				if len(r.Views) != 1 || len(r.Gaps) > 0 || len(r.Views[0].Namespaces) != viewPods {
					b.Fatalf("%+v", r)
				}
				a := &askedAgent{view: &r.Views[0], agent: agent{node: node}}
				a.print = round.pods.compact(a.view)
				w.views.agents[node] = a
			}
		}
		read := time.Since(began)
		kept := heap() - before
		began = time.Now()
		hosts := w.assemble(nil)
		assembled := time.Since(began)
		if len(hosts.Views) != viewNodes || len(hosts.Gaps) > 0 {
			b.Fatalf("%d views, %d gaps", len(hosts.Views), len(hosts.Gaps))
		}
		b.ReportMetric(float64(kept)/viewNodes, "B/node")
		b.ReportMetric(float64(kept)/(1<<20), "MiB/5000-nodes")
		b.ReportMetric(float64(read.Microseconds())/viewNodes, "µs/view")
		b.ReportMetric(float64(assembled.Milliseconds()), "ms/snapshot")
		runtime.KeepAlive(w)
	}
}
