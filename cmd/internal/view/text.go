package view

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/calico-audit/calico-audit/blocks"
)

// Clean makes characters visible that a terminal would act upon, or that would
// hide or reorder others. Names come from the cluster, and anyone who may create an
// object there may choose them.
func Clean(s string) string {
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
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

// displayWidth returns how many terminal columns a clean text takes: two for a
// wide East Asian character, none for a combining mark.
func displayWidth(s string) int {
	n := 0
	for _, r := range s {
		kind := width.Neutral
		if r >= 0x300 {
			kind = width.LookupRune(r).Kind()
		}
		switch {
		case r >= 0x300 && unicode.In(r, unicode.Mn, unicode.Me):
		case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// widest returns the display width of the widest of some texts, as they are written.
func widest[E any](list []E, text func(*E) string) int {
	n := 0
	for i := range list {
		n = max(n, displayWidth(Clean(text(&list[i]))))
	}
	return n
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
		switch {
		case line == "":
			line, used = word, w
		case used+1+w > width:
			lines = append(lines, line)
			line, used = word, w
		default:
			line, used = line+" "+word, used+1+w
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// firstSentence returns a text up to its first full stop that ends a sentence.
func firstSentence(s string) string {
	words := strings.Fields(s)
	for i, w := range words[:max(len(words)-1, 0)] {
		if next, _ := utf8.DecodeRuneInString(words[i+1]); strings.HasSuffix(w, ".") && (unicode.IsUpper(next) || unicode.IsDigit(next)) {
			return strings.Join(words[:i+1], " ")
		}
	}
	return strings.Join(words, " ")
}

// cut returns so many of a list, and how many are left. Of one more it leaves none:
// "and 1 more" would take the room of the one.
func cut[E any](list []E, most int) (shown []E, rest int) {
	if most == math.MaxInt || len(list) <= most+1 {
		return list, 0
	}
	return list[:most], len(list) - most
}

// CutNames joins so many names, and says how many more there are in a format such as
// "and %d more".
func CutNames(names []string, most int, format string) string {
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf(format, len(names)-most))
	}
	return strings.Join(names, ", ")
}

// Runs splits a list where neighbours are not alike.
func Runs[E any](list []E, alike func(a, b *E) bool) (out [][]E) {
	for from, i := 0, 1; i <= len(list); i++ {
		if i == len(list) || !alike(&list[from], &list[i]) {
			out, from = append(out, list[from:i]), i
		}
	}
	return out
}

// groupBy splits a list by a key, in the order in which the keys come first.
func groupBy[E any, K comparable](list []E, key func(*E) K) (out [][]*E) {
	at := map[K]int{}
	for i := range list {
		k := key(&list[i])
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k], out = n, append(out, nil)
		}
		out[n] = append(out[n], &list[i])
	}
	return out
}

// Short writes a count for people: with all digits while they can be taken in at
// a glance, else as a power of two or to two digits. Only tables shorten; data
// keeps every digit.
func Short(c blocks.Count) string {
	s := c.String()
	if len(s) <= 8 {
		return s
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.Sign() < 0 {
		return s
	}
	if zeros := n.TrailingZeroBits(); n.BitLen() == int(zeros)+1 {
		return fmt.Sprintf("2^%d", zeros)
	}
	f, _ := new(big.Float).SetInt(n).Float64()
	return strings.NewReplacer("e+0", "e", "e+", "e").Replace(fmt.Sprintf("%.2g", f))
}

// percent writes a share of a whole so that "0%" means none and "100%" all.
func percent(part, whole blocks.Count) string {
	if whole.IsZero() {
		return "-"
	}
	share := part.Share(whole) * 100
	switch {
	case part.IsZero():
		return "0%"
	case share < 1:
		return "<1%"
	case share >= 99.5 && part.Cmp(whole) < 0:
		return ">99%"
	}
	return fmt.Sprintf("%.0f%%", share)
}
