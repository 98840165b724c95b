package affinity_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// racks returns a cluster without a mesh, of 5,000 nodes in 200 racks, each behind its own
// router.
func racks(ownAS, reflectors bool) *blocks.Snapshot {
	const perRack, count = 25, 200
	s := &blocks.Snapshot{BGP: blocks.BGPConfig{ASNumber: 64602}}
	s.Pools = []blocks.Pool{{Meta: blocks.Meta{Name: "p"}, CIDR: netip.MustParsePrefix("10.0.0.0/8"), BlockSize: 26}}
	for r := range count {
		router := fmt.Sprintf("172.16.%d.254", r)
		s.BGPPeers = append(s.BGPPeers, blocks.BGPPeer{Meta: blocks.Meta{Name: fmt.Sprintf("tor-%d", r)},
			NodeSelector: fmt.Sprintf("rack == 'r%d'", r), PeerIP: router, ASNumber: 14907})
		for n := range perRack {
			node := blocks.Node{Meta: blocks.Meta{Name: fmt.Sprintf("r%d-n%d", r, n)}, Labels: map[string]string{"rack": fmt.Sprintf("r%d", r)},
				Addresses: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("172.16.%d.%d/24", r, n+1))}}
			if ownAS {
				node.ASNumber = uint32(65000 + r)
			}
			if reflectors && n == 0 && r < 4 {
				node.RouteReflectorID = "10.9.9.9"
				node.Labels["rr"] = "true"
			}
			s.Nodes = append(s.Nodes, node)
		}
	}
	if reflectors {
		s.BGPPeers = append(s.BGPPeers, blocks.BGPPeer{Meta: blocks.Meta{Name: "rr"}, PeerSelector: "has(rr)"})
	}
	s.Sort()
	return s
}

type benchState struct {
	name string
	make func() *blocks.Snapshot
}

var benchStates = []benchState{
	{"one AS", func() *blocks.Snapshot { return racks(false, false) }},
	{"an AS a rack", func() *blocks.Snapshot { return racks(true, false) }},
	{"reflectors", func() *blocks.Snapshot { return racks(false, true) }},
	{"mesh", func() *blocks.Snapshot { s := racks(false, false); s.BGP.Mesh = true; return s }},
}

func BenchmarkBorrowed(b *testing.B) {
	for _, state := range benchStates {
		s := state.make()
		r := affinity.NewRouting(s)
		block := &blocks.Block{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Owner: blocks.ParseOwner("host:r7-n3")}
		b.Run(state.name, func(b *testing.B) {
			for i := range b.N {
				r.Borrowed(affinity.Borrowed{Addr: block.CIDR.Addr(), Block: block, Pool: &s.Pools[0], Owner: "r7-n3",
					User: s.Nodes[(i*37)%len(s.Nodes)].Name, Attributes: &blocks.Attributes{}})
			}
		})
	}
}

func BenchmarkFirstBorrowed(b *testing.B) {
	for _, state := range benchStates {
		s := state.make()
		block := &blocks.Block{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Owner: blocks.ParseOwner("host:r7-n3")}
		b.Run(state.name, func(b *testing.B) {
			for range b.N {
				affinity.NewRouting(s).Borrowed(affinity.Borrowed{Addr: block.CIDR.Addr(), Block: block, Pool: &s.Pools[0], Owner: "r7-n3",
					User: "r9-n9", Attributes: &blocks.Attributes{}})
			}
		})
	}
}

func BenchmarkPool(b *testing.B) {
	for _, state := range benchStates {
		s := state.make()
		var all []*blocks.Node
		for i := range s.Nodes {
			all = append(all, &s.Nodes[i])
		}
		r := affinity.NewRouting(s)
		b.Run(state.name, func(b *testing.B) {
			for range b.N {
				r.Pool(&s.Pools[0], all)
			}
		})
	}
}

// BenchmarkLostBlockRoutes includes a hundred racks with two reflectors each, which are all peered
// with each other, and the same without their sessions.
func BenchmarkLostBlockRoutes(b *testing.B) {
	reflecting := func(count int, joined bool) func() *blocks.Snapshot {
		return func() *blocks.Snapshot {
			s := racks(false, false)
			s.BGPPeers = nil
			reflectors := map[int][]int{}
			for r := range count {
				s.BGPPeers = append(s.BGPPeers, blocks.BGPPeer{Meta: blocks.Meta{Name: fmt.Sprintf("rack-%d", r)},
					NodeSelector: fmt.Sprintf("rr == '%d' || rack == 'r%d'", r, r), PeerSelector: fmt.Sprintf("rr == '%d'", r)})
			}
			for i := range s.Nodes {
				n := &s.Nodes[i]
				rack, number := 0, 0
				if _, err := fmt.Sscanf(n.Name, "r%d-n%d", &rack, &number); err != nil {
					b.Fatal(err)
				}
				rack %= count
				n.Labels["rack"] = fmt.Sprintf("r%d", rack)
				if i := len(reflectors[rack]); i < 2 {
					reflectors[rack] = append(reflectors[rack], number)
					number = i
					n.RouteReflectorID = fmt.Sprintf("1.0.%d.%d", rack, number)
					n.Labels["rr"] = fmt.Sprint(rack)
				}
			}
			if joined {
				s.BGPPeers = append(s.BGPPeers, blocks.BGPPeer{Meta: blocks.Meta{Name: "rr"}, NodeSelector: "has(rr)", PeerSelector: "has(rr)"})
			}
			return s
		}
	}
	for _, state := range slices.Concat(benchStates, []benchState{{"10 racks of reflectors", reflecting(10, true)}, {"50 racks of reflectors", reflecting(50, true)}, {"10 racks of reflectors, apart", reflecting(10, false)}, {"50 racks of reflectors, apart", reflecting(50, false)}}) {
		s := state.make()
		var all []*blocks.Node
		for i := range s.Nodes {
			all = append(all, &s.Nodes[i])
		}
		b.Run(state.name, func(b *testing.B) {
			for range b.N {
				lost := affinity.NewRouting(s).LostBlockRoutes(&s.Pools[0], all)
				if (lost != nil) != strings.HasSuffix(state.name, "apart") {
					b.Fatalf("%+v", lost)
				}
			}
		})
	}
}
