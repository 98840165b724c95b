package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// Progress shows progress on one line of a terminal. It is safe for concurrent use.
type Progress struct {
	w io.Writer

	mu    sync.Mutex
	shown bool
}

// NewProgress returns a progress line on a writer; with a nil writer it shows nothing.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w} }

// ProgressOn returns a progress line on standard error. It shows nothing without a terminal
// or on a dumb one.
func ProgressOn(streams genericiooptions.IOStreams) *Progress {
	if printers.IsTerminal(streams.ErrOut) && os.Getenv("TERM") != "dumb" {
		return NewProgress(streams.ErrOut)
	}
	return NewProgress(nil)
}

// Visible reports whether the line is shown.
func (p *Progress) Visible() bool { return p.w != nil }

// eraseLine moves the cursor to the first column and erases the line (ECMA-48, CR and EL).
const eraseLine = "\r\x1b[K"

// Show replaces the text of the line. Write errors are ignored, because progress is
// optional.
func (p *Progress) Show(text string) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if text != "" || p.shown {
		_, _ = fmt.Fprint(p.w, eraseLine, view.Clean(text))
	}
	p.shown = text != ""
}

// Clear erases the line if one is shown, for other output.
func (p *Progress) Clear() { p.Show("") }
