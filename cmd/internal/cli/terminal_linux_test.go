package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
)

// openTerminal opens a pseudo-terminal with some columns. drain closes it and returns its
// output.
func openTerminal(t *testing.T, columns uint16) (tty *os.File, drain func() string) {
	t.Helper()
	tty, _, drain = openKeyboard(t, columns)
	return tty, drain
}

// openKeyboard is openTerminal with a keyboard for typing.
func openKeyboard(t *testing.T, columns uint16) (tty *os.File, keyboard io.Writer, drain func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("this test needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&got, master) }) // ends with EIO once the terminal is closed
	return tty, master, func() string {
		_ = tty.Close()
		reading.Wait()
		return strings.ReplaceAll(got.String(), "\r\n", "\n")
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestTerminal: on a terminal the report is coloured and fits the width, unless the
// environment disables it.
func TestTerminal(t *testing.T) {
	story := filepath.Join("..", "..", "..", "examples", "snapshots", "story")
	report := func(columns uint16, args ...string) string {
		tty, drain := openTerminal(t, columns)
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: io.Discard}
		if code := Main(context.Background(), append([]string{"calico-audit", "report", "-f", story}, args...), streams); code != exit.CodeOK {
			t.Fatalf("ended with %d", code)
		}
		return drain()
	}
	t.Setenv("TERM", "xterm-256color")
	unsetenv(t, "NO_COLOR")

	coloured := report(80)
	if !strings.Contains(coloured, "\x1b[1;97;41mCRITICAL\x1b[0m") {
		t.Errorf("no colour on a terminal:\n%q", coloured)
	}
	for _, line := range strings.Split(sgr.ReplaceAllString(coloured, ""), "\n") {
		if n := utf8.RuneCountInString(line); n > 80 && !strings.HasPrefix(line, "    next ") && !strings.HasPrefix(line, "     $ ") {
			t.Errorf("a line of %d columns on a terminal of 80: %q", n, line)
		}
	}
	widest := 0
	for _, line := range strings.Split(report(200, "--color", "never"), "\n") {
		widest = max(widest, utf8.RuneCountInString(line))
	}
	if widest <= 100 || widest > 200 {
		t.Errorf("on a terminal of 200 columns the widest line has %d", widest)
	}
	if got := report(80, "--color", "never"); strings.Contains(got, "\x1b") {
		t.Errorf("--color never is not honoured:\n%q", got)
	}
	t.Setenv("TERM", "dumb")
	if got := report(80); strings.Contains(got, "\x1b") {
		t.Errorf("TERM=dumb is not honoured:\n%q", got)
	}
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "1")
	if got := report(80); strings.Contains(got, "\x1b") {
		t.Errorf("NO_COLOR is not honoured:\n%q", got)
	}
	if got := report(80, "--color", "always"); !strings.Contains(got, "\x1b[") {
		t.Error("--color always does not outrank NO_COLOR")
	}
}

// TestProgressOnTerminal: while a cluster is read, a terminal shows the progress on one
// line of standard error, which is cleared at the end.
func TestProgressOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	tty, drain := openTerminal(t, 80)
	streams, out, _ := testStreams()
	streams.ErrOut = tty
	c := &reportCommand{env: env{streams: streams}, hosts: &source.HostFlags{}, fail: failFlag{failOn: failNever}, output: outputFlags{[]string{"json"}, terminal.ColorAuto}}
	command := newVersion(c.env)
	c.sources.AddTo(command)
	c.fleet.addFlags(command)
	c.sources.Files = []string{"unused"}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	c.reader = &scriptedReader{first: liveStory(t), second: liveStory(t)}
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := drain()
	if !strings.Contains(got, "checking") || !strings.HasSuffix(got, "\r\x1b[K") || strings.Contains(got, "\n") {
		t.Errorf("the terminal was shown %q", got)
	}
	if !strings.HasPrefix(out.String(), "{") {
		t.Errorf("standard output begins with %.20q", out)
	}
}

func unsetenv(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // restores it at the end of the test
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}
