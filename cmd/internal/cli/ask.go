package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// canAsk reports whether somebody can answer a question: both what is read and where
// the question is shown must be a terminal.
func canAsk(streams genericiooptions.IOStreams) bool {
	in, ok := streams.In.(io.Writer) // a terminal is a file, which can be written to
	return ok && printers.IsTerminal(in) && printers.IsTerminal(streams.ErrOut)
}

// ask says what is about to be written, and asks. An answer other than yes leaves the
// steps undone.
func (e env) ask(ctx context.Context, what string) error {
	say(e.streams, "")
	say(e.streams, "%s", what)
	_, _ = fmt.Fprint(e.streams.ErrOut, "Type \"yes\" to go on: ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(e.streams.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		say(e.streams, "")
		return exit.Unfinished(errors.New("interrupted: nothing was written"))
	case a := <-answer:
		if a != "yes" {
			return exit.Unfinished(errors.New("nothing was written: the answer was not \"yes\""))
		}
	}
	return nil
}
