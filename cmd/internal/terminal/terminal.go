// Package terminal describes the terminals of a command: their width, colours and characters. It
// shows progress on them.
package terminal

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"
)

// Width returns the number of columns of a terminal; 0 for other writers.
func Width(w io.Writer) int {
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
	ColorAuto   = "auto"
	ColorAlways = "always"
	ColorNever  = "never"
)

// UseColor reports whether output to a writer is coloured. "auto" enables colours on
// terminals, unless NO_COLOR or TERM=dumb disable them.
func UseColor(mode string, w io.Writer) bool {
	return mode == ColorAlways || mode == ColorAuto && printers.AllowsColorOutput(w)
}

// ASCIIOnly reports whether output to a writer is limited to ASCII: the locale names a
// character set other than UTF-8, or the terminal is dumb. Without a locale, as in many
// containers, UTF-8 is assumed.
func ASCIIOnly(w io.Writer) bool {
	if Width(w) > 0 && os.Getenv("TERM") == "dumb" {
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first variable that is set counts
		if locale := os.Getenv(name); locale != "" {
			_, charset, _ := strings.Cut(strings.ToLower(locale), ".")
			charset, _, _ = strings.Cut(charset, "@")
			return charset != "utf-8" && charset != "utf8"
		}
	}
	return false
}
