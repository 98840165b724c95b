package view

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// clean makes characters visible that a terminal would act upon, or that would
// hide or reorder others. Names come from the cluster, and whoever may create an
// object there may choose them.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

func isClean(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

// displayWidth returns how many terminal columns a clean text takes: two for a
// wide East Asian character, none for a combining mark.
func displayWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// pad fills a text with blanks up to a width, on the left for right-aligned
// columns.
func pad(s string, to int, right bool) string {
	fill := strings.Repeat(" ", max(0, to-displayWidth(s)))
	if right {
		return fill + s
	}
	return s + fill
}

// wrapWords breaks a text between words into lines that are at most width
// columns wide. A word that is wider stands on a line of its own, unbroken.
func wrapWords(s string, width int) []string {
	var lines []string
	line, used := "", 0
	for _, word := range strings.Fields(s) {
		w := displayWidth(word)
		if line != "" && used+1+w > width {
			lines = append(lines, line)
			line, used = "", 0
		}
		if line != "" {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+w
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// plural writes a number with its noun: "1 pool", "2 pools".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// firstSentence returns a text up to its first full stop that ends a sentence.
func firstSentence(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	for from := 0; ; {
		i := strings.Index(s[from:], ". ")
		if i < 0 {
			return s
		}
		end := from + i
		next, _ := utf8.DecodeRuneInString(s[end+2:])
		if unicode.IsUpper(next) || unicode.IsDigit(next) {
			return s[:end+1]
		}
		from = end + 2
	}
}
