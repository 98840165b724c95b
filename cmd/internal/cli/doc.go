// Package cli is the command line of calico-audit. One file is one command; what
// the commands share (where data come from, where output goes, how a run ends) is
// beside them.
//
// Results go to standard output, everything else to standard error, and each run
// ends with one of the exit codes of exit.go.
package cli
