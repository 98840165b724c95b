package exit_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// TestAll: joined errors are listed one by one, but an error with a text of its own stays
// whole.
func TestAll(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	for _, c := range []struct {
		err  error
		want []string
	}{
		{nil, nil},
		{errors.Join(nil, nil), nil},
		{errors.Join(a, nil, b), []string{"a", "b"}},
		{errors.Join(errors.Join(a, b), exit.Unread(b)), []string{"a", "b", "b"}},
		{fmt.Errorf("%w, and before it %w", b, a), []string{"b, and before it a"}},
		{errors.Join(fmt.Errorf("%w: %w", a, b), a), []string{"a: b", "a"}},
		{exit.Unread(errors.Join(a, b)), []string{"a\nb"}},
	} {
		var got []string
		for _, e := range exit.All(c.err) {
			got = append(got, e.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

// TestCode: of several codes, the first of 5, 2, 4, 3, 1 wins.
func TestCode(t *testing.T) {
	usage, unread, findings, fail := exit.Usagef("u"), exit.Unread(errors.New("r")), exit.Findings(errors.New("f")), exit.Failure(errors.New("b"))
	unfinished := exit.Unfinished(errors.New("s"))
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.Join(nil, nil), 0},
		{findings, 1},
		{usage, 2},
		{unread, 3},
		{unfinished, 4},
		{fail, 5},
		{errors.New("of the parser"), 2},
		{fmt.Errorf("wrapped: %w", unread), 3},
		{errors.Join(findings, unread), 3},
		{errors.Join(findings, unread, unfinished), 4},
		{errors.Join(unread, usage, unfinished), 2},
		{errors.Join(errors.Join(findings, usage), fail), 5},
	} {
		if got := exit.Code(c.err); got != c.want {
			t.Errorf("the code of %v is %d, want %d", c.err, got, c.want)
		}
	}
}
