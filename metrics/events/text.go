package events

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// maxMessage is how many bytes an Event's message may have (kubernetes
// pkg/apis/core/validation, NoteLengthLimit).
const maxMessage = 1024

// acronyms are the words of check IDs that are none.
var acronyms = map[string]string{"ip": "IP", "gc": "GC"}

// reasonOf returns a check's ID as Events write reasons: "RouteBlackhole".
func reasonOf(check string) string {
	var out strings.Builder
	for word := range strings.FieldsFuncSeq(check, func(r rune) bool { return r == '/' || r == '-' }) {
		if a, ok := acronyms[word]; ok {
			word = a
		}
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// findingMessage says what was found and what to do next.
func findingMessage(f *audit.Finding) string {
	next := ""
	if f.Fix.Command != "" {
		next = " [next: " + cut(oneLine(f.Fix.Command), maxMessage/2) + "]"
	}
	return cut(oneLine(f.Message), maxMessage-len(next)) + next
}

// endMessage says that a finding is gone, or is now too mild to be told of.
func endMessage(t *task) (reason, message string) {
	reason = reasonOf(t.check)
	if f := t.finding; f != nil {
		return reason + "Eased", cut(oneLine(fmt.Sprintf("No longer %s, now %s: %s", t.before, f.Severity, f.Message)), maxMessage)
	}
	return reason + "Resolved", cut(oneLine(fmt.Sprintf("Resolved: %s no longer finds %s (%s before)", t.check, t.subject, t.before)), maxMessage)
}

func typeOf(s state.Severity) string {
	if s >= state.Warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// oneLine makes a text fit for a line on a terminal: names come from the cluster,
// and anyone who chose one may have had terminals in mind.
func oneLine(s string) string {
	var out strings.Builder
	for _, r := range strings.Join(strings.Fields(s), " ") {
		if r != utf8.RuneError && strconv.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// cut shortens a text to so many bytes, between two characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const ellipsis = "…"
	for most -= len(ellipsis); most > 0 && !utf8.RuneStart(s[most]); {
		most--
	}
	return s[:most] + ellipsis
}
