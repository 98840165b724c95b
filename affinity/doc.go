// Package affinity decides who owns a block and who routes it. It is pure: it evaluates
// values of package blocks and reads nothing.
//
// Calico records a block's owner twice. The block itself names its owner; address
// assignment and Felix use that. A BlockAffinity names it again, and BIRD makes routes from
// it: every node has a blackhole for each block that it has an affinity to. [Classify]
// compares the two. [Routing.Stale] describes the effects of an affinity that contradicts
// its block.
//
// A borrowed address works only if the block's owner has a longer route to it than the
// block's blackhole. [Routing.Borrowed] predicts this for a pair of nodes, and
// [Routing.Pool] for the nodes of a pool. If Felix programs the pool's routes, the owner
// has the route if Felix knows the node that uses the address. Otherwise the owner must
// learn the route by BGP. The prediction follows it session by session, as confd configures
// them, and filter by filter: from the user's node through route reflectors and routers to
// the owner.
//
// The package does not guess facts that no object records. It assumes only that outside routers
// forward routes to single addresses and do not change AS paths; the reason mentions this. Any
// other unknown fact makes the outcome [Unknown], and is named.
//
// Predictions ignore the running state: sessions that are down, nodes without BIRD, and
// settings by environment variable or for a single node.
package affinity
