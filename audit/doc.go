// Package audit runs checks over a [state.State] and returns findings and a [Report].
//
// A [Check] is a value with its ID, severity, documentation and what it reads, and a
// pure function from State to findings. The checks themselves are passed in, as
// [Checks]; those of the program are in package checks. [Compare] tells the findings of
// two reports apart, and [Mutes] leave out what is known or accepted, counted.
//
// What could not be read leaves verdicts out, it never makes them: a check whose needs
// lie in a gap is skipped by name, and findings of a running cluster that rest on
// something being absent are confirmed by a second reading (see [Confirm] and
// [Tracker]).
package audit
