// Package state builds a [State]: a snapshot with indexes and with every verdict that
// more than one reader needs, each decided once and with its reason: who owns an
// address, which blocks a node can use and why it has none, which empty blocks may be
// released and why not, what becomes of borrowed addresses, what the host views prove.
// The ways out of what is wrong are package remedies'.
//
// A State is immutable, so that any number of readers may use it at once. Checks,
// explanations, repairs, the page and the metrics say what it decides, and decide
// nothing of their own. The files about one thing share its name: owner.go who owns an
// address, block_status.go and cause.go how a node stands with blocks, empty.go
// which blocks may go, retain.go what keeps them, bars.go what of the rest a repair may
// delete or restore, age.go how old anything is (how long a block must have been empty is
// empty.go's evaluateAlone), host_*.go what of it nodes themselves
// confirm or contradict (what their views prove at all is package hosts'), takeover.go what
// Calico's own allocator takes from its owner. What Whereabouts' objects prove is package
// whereabouts'.
package state
