// Package exit defines the exit codes of the program, and errors with an exit code.
package exit

import (
	"errors"
	"fmt"
	"slices"
)

// The exit codes of the program.
const (
	// CodeOK: success.
	CodeOK = 0
	// CodeFindings: findings at or above --fail-on.
	CodeFindings = 1
	// CodeUsage: invalid usage, or a file that cannot be read, written or parsed.
	CodeUsage = 2
	// CodeUnread: the datastore could not be read, or only in part.
	CodeUnread = 3
	// CodeUnfinished: steps of a change were not completed.
	CodeUnfinished = 4
	// CodeFailure: an internal error.
	CodeFailure = 5
)

// order lists the codes by precedence, the highest first.
var order = []int{CodeFailure, CodeUsage, CodeUnfinished, CodeUnread, CodeFindings, CodeOK}

// Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
	// Hint is printed after the error, such as where to find help.
	Hint string
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Usage returns an error with CodeUsage.
func Usage(err error) error { return &Error{Code: CodeUsage, Err: err} }

// Usagef is Usage with a formatted message.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Unread returns an error with CodeUnread.
func Unread(err error) error { return &Error{Code: CodeUnread, Err: err} }

// Unfinished returns an error with CodeUnfinished.
func Unfinished(err error) error { return &Error{Code: CodeUnfinished, Err: err} }

// Findings returns an error with CodeFindings.
func Findings(err error) error { return &Error{Code: CodeFindings, Err: err} }

// Failure returns an error with CodeFailure.
func Failure(err error) error { return &Error{Code: CodeFailure, Err: err} }

// All returns the single errors of a run: the parts of a plain [errors.Join]. An error that
// wraps several others with its own text, as [fmt.Errorf] makes, counts as one.
func All(err error) (out []error) {
	if err == nil {
		return nil
	}
	several, ok := err.(interface{ Unwrap() []error }) // only at the top level
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

// Code returns the exit code for an error. Errors without a code come from the command
// line's parser.
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
