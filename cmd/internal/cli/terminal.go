package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// terminalWidth returns how many columns a writer has if it is a terminal, else
// 0.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// The values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// checkColor reports whether a value of --color makes sense.
func checkColor(mode string) error {
	switch mode {
	case colorAuto, colorAlways, colorNever:
		return nil
	}
	return fmt.Errorf("unknown value %q of --color: want auto, always or never", mode)
}

// useColor tells whether output to a writer is coloured: "auto" means on a
// terminal, unless NO_COLOR or TERM=dumb say no.
func useColor(mode string, w io.Writer) bool {
	switch mode {
	case colorAlways:
		return true
	case colorAuto:
		return printers.AllowsColorOutput(w)
	}
	return false
}

// progressLine returns the line that shows how far reading has come: on a
// terminal only, and not on one that can do nothing.
func progressLine(streams genericiooptions.IOStreams) *view.ProgressLine {
	if printers.IsTerminal(streams.ErrOut) && os.Getenv("TERM") != "dumb" {
		return view.NewProgressLine(streams.ErrOut)
	}
	return view.NewProgressLine(nil)
}

// asciiOnly reports whether output to a writer must do with ASCII: the locale names
// another character set than UTF-8, or the terminal is a dumb one. Where nothing
// names a locale, as in many containers, UTF-8 is meant.
func asciiOnly(w io.Writer) bool {
	if terminalWidth(w) > 0 && os.Getenv("TERM") == "dumb" {
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first that is set counts, as everywhere
		if locale := os.Getenv(name); locale != "" {
			_, charset, _ := strings.Cut(strings.ToLower(locale), ".")
			charset, _, _ = strings.Cut(charset, "@")
			return charset != "utf-8" && charset != "utf8"
		}
	}
	return false
}
