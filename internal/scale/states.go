package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// taken is when the states in memory were read, and made a day before.
var taken = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// stateShapes are states that are damaged in one way throughout, in numbers that
// grow with the number of nodes: those named here are for 5,000.
var stateShapes = []struct {
	name string
	make func(nodes, pods int) *blocks.Snapshot
}{
	{"healthy", healthy},
	{"32,000 leaked handles", leakedHandles},
	{"200 pools, one for each rack", rackPools},
	{"1,000 nodes without a block that borrow", starving},
	{"a block that cannot be read", unreadableBlock},
}

// measureStates measures the making of each State and all checks over it.
func (r *run) measureStates(t *table, nodes int) {
	for _, shape := range stateShapes {
		snapshot := shape.make(nodes, r.pods)
		var making, checking, cpu, confirming series
		found := 0
		for range max(3, r.pairs) {
			began := time.Now()
			st := state.New(snapshot, state.Options{})
			making.time(time.Since(began))
			began, used := time.Now(), ownCPU()
			result := audit.Run(st, checks.All)
			checking.time(time.Since(began))
			cpu.time(ownCPU() - used)
			used = ownCPU()
			found = len(audit.Confirm(result, result).Findings)
			confirming.time(ownCPU() - used)
		}
		t.set(shape.name, "making the state", making.show(seconds))
		t.set(shape.name, "all checks", checking.show(seconds))
		t.set(shape.name, "all checks, CPU", cpu.show(seconds))
		t.set(shape.name, "confirming by a second reading, CPU", confirming.show(seconds))
		t.set(shape.name, "findings", fmt.Sprint(found))
		note("%s: %s and %s, %d findings", shape.name, making.show(seconds), checking.show(seconds), found)
	}
}

func meta(name string) blocks.Meta {
	at := taken.Add(-age)
	return blocks.Meta{Name: name, UID: "uid-" + name, ResourceVersion: "1", Created: at, Written: at}
}

func stateNode(n int) string { return fmt.Sprintf("node-%05d", n) }

// stateBlock is the CIDR of a block by its number.
func stateBlock(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 10), byte(n >> 2), byte(n << 6)}), blockSize)
}

func statePool(name string, first, count int) blocks.Pool {
	bits := blockSize
	for size := 1; size < count; size *= 2 {
		bits--
	}
	return blocks.Pool{
		Meta: meta(name), CIDR: netip.PrefixFrom(stateBlock(first).Addr(), bits), BlockSize: blockSize, NodeSelector: "all()",
		Uses: []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}, Automatic: true,
	}
}

// newState makes nodes without blocks, and no pools.
func newState(nodes int) *blocks.Snapshot {
	s := &blocks.Snapshot{
		Cluster: blocks.Cluster{GUID: "scale", Datastore: "files", CalicoVersion: "v3.31.0", TakenAt: taken, Live: true},
		IPAM:    blocks.DefaultIPAMConfig(), BGP: blocks.DefaultBGPConfig(),
		Namespaces: []blocks.Namespace{{Meta: meta("shop")}},
	}
	for n := range nodes {
		s.Nodes = append(s.Nodes, blocks.Node{
			Meta: meta(stateNode(n)), Labels: map[string]string{"rack": fmt.Sprint(n / rackNodes)}, AllocatablePods: 60, Ready: true,
		})
	}
	return s
}

// addBlock gives a node a block of which pods use addresses.
func addBlock(s *blocks.Snapshot, node string, cidr netip.Prefix, pods int) {
	owner := blocks.Owner{Kind: blocks.HostOwner, Name: node}
	s.Affinities = append(s.Affinities, blocks.Affinity{Meta: meta(node + "-" + cidr.String()), CIDR: cidr, Owner: owner, State: blocks.Confirmed})
	b := blocks.Block{Meta: meta(cidr.String()), CIDR: cidr, Owner: owner, Sequence: 1000, Ordinals: make([]int32, 64)}
	for i := range b.Ordinals {
		b.Ordinals[i] = blocks.Free
		b.Unallocated = append(b.Unallocated, int32(i))
	}
	s.Blocks = append(s.Blocks, b)
	for range pods {
		usePod(s, len(s.Blocks)-1, node)
	}
}

