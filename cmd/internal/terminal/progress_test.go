package terminal

import (
	"bytes"
	"testing"
)

func TestProgress(t *testing.T) {
	var buf bytes.Buffer
	p := NewProgress(&buf)
	p.Show("reading pods: 1000")
	p.Show("checking\x1b[31m")
	p.Clear()
	p.Clear()
	if got, want := buf.String(), "\r\x1b[Kreading pods: 1000\r\x1b[Kchecking\\x1b[31m\r\x1b[K"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	silent := NewProgress(nil)
	silent.Show("x")
	silent.Clear()
	if !p.Visible() || silent.Visible() {
		t.Error("a line is visible if it has a writer")
	}
}
