package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/traffic"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// peering is a topology of two nodes and two route reflectors on one link. Pods run on all of them.
type peering struct {
	name string
	// ids are the cluster IDs of the reflectors.
	ids   [2]string
	peers []apiv3.BGPPeerSpec
	// lost is the number of ordered pairs of machines without a route.
	lost int
	// noExport is the pool's disableBGPExport.
	noExport bool
}

// The usual BGPPeers of two racks with a reflector each.
var (
	rackOne    = apiv3.BGPPeerSpec{NodeSelector: "rack == '1'", PeerSelector: "rr == '1'"}
	rackTwo    = apiv3.BGPPeerSpec{NodeSelector: "rack == '2'", PeerSelector: "rr == '2'"}
	reflectors = apiv3.BGPPeerSpec{NodeSelector: "has(rr)", PeerSelector: "has(rr)"}
)

var peerings = []peering{
	{"the reflectors share a cluster ID (projectcalico/calico#2735)", [2]string{"1.0.0.1", "1.0.0.1"}, []apiv3.BGPPeerSpec{rackOne, rackTwo, reflectors}, 2, false},
	{"each reflector has its own cluster ID", [2]string{"1.0.0.1", "1.0.0.2"}, []apiv3.BGPPeerSpec{rackOne, rackTwo, reflectors}, 0, false},
	{"no node announces the pool (disableBGPExport)", [2]string{"1.0.0.1", "1.0.0.2"}, []apiv3.BGPPeerSpec{rackOne, rackTwo, reflectors}, 12, true},
	{"the reflectors share a cluster ID, and each node peers with both", [2]string{"1.0.0.1", "1.0.0.1"}, []apiv3.BGPPeerSpec{{NodeSelector: "has(rack)", PeerSelector: "has(rr)"}, reflectors}, 0, false},
	{"the reflectors are not peered with each other", [2]string{"1.0.0.1", "1.0.0.2"}, []apiv3.BGPPeerSpec{rackOne, rackTwo}, 8, false},
	{"the reflectors select the nodes, which peer back", [2]string{"1.0.0.1", "1.0.0.1"}, []apiv3.BGPPeerSpec{{NodeSelector: "has(rr)", PeerSelector: "has(rack)"}, reflectors}, 0, false},
	{"a node without a session", [2]string{"1.0.0.1", "1.0.0.2"}, []apiv3.BGPPeerSpec{rackOne, reflectors}, 6, false},
	{"a node that is no reflector is between", [2]string{"", ""}, []apiv3.BGPPeerSpec{{NodeSelector: "has(rack)", PeerSelector: "rr == '1'"}, reflectors}, 6, false},
}

