// Package checks holds the checks, one file each, and the list of [All].
//
// A check is a value: its ID, severity, documentation and what it reads, and a pure
// function from a State to findings. Its test data lies under testdata/checks. See
// README.md for how to add one.
package checks
