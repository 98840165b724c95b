// Package repair turns what an audit found into plans that people can read, and
// carries them out without ever harming a live pod.
//
// A plan is a value: [Build] makes it from a [state.State] and nothing else, so
// that a plan can be made from files, compared, and shown in a change ticket.
// Its steps say what would be written and why; what the audit found but must not
// be touched stands beside them, refused with the reason; and what only people
// should do stands last.
//
// [Apply] carries a plan out. It trusts no line of it: for every step it reads
// the objects concerned again, derives the step again with the code that planned
// it, and goes on only if the same step comes out with the same guards. So a plan
// older than its world loses steps, and a plan edited by hand gains none. Each
// write is conditional on the very version of the object that the verdict was
// made on, is written to the [Journal] before it is sent, and is verified by
// reading afterwards.
//
// The package writes nothing itself: a [Writer] does, package repair/datastore
// for a Kubernetes API server. DESIGN.md states the invariants and the tests that
// hold them.
package repair
