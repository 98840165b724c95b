// Package apply carries a plan out, and takes back what a journal says was written.
//
// It trusts no line of a plan: for every step it reads the objects concerned again,
// derives the step again with the code that planned it, and goes on only if the same
// step comes out with the same guards. So a plan older than its world loses steps, and a
// plan edited by hand gains none. Each write is conditional on the very version of the
// object that the verdict was made on, stands in the journal before it is sent, and is
// verified by reading afterwards.
//
// There are three ways in: [Run] carries out the steps of a plan, [Finish] only those
// that a run has left half-done, and [Undo] takes a journal's steps back, the newest
// first; [PreviewUndo] says what that would do. All go step by step through the same
// run: read, decide, record, write, read again.
package apply