// usePod has a new pod of a node use the next address of a block.
func usePod(s *blocks.Snapshot, block int, node string) {
	b := &s.Blocks[block]
	i := b.Unallocated[0]
	b.Unallocated = b.Unallocated[1:]
	name := fmt.Sprintf("pod-%d-%02d", block, i)
	handle := "k8s-pod-network." + name
	b.Ordinals[i] = int32(len(b.Attributes))
	b.OrdinalSequences = append(b.OrdinalSequences, blocks.OrdinalSequence{Ordinal: i, Sequence: 10})
	b.Attributes = append(b.Attributes, blocks.Attributes{
		Handle: handle, HasHandle: true, Pod: name, Namespace: "shop", Node: node, Assigned: taken.Add(-age),
	})
	s.Handles = append(s.Handles, blocks.Handle{Meta: meta(handle), ID: handle, Blocks: []blocks.HandleCount{{CIDR: b.CIDR, Count: 1}}})
	ips := []netip.Addr{b.Address(int(i))}
	s.Workloads = append(s.Workloads, blocks.Workload{Meta: meta(name), Namespace: "shop", Node: node, Phase: "Running", StatusIPs: ips, AnnotationIPs: ips})
}

func healthy(nodes, pods int) *blocks.Snapshot {
	s := newState(nodes)
	s.Pools = []blocks.Pool{statePool("pods", 0, 1<<16)}
	for n := range nodes {
		addBlock(s, stateNode(n), stateBlock(n), pods)
	}
	return s
}

func leakedHandles(nodes, pods int) *blocks.Snapshot {
	s := healthy(nodes, pods)
	for i := range nodes * 32000 / 5000 {
		id := fmt.Sprintf("k8s-pod-network.leaked-%05d", i)
		s.Handles = append(s.Handles, blocks.Handle{Meta: meta(id), ID: id, Blocks: []blocks.HandleCount{{CIDR: s.Blocks[i%nodes].CIDR, Count: 1}}})
	}
	return s
}

// rackNodes is how many nodes a rack has.
const rackNodes = 25

func rackPools(nodes, pods int) *blocks.Snapshot {
	const rackBlocks = 32
	s := newState(nodes)
	for rack := range (nodes + rackNodes - 1) / rackNodes {
		pool := statePool(fmt.Sprintf("rack-%03d", rack), rack*rackBlocks, rackBlocks)
		pool.NodeSelector = fmt.Sprintf(`rack == "%d"`, rack)
		s.Pools = append(s.Pools, pool)
	}
	for n := range nodes {
		addBlock(s, stateNode(n), stateBlock(n/rackNodes*rackBlocks+n%rackNodes), pods)
	}
	return s
}

// starving has blocks for four nodes of five; the others have two pods each, and
// borrow.
func starving(nodes, pods int) *blocks.Snapshot {
	s := newState(nodes)
	owners := nodes * 4 / 5
	for first, size := 0, 1<<20; size > 0; size /= 2 {
		if first+size <= owners {
			s.Pools = append(s.Pools, statePool(fmt.Sprintf("pods-%d", size), first, size))
			first += size
		}
	}
	for n := range owners {
		addBlock(s, stateNode(n), stateBlock(n), pods)
	}
	for n := owners; n < nodes; n++ {
		for i := range 2 {
			usePod(s, (2*n+i)%owners, stateNode(n))
		}
	}
	return s
}

func unreadableBlock(nodes, pods int) *blocks.Snapshot {
	s := healthy(nodes, pods)
	last := len(s.Blocks) - 1
	b := s.Blocks[last]
	s.Blocks = s.Blocks[:last]
	s.Gaps = []blocks.Gap{{
		Resource: blocks.Blocks, Name: b.Name, Field: "spec.allocations", Reason: "it is no array",
		Prefix: b.CIDR, Owner: b.Owner, OwnerKnown: true,
	}}
	return s
}
