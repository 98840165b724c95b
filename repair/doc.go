// Package repair says what a plan, a step and a kind of step are: what must hold, how a step
// is written, how one sees that it is done, and what the next write is where a run broke off
// in it.
//
// A [Plan] is a value: package planner makes it from a [state.State] and nothing else, so
// that a plan can be made from files, compared, and shown in a change ticket.
// Its steps say what would be written and why; what the audit found but must not
// be touched stands beside them, refused with the reason; and what only people
// should do stands last. The planner derives one step again from another state, by the same
// code; that is how a plan is carried out without being believed.
//
// All there is to know about a kind of step is one value, a [StepKind], in a file of its
// own, step_<kind>.go: those that move pods in package moves, the others in package planner,
// which lists them all. [Begun] is a step that a run broke off in or that is to be taken
// back.
//
//	repair ◄── repair/moves ◄── repair/planner ◄── repair/apply   steps; pods; plans; the run
//	   ▲────── repair/journal, repair/datastore, repair/workloads  what was written; the writers
//
// The package writes nothing itself: a [Writer] does, for a run of package repair/apply.
// DESIGN.md states the invariants and the tests that hold them.
package repair
