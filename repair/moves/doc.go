// Package moves has the kinds of step that move pods: to empty a block for a node that lacks
// one, and to start pods that borrow again where an address of their node's own is left.
// Which block that is, and what bars it, package remedies decides; here is how it is done,
// in an order that leaves no pod without an address: DESIGN.md of package repair, "Moving
// pods".
package moves
