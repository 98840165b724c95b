// Package journal stores the objects that a repair is about to write, so that the repair
// can be finished or undone after any end of the run.
//
// A journal is a file of lines. The first line, a [Header], has the plan; each other line
// is an [Entry]. A step starts, its changes follow, and its end has the outcome. A run
// that continues an interrupted journal records that first:
//
//	start ─► change ─► change ─► … ─► end      one step after the other
//	   └────────────┴─── the run died: resume ─► start …
//
// [Journal] writes: a change, with the whole previous object, is on disk before the write
// is sent. [Read] reads, and tolerates a line that a crash truncated. [File.Log]
// evaluates the lines of one step: which writes were sent, how the step ended, and
// whether it is half-done. Package repair decides from that and the cluster's state what
// to do, and package repair/apply does it.
package journal
