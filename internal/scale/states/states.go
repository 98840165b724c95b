// Package states makes snapshots of large clusters in memory, each full of one kind of
// damage. The cost to find the damage must not grow faster than the cluster.
package states

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// taken is the time at which the states were read; age is the age of every object in
// them.
var taken = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

const (
	age       = 24 * time.Hour
	blockSize = 26
)

// Shapes lists the kinds of damage. Their numbers grow with the number of nodes; the
// names show those for 5,000 nodes.
var Shapes = []struct {
	Name string
	// Make returns a cluster with the given numbers of nodes and of pods on each node.
	Make func(nodes, pods int) *blocks.Snapshot
}{
	{"healthy", healthy},
	{"32,000 leaked handles", leakedHandles},
	{"200 pools, one for each rack", rackPools},
	{"1,000 nodes without a block that borrow", blockless},
	{"200 pools, one for each rack, without blocks for 1,800 nodes", fullRacks},
	{"a block that cannot be read", unreadableBlock},
	{"32,000 leaked addresses", leakedAddresses},
	{"1,000 nodes without a block beside 1,000 with several", several},
	{"1,000 nodes without a block beside 1,000 idle ones", idle},
	{"1,000 nodes that are gone", vanished},
	{"a datastore restored without 1,000 of its blocks", restored},
	{"5,000 host views that contradict it", contradicted},
}

func meta(name string) blocks.Meta {
	at := blocks.TimeOf(taken.Add(-age))
	return blocks.Meta{Name: name, Pin: blocks.PinOf("uid-"+name, "1"), Created: at, Written: at}
}

func stateNode(n int) string { return fmt.Sprintf("node-%05d", n) }

// stateBlock returns the CIDR of the n-th block.
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

// newState returns nodes without blocks or pools.
func newState(nodes int) *blocks.Snapshot {
	s := &blocks.Snapshot{
		Cluster: blocks.Cluster{GUID: "scale", Datastore: "files", CalicoVersion: "v3.31.0", TakenAt: taken, Live: true},
		IPAM:    blocks.DefaultIPAMConfig(), BGP: blocks.DefaultBGPConfig(),
		Namespaces: []blocks.Namespace{{Meta: meta("shop")}},
	}
	for n := range nodes {
		s.Nodes = append(s.Nodes, blocks.Node{
			Meta: meta(stateNode(n)), Labels: map[string]string{"rack": fmt.Sprint(n / rackNodes)}, Allocatable: blocks.Quantities{"pods": 60_000}, Ready: true,
		})
	}
	return s
}

// addBlock gives a node a block with the given number of pods.
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

// usePod adds a pod on a node that uses the next address of a block.
func usePod(s *blocks.Snapshot, block int, node string) {
	b := &s.Blocks[block]
	i := b.Unallocated[0]
	b.Unallocated = b.Unallocated[1:]
	name := fmt.Sprintf("pod-%d-%02d", block, i)
	handle := "k8s-pod-network." + name
	b.Ordinals[i] = int32(len(b.Attributes))
	b.OrdinalSequences = append(b.OrdinalSequences, blocks.OrdinalSequence{Ordinal: i, Sequence: 10})
	b.Attributes = append(b.Attributes, blocks.Attributes{
		Handle: handle, HasHandle: true, Pod: name, Namespace: "shop", Node: node, Assigned: blocks.TimeOf(taken.Add(-age)),
	})
	s.Handles = append(s.Handles, &blocks.Handle{Meta: meta(handle), ID: handle, Blocks: []blocks.HandleCount{{CIDR: b.CIDR, Count: 1}}})
	ips := []netip.Addr{b.Address(int(i))}
	set := fmt.Sprintf("set-%d", len(s.Workloads)/10)
	s.Workloads = append(s.Workloads, &blocks.Workload{
		Meta: meta(name), Namespace: "shop", Node: node, Phase: "Running", Ready: true, StatusIPs: ips, AnnotationIPs: ips,
		Controller: &blocks.Controller{Kind: "ReplicaSet", Name: set, UID: set}, Labels: map[string]string{"app": set},
	})
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
		s.Handles = append(s.Handles, &blocks.Handle{Meta: meta(id), ID: id, Blocks: []blocks.HandleCount{{CIDR: s.Blocks[i%nodes].CIDR, Count: 1}}})
	}
	return s
}

// rackNodes is the number of nodes in a rack.
const rackNodes = 25

func rackPools(nodes, pods int) *blocks.Snapshot {
	s := racks(nodes, 32)
	for n := range nodes {
		addBlock(s, stateNode(n), stateBlock(n/rackNodes*32+n%rackNodes), pods)
	}
	return s
}

// fullRacks has 16 blocks in each rack. The rack's other nodes have two pods each, which
// borrow from them.
func fullRacks(nodes, pods int) *blocks.Snapshot {
	s := racks(nodes, 16)
	for n := range nodes {
		if n%rackNodes < 16 {
			addBlock(s, stateNode(n), stateBlock(n/rackNodes*16+n%rackNodes), pods)
			continue
		}
		for range 2 {
			usePod(s, len(s.Blocks)-1, stateNode(n))
		}
	}
	return s
}

