// Package moves has the kinds of step that move pods: to empty a block for a node without one, and
// to restart borrowing pods where their own node has a free address. Package remedies chooses the
// block, and finds the pods that prevent it. This package carries it out in an order that leaves no
// pod without an address: see "Moving pods" in DESIGN.md of package repair.
package moves
