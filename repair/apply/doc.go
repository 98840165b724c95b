// Package apply carries out plans, and undoes the writes that a journal records.
//
// It trusts no line of a plan. For every step it reads the objects concerned again, derives the
// step again with the code that planned it, and continues only if this gives the same step with the
// same guards. So steps of an outdated plan are skipped, and editing a plan by hand gains nothing.
// Each write is conditional on the version of the object that was evaluated, is recorded in the
// journal before it is sent, and is verified by reading afterwards.
//
// [Run] carries out the steps of a plan, and [Finish] only those that a run left half-done. [Undo]
// reverts a journal's steps, the newest first. [PreviewUndo] shows what Undo would do. All use the
// same sequence for each step: read, decide, record, write, read again.
package apply
