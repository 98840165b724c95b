package statedsl

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// Large returns a healthy cluster with the given numbers of nodes and of pods on each
// node. Each node has a block of 64 addresses; each pod has an allocation and a handle.
// The pool holds 16,384 blocks.
func Large(nodes, podsEach int) *blocks.Snapshot {
	written := blocks.TimeOf(Clock.Add(-24 * time.Hour))
	meta := func(name string) blocks.Meta {
		return blocks.Meta{Name: name, Pin: blocks.PinOf(name, "1"), Created: written, Written: written}
	}
	s := &blocks.Snapshot{
		Cluster: blocks.Cluster{GUID: "large", Datastore: "files", CalicoVersion: "v3.31.0", TakenAt: Clock},
		IPAM:    blocks.DefaultIPAMConfig(), BGP: blocks.DefaultBGPConfig(),
		Namespaces: []blocks.Namespace{{Meta: meta("shop")}},
		Pools: []blocks.Pool{{
			Meta: meta("pods"), CIDR: netip.MustParsePrefix("10.0.0.0/12"), BlockSize: 26, NodeSelector: "all()",
			Uses: []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}, Automatic: true,
		}},
	}
	for n := range nodes {
		node := fmt.Sprintf("node-%04d", n)
		owner := blocks.Owner{Kind: blocks.HostOwner, Name: node}
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 10), byte(n >> 2), byte(n << 6)}), 26)
		s.Nodes = append(s.Nodes, blocks.Node{Meta: meta(node), Labels: map[string]string{"rack": fmt.Sprint(n % 40)}, Allocatable: blocks.Quantities{"pods": 60_000}, Ready: true})
		s.Affinities = append(s.Affinities, blocks.Affinity{Meta: meta(node + "-" + cidr.String()), CIDR: cidr, Owner: owner, State: blocks.Confirmed})
		b := blocks.Block{Meta: meta(cidr.String()), CIDR: cidr, Owner: owner, Sequence: 1000, Ordinals: make([]int32, 64)}
		for i := range b.Ordinals {
			b.Ordinals[i] = blocks.Free
			if i >= podsEach {
				b.Unallocated = append(b.Unallocated, int32(i))
				continue
			}
			name := fmt.Sprintf("pod-%04d-%02d", n, i)
			handle := "k8s-pod-network." + name
			b.Ordinals[i] = int32(i)
			b.OrdinalSequences = append(b.OrdinalSequences, blocks.OrdinalSequence{Ordinal: int32(i), Sequence: 10})
			b.Attributes = append(b.Attributes, blocks.Attributes{Handle: handle, HasHandle: true, Pod: name, Namespace: "shop", Node: node, Assigned: written})
			s.Handles = append(s.Handles, &blocks.Handle{Meta: meta(handle), ID: handle, Blocks: []blocks.HandleCount{{CIDR: cidr, Count: 1}}})
			s.Workloads = append(s.Workloads, &blocks.Workload{Meta: meta(name), Namespace: "shop", Node: node, Phase: "Running",
				StatusIPs: []netip.Addr{b.Address(i)}, AnnotationIPs: []netip.Addr{b.Address(i)}})
		}
		s.Blocks = append(s.Blocks, b)
	}
	return s
}
