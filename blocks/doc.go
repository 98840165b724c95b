// Package blocks models the data of Calico's IP address management: pools, blocks, block
// affinities, handles, reservations and configuration, and the nodes and pods that use the
// addresses.
//
// A [Snapshot] is one reading of a cluster, as values. The package is pure: it has no
// client, no clock, no input and no output. Packages blocks/cluster and blocks/files read
// snapshots from API servers and files; package audit evaluates them.
//
// # Terms
//
// A pool is a CIDR from which Calico assigns addresses. It is divided into blocks of one
// size (the pool's blockSize; by default 26 for IPv4 and 122 for IPv6). Each block belongs
// to one node, its owner. The block records its owner ("host:NODE"). A separate
// BlockAffinity object records the same; BIRD makes routes from it. An address in use is an
// allocation: an ordinal of its block that points to attributes (handle, pod, node, …). A
// handle counts, per block, the allocations of one container sandbox. An address is
// borrowed if a node other than the block's owner uses it.
//
// # Memory
//
// The model is compact: addresses are [netip.Addr], repeated strings are shared, and a
// block keeps one index per ordinal instead of a decoded tree. A cluster of 5,000 nodes and
// 150,000 pods fits in well under 200 MB.
//
// # Partial reads
//
// A snapshot records its failed reads: see [Gap]. A snapshot with gaps is never treated as
// a cluster with fewer objects.
package blocks