// TestBlockRoutes starts BIRD on two nodes and two route reflectors with the configuration that confd
// writes. The routes that the kernels lack must be those that the audit calls lost.
func TestBlockRoutes(t *testing.T) {
	c := store(t).Cluster
	ctx := t.Context()
	s, err := seeding.New(c)
	must(t, err)
	machines := []string{"node1", "node2", "rr1", "rr2"}
	addrs := map[string]netip.Addr{}
	must(t, s.Pool(ctx, "sessions", apiv3.IPPoolSpec{CIDR: "10.77.0.0/16", BlockSize: 26}))
	for i, name := range machines {
		labels := map[string]string{"rack": fmt.Sprint(i + 1)}
		if i > 1 {
			labels = map[string]string{"rr": fmt.Sprint(i - 1)}
		}
		must(t, s.Node(ctx, seeding.Node{Name: name, Labels: labels, IPv4: netip.MustParsePrefix(fmt.Sprintf("172.20.0.%d/24", 51+i))}))
		pod, err := s.Pod(ctx, seeding.Pod{
			Namespace: seeding.SmallStoryNamespace, Name: "on-" + name, Node: name, Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": `["sessions"]`},
		})
		must(t, err)
		addrs[name] = pod[0]
	}
	must(t, s.BGPConfig(ctx, false, nodesAS))
	sampled := testenv.Sample(t, 2, peerings[3:])
	for _, p := range slices.Concat(peerings[:3], sampled) {
		t.Run(p.name, func(t *testing.T) {
			must(t, s.EditPool(ctx, "sessions", func(spec map[string]any) { spec["disableBGPExport"] = p.noExport }))
			for i, id := range p.ids {
				must(t, s.NodeBGP(ctx, machines[2+i], 0, id))
			}
			for i, spec := range p.peers {
				name := fmt.Sprintf("peer%d", i)
				must(t, s.BGPPeer(ctx, name, spec))
				defer func() { must(t, s.DeleteBGPPeer(ctx, name)) }()
			}
			l := &Lab{Plan: &Plan{}, Nodes: map[string]*Node{}, dir: t.TempDir()}
			wire, err := newMachine(t, "switch")
			must(t, err)
			must(t, wire.IP(ctx, "link add br0 type bridge", "link set br0 up"))
			for i, name := range machines {
				ns, err := newMachine(t, name)
				must(t, err)
				l.Nodes[name] = &Node{Namespace: ns, Name: name}
				must(t, wire.IP(ctx, fmt.Sprintf("link add to-%s type veth peer name eth0 netns %s", name, ns.name), "link set to-"+name+" up master br0"))
				must(t, ns.IP(ctx, fmt.Sprintf("addr add 172.20.0.%d/24 dev eth0", 51+i), "link set eth0 up"))
				files, err := c.Confd(ctx, name)
				must(t, err)
				config, err := newConfig(files)
				must(t, err)
				delete(config, "bird6.cfg")
				must(t, l.startBIRDs(t, name, ns, config))
			}
			missing := l.missing(t, machines, addrs)
			if len(missing) != p.lost {
				t.Errorf("BIRD carries no route between these pairs, and %d were expected: %v", p.lost, missing)
			}
			snapshot, err := (&Datastore{Cluster: c}).Snapshot(ctx)
			must(t, err)
			st := state.New(snapshot, state.Options{})
			pool := st.Pools[slices.IndexFunc(st.Pools, func(q *state.Pool) bool { return q.Name == "sessions" })]
			if kept, text := traffic.KeptFromBGP(st, pool); p.noExport || kept != nil {
				t.Log(text)
				if slices.Sort(kept); !p.noExport || !slices.Equal(kept, machines) {
					t.Errorf("the audit says that no route leads to pods on other nodes from %v; want %v", kept, machines)
				}
				return
			}
			lost, text := traffic.LostRoutes(st, pool)
			t.Log(text)
			if (lost != nil) != (len(missing) > 0) {
				t.Fatalf("the audit says %q, and these routes are missing: %v", text, missing)
			}
			if lost == nil {
				return
			}
			for _, from := range lost.From {
				for _, to := range lost.To {
					if from != to && (!missing[[2]string{from, to}] || lost.Both && !missing[[2]string{to, from}]) {
						t.Errorf("the route of %s reaches %s, and the audit says %q", from, to, text)
					}
				}
			}
			for _, alone := range lost.Alone {
				for _, other := range machines {
					if alone != other && (!missing[[2]string{alone, other}] || !missing[[2]string{other, alone}]) {
						t.Errorf("routes between %s and %s exist, and the audit says %q", alone, other, text)
					}
				}
			}
			for pair := range missing {
				if !slices.Contains(lost.Nodes, pair[0]) && !slices.Contains(lost.Nodes, pair[1]) {
					t.Errorf("the route of %s does not reach %s, and the audit names only %v", pair[0], pair[1], lost.Nodes)
				}
			}
		})
	}
}

// missing waits until BIRD's sessions are up and routes are stable. It returns pairs of machines: the
// second one has no route to the pod of the first.
func (l *Lab) missing(t *testing.T, machines []string, addrs map[string]netip.Addr) map[[2]string]bool {
	t.Helper()
	var last map[[2]string]bool
	var since time.Time
	for limit := time.Now().Add(convergenceTimeout); time.Now().Before(limit); time.Sleep(lookEvery) {
		now := map[[2]string]bool{}
		down := slices.ContainsFunc(l.birds, func(b *bird) bool { return b.sessions(t.Context(), "") != nil })
		for _, from := range machines {
			for _, to := range machines {
				if from == to {
					continue
				}
				verdict, err := l.Nodes[to].Verdict(t.Context(), addrs[from])
				must(t, err)
				if verdict != "unicast" {
					now[[2]string{from, to}] = true
				}
			}
		}
		if down || last == nil || fmt.Sprint(now) != fmt.Sprint(last) {
			last, since = now, time.Now()
		} else if time.Since(since) > restFor {
			return now
		}
	}
	t.Fatal("routes have not come to rest")
	return nil
}
