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

// Clean makes characters visible that a terminal would interpret, or that hide or reorder
// others. Names come from the cluster, and anyone who can create an object chooses its
// name.
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

// displayWidth returns the number of terminal columns of a clean text: two for a wide East
// Asian character, none for a combining mark.
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

// widest returns the largest display width of the texts.
func widest[E any](list []E, text func(*E) string) int {
	n := 0
	for i := range list {
		n = max(n, displayWidth(Clean(text(&list[i]))))
	}
	return n
}

// pad fills a text with spaces up to a width, on the left if right-aligned.
func pad(s string, to int, right bool) string {
	fill := strings.Repeat(" ", max(0, to-displayWidth(s)))
	if right {
		return fill + s
	}
	return s + fill
}

// wrapWords breaks a text between words into lines of at most width columns. A longer word
// gets a line of its own.
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

// firstSentence returns the first sentence of a text.
func firstSentence(s string) string {
	words := strings.Fields(s)
	for i, w := range words[:max(len(words)-1, 0)] {
		if next, _ := utf8.DecodeRuneInString(words[i+1]); strings.HasSuffix(w, ".") && (unicode.IsUpper(next) || unicode.IsDigit(next)) {
			return strings.Join(words[:i+1], " ")
		}
	}
	return strings.Join(words, " ")
}

// cut returns the first most items of a list and the number of the others. If only one
// would remain, cut returns the whole list, because "and 1 more" takes as much room.
func cut[E any](list []E, most int) (shown []E, rest int) {
	if most == math.MaxInt || len(list) <= most+1 {
		return list, 0
	}
	return list[:most], len(list) - most
}

// CutNames joins the first most names, and adds the number of the others in a format such
// as "and %d more".
func CutNames(names []string, most int, format string) string {
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf(format, len(names)-most))
	}
	return strings.Join(names, ", ")
}

// Runs splits a list into runs of alike neighbours.
func Runs[E any](list []E, alike func(a, b *E) bool) (out [][]E) {
	for from, i := 0, 1; i <= len(list); i++ {
		if i == len(list) || !alike(&list[from], &list[i]) {
			out, from = append(out, list[from:i]), i
		}
	}
	return out
}

// groupBy groups a list by a key. Groups are in the order of their first element.
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

// Short formats a count for people: up to 8 digits in full, larger ones as a power of two
// or with two significant digits. Only tables use it; data formats keep all digits.
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

// percent formats a share so that "0%" always means none and "100%" always means all.
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