// racks returns nodes and one pool with the given number of blocks for each rack.
func racks(nodes, rackBlocks int) *blocks.Snapshot {
	s := newState(nodes)
	for rack := range (nodes + rackNodes - 1) / rackNodes {
		pool := statePool(fmt.Sprintf("rack-%03d", rack), rack*rackBlocks, rackBlocks)
		pool.NodeSelector = fmt.Sprintf(`rack == "%d"`, rack)
		s.Pools = append(s.Pools, pool)
	}
	return s
}

// blockless has blocks for four of five nodes. The others have two pods each, which
// borrow.
func blockless(nodes, pods int) *blocks.Snapshot {
	s := newState(nodes)
	owners := nodes * 4 / 5
	s.Pools = fullPools(owners)
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

// leakedAddresses has allocated addresses whose pods no longer exist.
func leakedAddresses(nodes, pods int) *blocks.Snapshot {
	s := healthy(nodes, pods)
	for i := range nodes * 32000 / 5000 {
		usePod(s, i%nodes, stateNode(i%nodes))
	}
	s.Workloads = s.Workloads[:nodes*pods]
	return s
}

// several has groups of five nodes: one has no block and another has two, both in use.
func several(nodes, pods int) *blocks.Snapshot {
	s := newState(nodes)
	s.BudgetsKnown = true
	for i := range nodes / 10 {
		s.Budgets = append(s.Budgets, blocks.DisruptionBudget{Meta: meta(fmt.Sprintf("budget-%d", i)), Namespace: "shop", Selector: fmt.Sprintf("app=set-%d", i), DisruptionsAllowed: 1})
	}
	s.Pools = fullPools(nodes)
	for n := range nodes {
		node := n
		if n%5 == 4 {
			node = n - 1
		}
		addBlock(s, stateNode(node), stateBlock(n), pods)
	}
	for n := 4; n < nodes; n += 5 {
		usePod(s, n, stateNode(n))
	}
	return s
}

// idle has groups of five nodes: one has no block and another has a block without pods.
func idle(nodes, pods int) *blocks.Snapshot {
	s := newState(nodes)
	s.Pools = fullPools(nodes * 4 / 5)
	block := 0
	for n := range nodes {
		switch n % 5 {
		case 4:
			usePod(s, block-2, stateNode(n))
			continue
		case 3:
			addBlock(s, stateNode(n), stateBlock(block), 0)
		default:
			addBlock(s, stateNode(n), stateBlock(block), pods)
		}
		block++
	}
	return s
}

// vanished lacks one of five nodes and its pods, but still has its blocks.
func vanished(nodes, pods int) *blocks.Snapshot {
	s := healthy(nodes, pods)
	s.Nodes = s.Nodes[:nodes*4/5]
	s.Workloads = s.Workloads[:nodes*4/5*pods]
	return s
}

// restored lacks the blocks of one of five nodes, whose pods still run.
func restored(nodes, pods int) *blocks.Snapshot {
	s := healthy(nodes, pods)
	kept := nodes * 4 / 5
	s.Blocks, s.Affinities, s.Handles = s.Blocks[:kept], s.Affinities[:kept], s.Handles[:kept*pods]
	for i := range s.Workloads {
		s.Workloads[i].ContainerID = s.Workloads[i].Name
	}
	return s
}

// contradicted has a host view of each node. The view shows an address in use that its
// block counts as free. The node borrows from the next node's block, and the view shows a
// route that drops traffic to that block.
func contradicted(nodes, pods int) *blocks.Snapshot {
	s := healthy(nodes, pods)
	for n := range nodes {
		next := (n + 1) % nodes
		usePod(s, next, stateNode(n))
		inUse := s.Blocks[n].Address(63)
		s.Hosts.Views = append(s.Hosts.Views, blocks.HostView{
			Node: stateNode(n), TakenAt: taken, Source: "agent", RulesKnown: true, NamespacesComplete: true, Authenticated: true,
			Routes: []blocks.HostRoute{{Dst: s.Blocks[next].CIDR, Type: blocks.RouteBlackhole}},
			Namespaces: []blocks.HostNamespace{{
				ID: "1", Addresses: []netip.Prefix{netip.PrefixFrom(inUse, inUse.BitLen())}, HostInterfaces: []string{"cali1"},
			}},
		})
	}
	s.Hosts.Asked = true
	return s
}

// fullPools returns pools with exactly the given number of blocks.
func fullPools(count int) (pools []blocks.Pool) {
	for first, size := 0, 1<<20; size > 0; size /= 2 {
		if first+size <= count {
			pools = append(pools, statePool(fmt.Sprintf("pods-%d", size), first, size))
			first += size
		}
	}
	return pools
}
