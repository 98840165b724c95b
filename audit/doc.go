// Package audit judges a snapshot: it builds a [State], runs checks over it and
// returns findings and a [Report].
//
// A State is a snapshot with indexes and with the verdicts that several checks
// share (which pool a block lies in, who uses an address, which empty blocks
// could be released). It is immutable, so that any number of readers may use it
// at once.
//
// A [Check] is one file, check_<group>_<name>.go: a value with its ID, severity,
// documentation and needs, and a pure function from State to findings. Test data
// lies beside it under testdata/checks/<group>_<name>/. Nothing else needs to
// change to add one.
//
// [Explain] tells all that a State and its findings say about one subject;
// [Compare] tells the findings of two reports apart, and [Mutes] leave out what
// is known or accepted, counted.
//
// What could not be read withholds verdicts, it never makes them: a check whose
// needs lie in a gap is skipped by name, and findings of a running cluster that
// rest on something being absent are confirmed by a second reading (see
// [Confirm]).
package audit
