package checks_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// large makes a healthy cluster of 1,000 nodes with 30 pods each: 1,000 blocks,
// 30,000 allocations and as many handles.
func large() *blocks.Snapshot {
	const nodes, podsEach = 1000, 30
	written := statedsl.Clock.Add(-24 * time.Hour)
	meta := func(name string) blocks.Meta {
		return blocks.Meta{Name: name, UID: name, ResourceVersion: "1", Created: written, Written: written}
	}
	s := &blocks.Snapshot{
		Cluster: blocks.Cluster{GUID: "large", Datastore: "files", CalicoVersion: "v3.31.0", TakenAt: statedsl.Clock},
		IPAM:    blocks.DefaultIPAMConfig(), BGP: blocks.DefaultBGPConfig(),
		Namespaces: []blocks.Namespace{{Meta: meta("shop")}},
		Pools: []blocks.Pool{{
			Meta: meta("pods"), CIDR: netip.MustParsePrefix("10.0.0.0/15"), BlockSize: 26, NodeSelector: "all()",
			Uses: []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}, Automatic: true,
		}},
	}
	for n := range nodes {
		node := fmt.Sprintf("node-%04d", n)
		owner := blocks.Owner{Kind: blocks.HostOwner, Name: node}
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 10), byte(n >> 2), byte(n << 6)}), 26)
		s.Nodes = append(s.Nodes, blocks.Node{Meta: meta(node), Labels: map[string]string{"rack": fmt.Sprint(n % 40)}, AllocatablePods: 60, Ready: true})
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
			s.Handles = append(s.Handles, blocks.Handle{Meta: meta(handle), ID: handle, Blocks: []blocks.HandleCount{{CIDR: cidr, Count: 1}}})
			s.Workloads = append(s.Workloads, blocks.Workload{Meta: meta(name), Namespace: "shop", Node: node, Phase: "Running",
				StatusIPs: []netip.Addr{b.Address(i)}, AnnotationIPs: []netip.Addr{b.Address(i)}})
		}
		s.Blocks = append(s.Blocks, b)
	}
	return s
}

// BenchmarkChecks measures all checks over a loaded State, the making of that
// State, and each check's share.
func BenchmarkChecks(b *testing.B) {
	snap := large()
	b.Run("state", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			state.New(snap, state.Options{})
		}
	})
	st := state.New(snap, state.Options{})
	if got := audit.Run(st, checks.All); len(got.Findings) > 0 {
		b.Fatalf("the state is not healthy: %s %s", got.Findings[0].Check, got.Findings[0].Message)
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			audit.Run(st, checks.All)
		}
	})
	for _, c := range checks.All {
		one := []*audit.Check{c}
		b.Run(c.ID, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				audit.Run(st, one)
			}
		})
	}
}
