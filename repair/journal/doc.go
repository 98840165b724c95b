// Package journal keeps what a repair is about to write, so that it can be finished or
// taken back whatever becomes of the run.
//
// A journal is a file of lines. The first, a [Header], holds the plan; each other is an
// [Entry]. A step starts, its changes follow, and its end says what became of it; a run
// that goes on in the file of one that broke off says so first:
//
//	start ─► change ─► change ─► … ─► end      of one step after the other
//	   └────────────┴─── the run died: resume ─► start …
//
// [Journal] writes: a change is on the disk, with the whole object as it was, before the
// write is sent. [Read] reads, and forgives a line that a crash has cut short. [File.Log]
// says what the lines prove of one step: what was sent, how it ended, and whether it is
// half-done. What is to be done about that is for package repair and its state of the
// cluster to say, and for package repair/apply to do.
package journal
