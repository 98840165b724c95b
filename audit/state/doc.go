// Package state builds a [State]: a snapshot with indexes and with every verdict that
// more than one reader needs, each decided once and with its reason: who owns an
// address, which blocks a node can use and why it has none, which empty blocks may be
// released and why not, what becomes of borrowed addresses, what the host views prove.
// What to do about it is package remedies'.
//
// A State is immutable, so that any number of readers may use it at once. Checks,
// explanations, repairs, the page and the metrics say what it decides, and decide
// nothing of their own. The files about one thing share its name:
//
//   - owner.go: who owns an address;
//   - block_status.go and cause.go: whether a node has a block, and why it has none;
//   - empty.go: which blocks may be released, and how long one must have been empty
//     (evaluateAlone); retain.go: what keeps the others;
//   - bars.go: what else a repair may delete or restore;
//   - age.go: how old anything else is;
//   - takeover.go: which blocks Calico's own allocator takes from their owners;
//   - host_*.go: what nodes themselves confirm or contradict. What their views prove at
//     all is package hosts'.
//
// What Whereabouts' objects prove is package whereabouts'.
package state
