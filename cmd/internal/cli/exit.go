package cli

import (
	"errors"
	"fmt"
	"slices"
)

// The exit codes of the program.
const (
	// ExitOK: it ran.
	ExitOK = 0
	// ExitFindings: there are findings at or above --fail-on.
	ExitFindings = 1
	// ExitUsage: invalid usage, a file that cannot be read or written, or that is
	// not YAML or JSON.
	ExitUsage = 2
	// ExitUnread: the datastore could not be read, or only in part.
	ExitUnread = 3
	// ExitUnfinished: steps of a change were left undone.
	ExitUnfinished = 4
	// ExitFailure: a failure inside the program.
	ExitFailure = 5
)

// exitOrder lists the exit codes, the ones that count first where several hold.
var exitOrder = []int{ExitFailure, ExitUsage, ExitUnfinished, ExitUnread, ExitFindings, ExitOK}

// exitError is an error that decides how the program ends.
type exitError struct {
	code int
	err  error
	// hint is shown after the error, such as where to find help.
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usageError is an error of the caller.
func usageError(err error) error { return &exitError{code: ExitUsage, err: err} }

func usagef(format string, args ...any) error { return usageError(fmt.Errorf(format, args...)) }

// unreadError says that the datastore could not be read, or only in part.
func unreadError(err error) error { return &exitError{code: ExitUnread, err: err} }

// unfinishedError says that steps of a change were left undone.
func unfinishedError(err error) error { return &exitError{code: ExitUnfinished, err: err} }

// findingsError says that there are findings at or above --fail-on.
func findingsError(err error) error { return &exitError{code: ExitFindings, err: err} }

// failure is an error that none of the others describes: one inside the program.
func failure(err error) error { return &exitError{code: ExitFailure, err: err} }

// allErrors are several errors of one run, each of which counts.
type allErrors []error

// Error joins the messages, one a line.
func (a allErrors) Error() string { return errors.Join(a...).Error() }

// Unwrap returns the errors.
func (a allErrors) Unwrap() []error { return a }

// together returns errors as one; those that are nil do not count.
func together(errs ...error) error {
	var all allErrors
	for _, e := range errs {
		all = append(all, flatten(e)...)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// flatten returns the single errors of a run.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var all allErrors
	if errors.As(err, &all) {
		return all
	}
	return []error{err}
}

// exitCode returns the code that counts for an error. Errors without one of
// their own come from the parsing of the command line.
func exitCode(err error) int {
	code := ExitOK
	for _, e := range flatten(err) {
		c := ExitUsage
		var x *exitError
		if errors.As(e, &x) {
			c = x.code
		}
		if slices.Index(exitOrder, c) < slices.Index(exitOrder, code) {
			code = c
		}
	}
	return code
}
