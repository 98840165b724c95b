package phrase

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// OrNone returns s, or "none" if it is empty.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// FullName returns "NAMESPACE/NAME", or "" without a name.
func FullName(namespace, name string) string {
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// Uses lists what addresses are used for.
func Uses(uses []blocks.Use) string {
	words := make([]string, len(uses))
	for i, u := range uses {
		words[i] = string(u)
	}
	return strings.Join(words, ", ")
}

// OnNode returns " on NODE", or "".
func OnNode(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}

// Time formats a time in RFC 3339, as in reports and evidence; "" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// listLimit is the number of words in a list before the rest is only counted.
const listLimit = 10

// List joins words with commas, or with semicolons if a word contains a comma, and counts those
// beyond listLimit.
func List(words []string) string {
	sep := ", "
	if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, ",") }) {
		sep = "; "
	}
	if len(words) <= listLimit {
		return strings.Join(words, sep)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(words[:listLimit], sep), sep, len(words)-listLimit)
}

// Plural formats a count with its noun: "1 block", "2 blocks", "3 addresses".
func Plural(n int, noun string) string { return PluralCount(blocks.CountOf(n), noun) }

// PluralCount is [Plural] for counts that may exceed 64 bits.
func PluralCount(n blocks.Count, noun string) string {
	if n.Cmp(blocks.CountOf(1)) == 0 {
		return "1 " + noun
	}
	switch {
	case strings.HasSuffix(noun, "s"):
		return n.String() + " " + noun + "es"
	case strings.HasSuffix(noun, "ty"):
		return n.String() + " " + strings.TrimSuffix(noun, "y") + "ies"
	}
	return n.String() + " " + noun + "s"
}

// NumberIs formats a count with its noun and verb: "1 pod is", "2 pods are".
func NumberIs(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return Plural(n, noun) + " are"
}

// Arg quotes a word for a POSIX shell, unless it has only letters, digits and the usual
// signs of names and paths. Names come from the cluster, and people paste the commands.
func Arg(name string) string {
	plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:@,+=%", r)
	})
	if plain {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// FullNames returns the names of pods as "NAMESPACE/NAME".
func FullNames(ws []*blocks.Workload) blocks.Names {
	out := make([]string, len(ws))
	for i, w := range ws {
		out[i] = w.FullName()
	}
	return out
}

// Duration formats a duration without zero units, such as "15m".
func Duration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if len(s) > len(zero) && s[len(s)-len(zero):] == zero {
			s = s[:len(s)-2]
		}
	}
	return s
}

// One returns singular if n is 1, else plural.
func One(n int, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}

// PluralVerb formats a count with its noun and verb: "1 pod waits", "2 pods wait".
func PluralVerb(n int, noun, singular, plural string) string {
	return Plural(n, noun) + " " + One(n, singular, plural)
}
