package phrase

import (
	"fmt"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// OrNone returns a text, or "none" for an empty one.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// FullName writes "NAMESPACE/NAME", or nothing where there is no name.
func FullName(namespace, name string) string {
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// Owner names an owner within a sentence: a node by its name, and says so where there is none.
func Owner(o blocks.Owner) string {
	if o == (blocks.Owner{}) {
		return "no node"
	}
	if n := o.Node(); n != "" {
		return n
	}
	return o.String()
}

// OnNode is " on NODE", or nothing.
func OnNode(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}

// Each writes words with commas and "and".
func Each(words []string) string {
	switch n := len(words); n {
	case 0:
		return "none"
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// Time writes a time as reports and evidence do.
func Time[T time.Time | blocks.Time](t T) string {
	at, ok := any(t).(time.Time)
	if of, compact := any(t).(blocks.Time); compact && !ok {
		at = of.Std()
	}
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// listLimit is how many things a text lists before it only counts the rest.
const listLimit = 10

// List joins words by commas, counting what is beyond the limit.
func List(words []string) string { return ListBy(", ", words) }

// ListBy joins words, or clauses that hold commas themselves.
func ListBy(sep string, words []string) string {
	if len(words) <= listLimit {
		return strings.Join(words, sep)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(words[:listLimit], sep), sep, len(words)-listLimit)
}

// Plural writes a number with its noun: "1 block", "2 blocks", "3 addresses".
func Plural(n int, noun string) string { return PluralCount(blocks.CountOf(n), noun) }

// PluralCount is [Plural] of a number that may exceed 64 bits.
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

// NumberIs writes a number with its noun and verb: "1 pod is", "2 pods are".
func NumberIs(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return Plural(n, noun) + " are"
}

// Arg quotes a word for a POSIX shell if it holds anything but letters, digits and the
// signs usual in names and paths: names come from the cluster, and people copy commands.
func Arg(name string) string {
	plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:@,+=%", r)
	})
	if plain {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// FullNames returns the names of pods as NAMESPACE/NAME.
func FullNames(ws []*blocks.Workload) []string {
	out := make([]string, len(ws))
	for i, w := range ws {
		out[i] = w.FullName()
	}
	return out
}

// Duration writes a duration without units that are zero, such as "15m".
func Duration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if len(s) > len(zero) && s[len(s)-len(zero):] == zero {
			s = s[:len(s)-2]
		}
	}
	return s
}

// One chooses by whether there is one of something, or another number.
func One(n int, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}

// PluralVerb writes a number with its noun and a verb: "1 pod waits", "2 pods wait".
func PluralVerb(n int, noun, singular, plural string) string {
	return Plural(n, noun) + " " + One(n, singular, plural)
}

// Some writes up to three words with "and", and counts the others.
func Some(words []string) string {
	const most = 3
	if len(words) <= most {
		return Each(words)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most-1], ", "), len(words)-most+1)
}
