package view

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// ProgressLine shows on one line of a terminal what is being done. It may be
// used by several goroutines at once.
type ProgressLine struct {
	w io.Writer

	mu    sync.Mutex
	width int
}

// NewProgressLine returns a line on a terminal; with a nil writer it shows
// nothing.
func NewProgressLine(w io.Writer) *ProgressLine { return &ProgressLine{w: w} }

// Visible reports whether the line is on a terminal.
func (p *ProgressLine) Visible() bool { return p.w != nil }

// Show replaces what the line says. Errors are of no interest: it is only a
// courtesy.
func (p *ProgressLine) Show(text string) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text = Clean(text)
	w := displayWidth(text)
	_, _ = fmt.Fprint(p.w, "\r"+text+strings.Repeat(" ", max(0, p.width-w)))
	p.width = w
}

// Clear wipes the line, so that something else may be written there.
func (p *ProgressLine) Clear() {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		_, _ = fmt.Fprint(p.w, "\r"+strings.Repeat(" ", p.width)+"\r")
	}
	p.width = 0
}
