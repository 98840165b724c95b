package fleet

import (
	"io"
	"strings"
	"sync"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// Warnings writes the warnings of concurrent readings, each line with its context.
type Warnings struct {
	to    io.Writer
	clear func()
	mu    sync.Mutex
}

// NewWarnings returns Warnings on a writer. clear is called before each message, to wipe
// the progress line.
func NewWarnings(to io.Writer, clear func()) *Warnings { return &Warnings{to: to, clear: clear} }

// Of returns the writer for one context. Each Write is one message.
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
