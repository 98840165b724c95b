// Package capacity answers what a cluster has room for, and what would happen if: how
// many nodes and pods still fit into each pool, and what further nodes, pods, pools or
// other settings would change. It reads a [state.State] and changes nothing.
//
// A [Scenario] says what to assume, and [Ask] gives the [Answer]. Answers are not
// estimates: an [Allocator] holds the blocks, affinities and free addresses of the state
// and hands out addresses by the rules of Calico's own IPAM (libcalico-go ipam/ipam.go,
// ipam_block_reader_writer.go and ipam_block.go), one pod after the other.
//
// What is simulated: the order in which a node goes through its own blocks (that of the
// names of their affinities), and through the candidates for a new one (all slots of one
// pool after the other, from a start that the node's name decides); that a candidate is
// taken if no block has exactly its CIDR; reservations, of whole blocks and of single
// addresses; selectors of nodes and namespaces, pools that are asked for, disabled and
// deleted ones; the block limit, automatic blocks, strict affinity; borrowing, in the
// order of candidates; what damaged states make Calico do: affinities without their
// block, of another's block, half claimed or half deleted, blocks without affinity; empty
// blocks given up in pools that no longer select their node. From v3.32 on also that empty
// blocks of other nodes are taken when no other is left.
//
// Tests hold it to Calico: random scripts on a real API server beside the IPAM client of
// v3.31, and scripts that the client of v3.32.1 played (testdata/README.md).
//
// What is not: the order of candidates in a pool whose blocks hold one address, which
// Calico draws by the clock (how many blocks are claimed does not depend on it); races
// between nodes that allocate at the same time; the end of a cooldown, which v3.33 knows:
// an address that cools down stays in use; objects that lie under other names than
// Calico's; the tunnel addresses of WireGuard, which a node takes only once it runs.
package capacity
