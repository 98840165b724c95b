// Package repair defines plans, steps and kinds of step: their conditions, how a step is
// written, how to verify that it is done, and how to continue after an interruption.
//
// A [Plan] is a value. Package planner makes it only from a [state.State], so a plan can
// be made from files, compared, and shown in a change ticket. Its steps say what would be
// written and why. The plan also lists refusals, with the reason why a finding's object
// must not be touched, and manual work for people. Before a step runs, the planner
// derives it again from a new state with the same code. So a run does not have to trust
// the plan.
//
// A [StepKind] is one value with everything about a kind of step, in a file
// step_<kind>.go. The kinds that move pods are in package moves, the others in package
// planner, which lists all of them. [Begun] is a step that was interrupted or is to be
// undone.
//
//	repair ◄── repair/moves ◄── repair/planner ◄── repair/apply   steps; pods; plans; the run
//	   ▲────── repair/journal, repair/datastore, repair/workloads  recorded writes; the writers
//
// This package writes nothing itself: a run of package repair/apply uses a [Writer].
// DESIGN.md states the invariants and names the tests of each.
package repair
