// Package cli is the command line of calico-audit. Each command has its own file. Shared
// code is in this package, or in packages of its own: flags, source (opens the data),
// runner (writes to clusters), exit (exit codes), document, and view (output).
//
// Results go to standard output, everything else to standard error. Each run ends with a
// code of package exit.
package cli
