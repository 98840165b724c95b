package fleet

import (
	"io"
	"strings"
	"sync"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// Warnings are the lines that the readings of a fleet write at once, each with the context
// that it is about.
type Warnings struct {
	to    io.Writer
	clear func()
	mu    sync.Mutex
}

// NewWarnings returns warnings that go to a writer; before a line is written, clear wipes
// what else stands there.
func NewWarnings(to io.Writer, clear func()) *Warnings { return &Warnings{to: to, clear: clear} }

// Of returns the writer of one context. What is written to it at once is one message.
func (w *Warnings) Of(context string) io.Writer { return &warningsOf{w, context} }

type warningsOf struct {
	*Warnings
	context string
}

// Write writes each line after the context's name.
func (w *warningsOf) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clear()
	for line := range strings.Lines(string(text)) {
		if _, err := io.WriteString(w.to, "context "+view.Clean(w.context)+": "+line); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}
