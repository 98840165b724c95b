// Package exit has the exit codes of the program, and the errors that decide which one
// it ends with.
package exit

import (
	"errors"
	"fmt"
	"slices"
)

// The exit codes of the program.
const (
	// CodeOK: it ran.
	CodeOK = 0
	// CodeFindings: there are findings at or above --fail-on.
	CodeFindings = 1
	// CodeUsage: invalid usage, a file that cannot be read or written, or that is
	// not YAML or JSON.
	CodeUsage = 2
	// CodeUnread: the datastore could not be read, or only in part.
	CodeUnread = 3
	// CodeUnfinished: steps of a change were left undone.
	CodeUnfinished = 4
	// CodeFailure: a failure inside the program.
	CodeFailure = 5
)

// order lists the codes, the ones that count first where several hold.
var order = []int{CodeFailure, CodeUsage, CodeUnfinished, CodeUnread, CodeFindings, CodeOK}

// Error is an error that decides how the program ends.
type Error struct {
	Code int
	Err  error
	// Hint is shown after the error, such as where to find help.
	Hint string
}

// Error is what went wrong.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns it.
func (e *Error) Unwrap() error { return e.Err }

// Usage is an error of the caller.
func Usage(err error) error { return &Error{Code: CodeUsage, Err: err} }

// Usagef is an error of the caller in these words.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Unread says that the datastore could not be read, or only in part.
func Unread(err error) error { return &Error{Code: CodeUnread, Err: err} }

// Unfinished says that steps of a change were left undone.
func Unfinished(err error) error { return &Error{Code: CodeUnfinished, Err: err} }

// Findings says that there are findings at or above --fail-on.
func Findings(err error) error { return &Error{Code: CodeFindings, Err: err} }

// Failure is an error that none of the others describes: one inside the program.
func Failure(err error) error { return &Error{Code: CodeFailure, Err: err} }

// All returns the single errors of a run, each of which counts: those that [errors.Join]
// joined, as long as nothing is wrapped around them. An error of several others that has
// words of its own, as [fmt.Errorf] makes one, is a single one.
func All(err error) (out []error) {
	if err == nil {
		return nil
	}
	several, ok := err.(interface{ Unwrap() []error }) // not what is within another error
	if !ok {
		return []error{err}
	}
	if plain := errors.Join(several.Unwrap()...); plain == nil || plain.Error() != err.Error() {
		return []error{err}
	}
	for _, e := range several.Unwrap() {
		out = append(out, All(e)...)
	}
	return out
}

// Code returns the code that counts for an error. Errors without one of
// their own come from the parsing of the command line.
func Code(err error) int {
	code := CodeOK
	for _, e := range All(err) {
		c := CodeUsage
		var x *Error
		if errors.As(e, &x) {
			c = x.Code
		}
		if slices.Index(order, c) < slices.Index(order, code) {
			code = c
		}
	}
	return code
}
