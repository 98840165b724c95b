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

// allErrors are several errors of one run, each of which counts.
type allErrors []error

// Error joins the messages, one a line.
func (a allErrors) Error() string { return errors.Join(a...).Error() }

// Unwrap returns the errors.
func (a allErrors) Unwrap() []error { return a }

// Together returns errors as one; those that are nil do not count.
func Together(errs ...error) error {
	var all allErrors
	for _, e := range errs {
		all = append(all, All(e)...)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// All returns the single errors of a run.
func All(err error) []error {
	if err == nil {
		return nil
	}
	var all allErrors
	if errors.As(err, &all) {
		return all
	}
	return []error{err}
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
