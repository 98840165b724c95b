// Package checks holds the checks, one file each, and their list [All].
//
// A check is a value: its ID, severity, documentation and reads, and a pure function from a State
// to findings. Its test data is in testdata/checks. README.md explains how to add a check.
package checks
