package checks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/traffic"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// TestNoRouteNeverAlarmsAWorkingCluster compares pool/no-route with a model of confd and BIRD that
// follows each route from node to node. The check names only nodes that lack a route, and is silent
// only if each node has all routes or may have them.
func TestNoRouteNeverAlarmsAWorkingCluster(t *testing.T) {
	random := testenv.Rand(t)
	seen := map[string]int{}
	for range 1500 {
		text := topology(random)
		snapshot, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Sort()
		st := state.New(snapshot, state.Options{})
		m := &bgpModel{snapshot}
		lost, _ := traffic.LostRoutes(st, st.Pools[0])
		found := audit.Run(st, []*audit.Check{&poolNoRoute}).Findings
		if (lost != nil) != (len(found) == 1) {
			t.Fatalf("%d findings for %+v:\n%s", len(found), lost, text)
		}
		missing, certain := map[string]bool{}, true
		reached := map[string]map[string]bool{}
		for i := range snapshot.Nodes {
			x := &snapshot.Nodes[i]
			reached[x.Name] = m.spread(x)
			for j := range snapshot.Nodes {
				if y := &snapshot.Nodes[j]; x != y && !reached[x.Name][y.Name] && !reached[x.Name][beyond] {
					missing[x.Name], missing[y.Name] = true, true
				}
			}
		}
		for _, p := range snapshot.BGPPeers {
			certain = certain && len(p.Filters) == 0
		}
		certain = certain && st.Pools[0].VXLAN == "" && (!snapshot.BGP.Mesh || len(snapshot.BGPPeers) > 0)
		switch {
		case lost == nil && len(missing) > 0 && certain:
			t.Errorf("silent, although %v lack routes:\n%s", missing, text)
		case lost == nil:
			seen["silent"]++
			continue
		case len(lost.Alone) > 0:
			seen["alone"]++
		default:
			seen["apart"]++
		}
		if lost == nil {
			continue
		}
		for _, n := range lost.Nodes {
			if !missing[n] {
				t.Errorf("%s is named, and has all routes:\n%s", n, text)
			}
		}
		for _, from := range lost.From {
			for _, to := range lost.To {
				if from != to && (reached[from][to] || reached[from][beyond] || lost.Both && (reached[to][from] || reached[to][beyond])) {
					t.Errorf("the routes of %s reach %s, and %+v says that they do not:\n%s", from, to, lost, text)
				}
			}
		}
		for _, n := range lost.Alone {
			for _, other := range snapshot.Nodes {
				if other.Name != n && (reached[n][other.Name] || reached[other.Name][n]) || reached[n][beyond] {
					t.Errorf("%s has a session:\n%s", n, text)
				}
			}
		}
	}
	t.Log(seen)
	if seen["silent"] < 150 || seen["alone"] < 50 || seen["apart"] < 50 {
		t.Errorf("the topologies are too much alike: %v", seen)
	}
}

// topology returns a random cluster. Each of its nodes uses a block.
func topology(r *rand.Rand) string {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	usual := r.IntN(2) == 0 // racks with a reflector each
	var b strings.Builder
	fmt.Fprintln(&b, one("bgp nomesh", "bgp nomesh", "bgp nomesh", "bgp"))
	fmt.Fprintln(&b, "pool pods 10.0.0.0/16", one("", "", "", "", "ipip=CrossSubnet", "vxlan=Always"), "\nversion v3.30.0")
	nodes, subnets, systems := 2+r.IntN(6), 1+r.IntN(2), one("", "", "", " as=64701")
	for i := range nodes {
		fmt.Fprintf(&b, "node n%d addr=192.0.%d.%d/24 label=rack=%d", i, r.IntN(subnets), 10+i, r.IntN(2))
		if r.IntN(3) == 0 {
			fmt.Fprint(&b, " label=rr=", one("1", "2"), " rr=", one("1.0.0.1", "1.0.0.1", "2.0.0.2"))
		}
		if r.IntN(3) == 0 {
			fmt.Fprint(&b, systems)
		}
		fmt.Fprintf(&b, "\nblock 10.0.%d.0/26 n%d\nuse 10.0.%d.5 shop/p%d n%d\n", i, i, i, i, i)
	}
	fmt.Fprintln(&b, "filter some export=Reject,In,10.0.0.0/16")
	for _, peer := range []string{"a nodes=rack=='0' reflectors=rr=='1'", "b nodes=rack=='1' reflectors=rr=='2'", "c nodes=has(rr) reflectors=has(rr)"} {
		if usual && r.IntN(6) > 0 {
			fmt.Fprintln(&b, "peer", peer)
		}
	}
	for i := range r.IntN(5) {
		if usual && r.IntN(6) > 0 {
			continue
		}
		fmt.Fprintf(&b, "peer p%d %s %s %s\n", i,
			one("", "nodes=all()", "nodes=rack=='0'", "nodes=rack=='1'", "nodes=has(rr)", "nodes=!has(rr)", "node=n0", "nodes=rr=='2'"),
			one("reflectors=has(rr)", "reflectors=has(rr)", "reflectors=rr=='1'", "reflectors=rr=='2'", "reflectors=rack=='1'", "reflectors=all()",
				"ip=192.0.0.10 as=64512", "ip=192.0.0.11 as=64701", "ip=192.0.9.9 as=65000", "ip=192.0.9.9 as=64512"),
			one("", "", "", "", "oneway", "filters=some"))
	}
	return b.String()
}

