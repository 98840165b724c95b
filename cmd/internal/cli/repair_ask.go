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
)

// canAsk tells whether somebody can answer a question: both what is read and where
// the question is shown must be a terminal.
func canAsk(streams genericiooptions.IOStreams) bool {
	in, ok := streams.In.(io.Writer) // a terminal is a file, which can be written to
	return ok && printers.IsTerminal(in) && printers.IsTerminal(streams.ErrOut)
}

// ask asks before anything is written, unless --yes was given. Whoever says no
// leaves the steps undone.
func (c *carrier) ask(ctx context.Context, what, guid string) error {
	if c.flags.yes {
		return nil
	}
	say(c.streams, "")
	say(c.streams, "%s on the cluster of %s (GUID %s).", what, c.sources.describe(), guid)
	_, _ = fmt.Fprint(c.streams.ErrOut, "Type \"yes\" to go on: ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.streams.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		say(c.streams, "")
		return unfinishedError(errors.New("interrupted: nothing was written"))
	case a := <-answer:
		if a != "yes" {
			return unfinishedError(errors.New("nothing was written: the answer was not \"yes\""))
		}
	}
	return nil
}
