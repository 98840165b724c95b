// Package state builds a [State]: a snapshot with indexes and with every verdict that several
// readers need. Each verdict is decided once, with its reason: who owns an address, which blocks a
// node can use and why it has none, which empty blocks may be released and why not, how borrowed
// addresses are routed, what the host views prove. Package remedies decides what to do about them.
//
// A State is immutable, so any number of readers may use it at once. Checks, explanations, repairs,
// the page and the metrics only report its verdicts. The files are named after their subject:
//
//   - owner.go: who owns an address;
//   - block_status.go and cause.go: whether a node has a block, and why it has none;
//   - empty.go: which blocks may be released, and how long they must have been empty
//     (evaluateAlone); retain.go: why the others stay;
//   - bars.go: what else a repair may delete or restore;
//   - age.go: the age of all other objects;
//   - takeover.go: which blocks Calico's own allocator takes from their owners;
//   - host_*.go: what nodes themselves confirm or contradict. Package hosts decides
//     what their views prove.
//
// Package collector predicts what Calico's own collector does. Packages finished and misrecorded
// find records of pods that do not need or have their addresses. Package identity finds nodes with
// the name or address of another. Package whereabouts decides what Whereabouts' objects prove.
package state
