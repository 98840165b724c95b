// Package blocks is the model of what Calico's IP address management holds:
// pools, blocks, block affinities, handles, reservations and configuration,
// together with the nodes and pods that use the addresses.
//
// A [Snapshot] is one reading of a cluster, as values. The package is pure: it
// has no client, no clock and no input or output. Packages
// blocks/cluster and blocks/files make snapshots out of API servers and files; package audit evaluates them.
//
// # Terms
//
// A pool is a CIDR that Calico hands addresses out of. It is cut into blocks of
// one size (the pool's blockSize; 26 for IPv4 and 122 for IPv6 unless set), and
// a block is given to one node, its owner. The owner is written in the block
// itself ("host:NODE"); a separate BlockAffinity object says the same and is
// what BIRD reads to make routes. An address in use is an allocation: an
// ordinal of its block that points to attributes (handle, pod, node, …). A
// handle counts, per block, the allocations made for one container sandbox. An
// address is borrowed when it is used on another node than its block's owner.
//
// # Memory
//
// The model is compact: addresses are [netip.Addr], strings that repeat are
// shared, and a block keeps an index per ordinal, not a decoded
// tree. A cluster of 5,000 nodes and 150,000 pods fits in well under 200 MB.
//
// # Partial reads
//
// What could not be read is part of the snapshot: see [Gap]. A snapshot with
// gaps is never treated as a cluster with fewer objects.
package blocks
