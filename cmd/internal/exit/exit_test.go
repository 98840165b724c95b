package exit_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// TestCode: where several codes hold, the first of 5, 2, 4, 3, 1 counts.
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
