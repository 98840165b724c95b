package view

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// ProgressLine shows progress on one line of a terminal. It is safe for concurrent use.
type ProgressLine struct {
	w io.Writer

	mu    sync.Mutex
	width int
}

// NewProgressLine returns a progress line on a writer; with a nil writer it shows nothing.
func NewProgressLine(w io.Writer) *ProgressLine { return &ProgressLine{w: w} }

// Visible reports whether the line is shown.
func (p *ProgressLine) Visible() bool { return p.w != nil }

// Show replaces the text of the line. Write errors are ignored, because progress is
// optional.
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

// Clear wipes the line for other output.
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
