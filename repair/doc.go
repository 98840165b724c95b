// Package repair turns what an audit found into plans that people can read, and says of
// each step what must hold, how it is written, and how one sees that it is done.
//
// A plan is a value: [Build] makes it from a [state.State] and nothing else, so
// that a plan can be made from files, compared, and shown in a change ticket.
// Its steps say what would be written and why; what the audit found but must not
// be touched stands beside them, refused with the reason; and what only people
// should do stands last. [Derive] makes one step again from another state, by the same
// code; that is how a plan is carried out without being believed.
//
// All there is to know about a kind of step is one value, a [StepKind], in a file of its
// own. [Begun] is a step that a run broke off in or that is to be taken back, and
// says what the next write is.
//
//	repair ◄── repair/journal ◄── repair/apply     plans and steps; what was written; the run
//	   ▲───── repair/datastore, repair/workloads    the writers
//
// The package writes nothing itself: a [Writer] does, for a run of package repair/apply.
// DESIGN.md states the invariants and the tests that hold them.
package repair
