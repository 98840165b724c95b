// Package affinity says who owns a block and who routes it. It is pure: it
// evaluates values of package blocks and reads nothing.
//
// Calico writes a block's owner twice. The block itself names its owner, and
// that is what address assignment and Felix go by. A BlockAffinity names it
// again, and that is what BIRD makes routes from: every node drops ("blackholes")
// what it cannot deliver within the blocks that it has an affinity to. [Classify]
// compares the two, and [Routing.Stale] says what an affinity does that
// contradicts its block.
//
// An address that one node borrows of another's block works only where the owner
// has a longer route to it than its blackhole. [Routing.Borrowed] says for one
// such pair of nodes whether it does, and [Routing.Pool] for the nodes of a pool.
// In pools whose routes Felix programs the owner has the route if Felix knows the
// node that uses the address. In the others it must learn it by BGP: the route is
// followed, session by session as confd would configure them and filter by
// filter, from the user's node through route reflectors and routers to the
// owner. What stands in no object is not guessed at: of routers outside it is
// taken for granted that they pass single addresses on and leave AS paths alone,
// which the reason then says, and anything else makes the outcome [Unknown], with
// the fact that would settle it.
//
// Nothing here knows what is running. A session that is down, a node without
// BIRD, a setting made by environment variable or for one node alone is not seen.
package affinity
