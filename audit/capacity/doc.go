// Package capacity answers how many nodes and pods still fit into each pool, and what more
// nodes, pods, pools or other settings would change. It reads a [state.State] and changes
// nothing.
//
// [Ask] takes a [Scenario] and returns an [Answer]. Answers are simulations, not estimates:
// an [Allocator] holds the blocks, affinities and free addresses of the state and assigns
// addresses to one pod after the other, by the rules of Calico's own IPAM (libcalico-go
// ipam/ipam.go, ipam_block_reader_writer.go and ipam_block.go).
//
// The simulation covers:
//
//   - the order in which a node tries its own blocks, by the names of their affinities
//   - the order of candidates for a new block: pool after pool, from a start that depends on the
//     node's name; a slot is a candidate if no block has exactly its CIDR
//   - reservations of whole blocks and of single addresses
//   - node and namespace selectors, requested pools, disabled and deleted pools
//   - the block limit, automatic blocks and strict affinity
//   - borrowing, in the order of candidates
//   - damaged states: affinities without a block, affinities of another node's block, half claimed
//     and half deleted affinities, blocks without an affinity
//   - the release of empty blocks in pools that no longer select their node
//   - from v3.32 on, taking over empty blocks of other nodes if no other block is left
//
// Tests compare it with Calico: random scripts on a real API server together with the IPAM
// client of v3.31, and recorded scripts of the v3.32.1 client (testdata/README.md).
//
// The simulation does not cover:
//
//   - the order of candidates in pools with blocks of one address, which Calico seeds by the clock;
//     the number of claimed blocks does not depend on it
//   - races between nodes that allocate at the same time
//   - the end of a cooldown (v3.33): cooling addresses stay in use
//   - objects whose names differ from those that Calico gives them
//   - the tunnel addresses of WireGuard, which a node allocates only once it runs
package capacity
