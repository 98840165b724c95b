// Package audit runs checks over a [state.State] and returns findings and a [Report].
//
// A [Check] is a value: an ID, severities, documentation, the resources that it reads, and
// a pure function from State to findings. Callers pass the checks in as [Checks]; the
// program's own checks are in package checks. [Compare] compares two reports. [Mutes]
// suppress known or accepted findings and count them.
//
// A gap in the data never causes a finding. A check that requires a resource with a gap is
// skipped by name. On a running cluster, a finding that depends on an absent object needs a
// second reading (see [Confirm] and [Tracker]).
package audit
