package affinity_test

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// TestStale: an affinity that contradicts its block does harm through BIRD, but not if
// Felix uses the block's record.
func TestStale(t *testing.T) {
	const two = "node a addr=172.16.0.1/24\nnode b addr=172.16.0.2/24\nblock 10.0.0.0/26 a\n"
	for name, c := range map[string]struct {
		state           string
		drops, attracts bool
		text            string
	}{
		"confirmed":             {plain + "affinity 10.0.0.0/26 b", true, true, "announces the block to its peers"},
		"state not written":     {plain + "affinity 10.0.0.0/26 b state=", true, true, "BIRD on b drops traffic"},
		"in deletion":           {plain + "affinity 10.0.0.0/26 b state=pendingDeletion", true, true, "announces"},
		"pending":               {plain + "affinity 10.0.0.0/26 b state=pending", false, false, "pending"},
		"kept from BGP":         {"pool p 10.0.0.0/24 noexport\naffinity 10.0.0.0/26 b", true, false, "does not announce"},
		"no session":            {offMesh + plain + "affinity 10.0.0.0/26 b", true, false, "does not announce"},
		"no session but unread": {offMesh + "gap bgppeers name=x broken\n" + plain + "affinity 10.0.0.0/26 b", true, true, "announces"},
		"a router":              {offMesh + tor + plain + "affinity 10.0.0.0/26 b", true, true, "announces"},
		"peers not read":        {"gap bgppeers forbidden\n" + offMesh + plain + "affinity 10.0.0.0/26 b", true, true, "announces"},
		"VXLAN":                 {"pool p 10.0.0.0/24 vxlan=Always\naffinity 10.0.0.0/26 b", false, false, "Felix programs this pool's routes and follows the block, which names a"},
		"Felix told to":         {"felix routes=Enabled\n" + plain + "affinity 10.0.0.0/26 b", false, false, "Felix"},
		"IPIP, version unknown": {"version master\npool p 10.0.0.0/24 ipip=Always\naffinity 10.0.0.0/26 b", true, true, "unless Felix"},
		"IPIP on v3.33":         {"version v3.33.0\npool p 10.0.0.0/24 ipip=Always\naffinity 10.0.0.0/26 b", false, false, "Felix"},
		"no pool":               {"pool q 10.9.0.0/24\naffinity 10.0.0.0/26 b", true, true, "announces"},
		"no pool, in deletion":  {"pool q 10.9.0.0/24\naffinity 10.0.0.0/26 b state=pendingDeletion", true, false, "does not announce"},
		"one address":           {plain + "affinity 10.0.0.7/32 b", false, false, "single address"},
		"no node":               {plain + "affinity 10.0.0.0/26 gone", false, false, "no longer exists"},
		"load balancers'":       {plain + "affinity 10.0.0.0/26 virtual:load-balancer", false, false, "not a node"},
		"nodes not read":        {"gap nodes forbidden\n" + plain + "affinity 10.0.0.0/26 gone", true, true, "BIRD on gone"},
	} {
		s := parse(t, two+c.state)
		var pool *blocks.Pool
		if p := &s.Pools[0]; p.Name == "p" {
			pool = p
		}
		got := affinity.NewRouting(s).Stale(&s.Affinities[0], &s.Blocks[0], pool)
		if got.Drops != c.drops || got.Attracts != c.attracts || !strings.Contains(got.Text, c.text) {
			t.Errorf("%s: drops %t, attracts %t: %s; want %t, %t: %s", name, got.Drops, got.Attracts, got.Text, c.drops, c.attracts, c.text)
		}
	}
}

// TestPool predicts borrowing among the nodes of a pool, and counts each pair once per
// direction.
func TestPool(t *testing.T) {
	const three = nodes + "node c addr=172.16.0.3/24\n"
	for name, c := range map[string]struct {
		state                       string
		dropped, delivered, unknown int
		example                     string
	}{
		"all dropped":           {three + offMesh + tor + plain, 6, 0, 0, "share AS 64602"},
		"none dropped":          {three + plain, 0, 6, 0, "mesh"},
		"some dropped":          {three + "node d addr=172.16.0.4/24 as=64700\n" + offMesh + tor + plain, 6, 6, 0, "share AS 64602"},
		"a reflector of some":   {nodes + "node r addr=172.16.0.9/24 label=rr=1 rr=10.9.9.9\nnode c addr=172.16.0.3/24\n" + offMesh + "peer rr nodes=has(rack) reflectors=has(rr)\n" + plain, 6, 6, 0, "no BGPPeer gives"},
		"not known":             {three + offMesh + "peer r ip=172.16.0.254 as=64602\n" + plain, 0, 0, 6, "reflector"},
		"one node":              {"node a addr=172.16.0.1/24\n" + offMesh + tor + plain, 0, 0, 0, ""},
		"VXLAN":                 {three + offMesh + tor + "pool p 10.0.0.0/24 vxlan=Always\n", 0, 6, 0, "VXLAN"},
		"VXLAN, one without":    {three + "node d addr=172.16.0.4/24 tunnel=vxlan@10.0.0.1\n" + "pool p 10.0.0.0/24 vxlan=Always\n", 12, 0, 0, "no VXLAN tunnel address"},
		"a pool of six":         {"node a addr=fd01::1/64\nnode b addr=fd01::2/64\npool p fd00::/64\n", 0, 2, 0, "mesh"},
		"a pool of one block":   {three + offMesh + tor + "pool p 10.0.0.0/26\n", 6, 0, 0, "share AS"},
		"single address blocks": {three + offMesh + tor + "pool p 10.0.0.0/24 size=32\n", 0, 6, 0, "single address"},
	} {
		s := parse(t, c.state)
		var all []*blocks.Node
		for i := range s.Nodes {
			all = append(all, &s.Nodes[i])
		}
		got := affinity.NewRouting(s).Pool(&s.Pools[0], all)
		if got.Dropped != c.dropped || got.Delivered != c.delivered || got.Unknown != c.unknown || !strings.Contains(got.Example.Reason, c.example) || !got.Whole {
			t.Errorf("%s: %d dropped, %d delivered, %d not known: %s; want %d, %d, %d: %s", name, got.Dropped, got.Delivered, got.Unknown, got.Example.Reason, c.dropped, c.delivered, c.unknown, c.example)
		}
		if got.AllDropped() != (c.dropped > 0 && c.delivered+c.unknown == 0) {
			t.Errorf("%s: all dropped: %t", name, got.AllDropped())
		}
	}
}
