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

// canAsk reports whether a user can answer a question: input and standard error are
// terminals.
func canAsk(streams genericiooptions.IOStreams) bool {
	in, ok := streams.In.(io.Writer) // a terminal is a file, so it implements io.Writer
	return ok && printers.IsTerminal(in) && printers.IsTerminal(streams.ErrOut)
}

// ask describes the coming writes and asks for confirmation. Any answer other than yes is
// an error with CodeUnfinished.
func (e env) ask(ctx context.Context, what string) error {
	say(e.streams, "")
	say(e.streams, "%s", what)
	_, _ = fmt.Fprint(e.streams.ErrOut, "Type \"yes\" to continue: ")
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
