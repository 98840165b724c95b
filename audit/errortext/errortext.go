// Package errortext knows the error messages about addresses that Calico, Whereabouts, the kubelet
// and other allocators print: what each means, and which checks find its cause. A message is found
// inside any text that contains it, such as the output of "kubectl describe pod" or a log line.
package errortext

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Message is a known error message. Several texts with one meaning are one message.
type Message struct {
	// ID is a short, unique name.
	ID string
	// By is the component that writes the message.
	By string
	// Texts are the parts of the message that never vary. {NAME} stands for a part that varies: see
	// placeholders.
	Texts []string
	// Means is the meaning, in one sentence.
	Means string
	// Checks are the IDs of the checks that find the cause in a cluster, the likeliest first; empty
	// if no object of the cluster shows it.
	Checks []string
	// Do is the remedy, in one sentence.
	Do string
	// Common is true for the messages that people meet most often.
	Common bool
	// Wraps is true if the message only introduces the error that follows it. [Find] then prefers
	// any other message.
	Wraps bool
}

// All are the known messages, by component.
var All = slices.Concat(calicoIPAM, calicoCNI, calicoControllers, calicoNode, tigeraOperator, calicoctl, whereabouts, kubernetes, otherAllocators)

// placeholders are the parts of a message that vary, as regular expressions. [Find] returns the
// objects that node, pool, cidr, cidrs, ip, namespace and pod match.
var placeholders = map[string]string{
	"n":         `-?\d+`,
	"node":      `[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?`,
	"pool":      `[A-Za-z0-9](?:[-A-Za-z0-9./:]*[A-Za-z0-9])?`,
	"namespace": `[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?`,
	"cidr":      `[0-9A-Fa-f:.]+/\d+`,
	"cidrs":     `[^\]]*`,
	"ip":        `[0-9A-Fa-f]*[:.][0-9A-Fa-f:.]*[0-9A-Fa-f:]`,
	"any":       `.{0,400}?`,
}

// Match is a message that was found in a text.
type Match struct {
	*Message
	// Text is the message as found, without escapes and line breaks.
	Text string
	// Named are the objects that the message itself names.
	Named Names
	// at is where the message begins in the text.
	at int
}

type pattern struct {
	message *Message
	re      *regexp.Regexp
	// literal is the longest part without a placeholder, in lower case. A text without it is not
	// searched, which is a hundred times faster.
	literal string
}

var patterns = sync.OnceValue(func() (out []pattern) {
	for i := range All {
		for _, text := range All[i].Texts {
			parts := placeholder.Split(strings.ToLower(text), -1)
			longest := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
			out = append(out, pattern{&All[i], regexp.MustCompile(expression(text)), longest})
		}
	}
	return out
})

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// expression returns the regular expression for a text with placeholders.
func expression(text string) string {
	out, last := "(?i)", 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		if placeholders[name] == "" {
			panic("errortext: unknown placeholder " + name)
		}
		out += regexp.QuoteMeta(text[last:at[0]]) + "(?P<" + name + ">" + placeholders[name] + ")"
		last = at[1]
	}
	return out + regexp.QuoteMeta(text[last:])
}

// Find returns the messages in a text, in the order of the text, and the objects that the text
// around them names. A message that only wraps another (see Wraps) is returned only if the text has
// no other message; of several such messages, the last is returned.
func Find(text string) ([]Match, Names) {
	text = unescape(text)
	var found, wrapping []Match
	lower := strings.ToLower(text)
	for _, p := range patterns() {
		if !strings.Contains(lower, p.literal) {
			continue
		}
		for _, at := range p.re.FindAllStringSubmatchIndex(text, -1) {
			m := Match{Message: p.message, Text: text[at[0]:at[1]], at: at[0]}
			for i, name := range p.re.SubexpNames() {
				if i > 0 && at[2*i] >= 0 {
					m.Named.add(name, text[at[2*i]:at[2*i+1]])
				}
			}
			list := &found
			if p.message.Wraps {
				list = &wrapping
			}
			if i := slices.IndexFunc(*list, func(o Match) bool { return o.Message == m.Message }); i >= 0 {
				(*list)[i].Named.merge(m.Named)
				continue
			}
			*list = append(*list, m)
		}
	}
	byPlace := func(a, b Match) int { return a.at - b.at }
	slices.SortStableFunc(found, byPlace)
	slices.SortStableFunc(wrapping, byPlace)
	if len(found) == 0 && len(wrapping) > 0 {
		found = wrapping[len(wrapping)-1:]
	}
	if len(found) == 0 {
		return nil, Names{}
	}
	names := namesIn(text)
	for _, m := range found {
		names.merge(m.Named)
	}
	return found, names
}

var (
	escapedQuote = regexp.MustCompile(`\\+(["'/])`)
	escapedSpace = regexp.MustCompile(`\\+[nrt]|\s+`)
	quotes       = strings.NewReplacer("“", `"`, "”", `"`, "‘", "'", "’", "'", "''", "'", `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")
)

// unescape undoes what JSON, YAML, logs and terminals do to a message: escapes, typographic quotes
// and line breaks.
func unescape(text string) string {
	text = escapedQuote.ReplaceAllString(text, "$1")
	return quotes.Replace(escapedSpace.ReplaceAllString(text, " "))
}

// Sample returns a text as a document shows it, with words in capitals for its placeholders.
func Sample(text string) string {
	words := map[string]string{"n": "N", "cidrs": "CIDR", "ip": "ADDRESS", "any": "…"}
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		name := strings.Trim(p, "{}")
		if word := words[name]; word != "" {
			return word
		}
		return strings.ToUpper(name)
	})
}