// bgpModel follows routes as Calico's confd configures BIRD and BIRD passes them on.
type bgpModel struct{ *blocks.Snapshot }

// beyond is where a route is that a router outside the cluster, or a session with filters, has.
const beyond = "beyond"

// option is one configuration that confd may write for a session between two nodes.
type option struct {
	local, remote uint32
	client        bool
}

func (m *bgpModel) as(n *blocks.Node) uint32 {
	if n.ASNumber != 0 {
		return n.ASNumber
	}
	return m.BGP.ASNumber
}

func chosen(text string, n *blocks.Node) bool {
	s, err := selector.Parse(text)
	return err == nil && s.Evaluate(n.Labels)
}

// local and remote report whether a node is at that end of a BGPPeer.
func local(p *blocks.BGPPeer, n *blocks.Node) bool {
	if p.NodeSelector != "" {
		return chosen(p.NodeSelector, n)
	}
	return p.Node == "" || p.Node == n.Name
}

func remote(p *blocks.BGPPeer, n *blocks.Node) bool {
	if p.PeerSelector != "" {
		return chosen(p.PeerSelector, n)
	}
	return p.PeerIP == n.Addresses[0].Addr().String()
}

// options mirrors confd's updatePeersV1 and BIRD's template for the session of x with y.
func (m *bgpModel) options(x, y *blocks.Node) (all []option) {
	add := func(localAS, remoteAS uint32, peerID string) {
		all = append(all, option{localAS, remoteAS, localAS == remoteAS && x.RouteReflectorID != "" && x.RouteReflectorID != peerID})
	}
	for pass := range 3 {
		for i := range m.BGPPeers {
			p := &m.BGPPeers[i]
			global := p.Node == "" && p.NodeSelector == ""
			switch {
			case pass < 2 && global == (pass == 0) && local(p, x) && remote(p, y):
				if p.PeerSelector != "" {
					add(m.as(x), m.as(y), y.RouteReflectorID)
				} else {
					add(m.as(x), p.ASNumber, "")
				}
			case pass == 2 && !p.ManualReverse && local(p, y) && remote(p, x) && (p.PeerSelector != "" || p.ASNumber == m.as(x)):
				add(m.as(x), m.as(y), y.RouteReflectorID)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return nil
}

// learnt is a route at a node: whether it comes from a client, another peer of the AS (inside), or
// another AS or the node itself.
type learnt struct {
	at             *blocks.Node
	client, inside bool
	clusters       []string
	path           []uint32
}

// spread returns the names of the nodes that the route of one node may reach.
func (m *bgpModel) spread(from *blocks.Node) map[string]bool {
	reached, seen := map[string]bool{}, map[string]bool{}
	queue := []learnt{{at: from}}
	for len(queue) > 0 {
		r := queue[0]
		queue = queue[1:]
		key := fmt.Sprint(r.at.Name, r.client, r.inside, r.clusters, r.path)
		if seen[key] {
			continue
		}
		seen[key] = true
		reached[r.at.Name] = true
		x := r.at
		for i := range m.BGPPeers {
			p := &m.BGPPeers[i]
			outside := p.PeerIP != "" && !slices.ContainsFunc(m.Nodes, func(n blocks.Node) bool { return remote(p, &n) })
			if outside && local(p, x) {
				_, sent := m.send(r, option{m.as(x), p.ASNumber, m.as(x) == p.ASNumber && x.RouteReflectorID != ""})
				reached[beyond] = reached[beyond] || sent
			}
		}
		for j := range m.Nodes {
			y := &m.Nodes[j]
			if x == y {
				continue
			}
			if m.BGP.Mesh && x.RouteReflectorID == "" && y.RouteReflectorID == "" && (m.as(x) == m.as(y) || x.Addresses[0].Masked() == y.Addresses[0].Masked()) {
				queue = append(queue, m.pass(r, option{m.as(x), m.as(y), false}, y, option{m.as(y), m.as(x), false})...)
			}
			for _, mine := range m.options(x, y) {
				for _, theirs := range m.options(y, x) {
					queue = append(queue, m.pass(r, mine, y, theirs)...)
				}
			}
		}
	}
	return reached
}

// send returns the route as a node sends it over a session, and whether it does.
func (m *bgpModel) send(r learnt, over option) (learnt, bool) {
	internal := over.local == over.remote
	id := r.at.RouteReflectorID
	if (r.client || r.inside) && internal {
		if id == "" || !r.client && !over.client || slices.Contains(r.clusters, id) {
			return r, false
		}
		r.clusters = append(slices.Clone(r.clusters), id)
		slices.Sort(r.clusters)
	}
	if !internal {
		r.path, r.clusters = append(slices.Clone(r.path), over.local), nil
	}
	return r, true
}

// pass returns the route that arrives over a session; none if it does not.
func (m *bgpModel) pass(r learnt, mine option, to *blocks.Node, theirs option) []learnt {
	next, sent := m.send(r, mine)
	if !sent || mine.local != theirs.remote || mine.remote != theirs.local || slices.Contains(next.path, theirs.local) {
		return nil
	}
	internal := mine.local == mine.remote
	next.at, next.client, next.inside = to, internal && theirs.client, internal && !theirs.client
	return []learnt{next}
}
