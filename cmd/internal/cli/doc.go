// Package cli is the command line of calico-audit. One file is one command; what
// the commands share is beside them, or in a package of its own: flags, source (where data
// come from), runner (what writes to a cluster), exit (how a run ends), document, view (how
// results look).
//
// Results go to standard output, everything else to standard error, and each run
// ends with one of the codes of package exit.
package cli
