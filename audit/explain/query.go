package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/errortext"
)

// Query is a parsed query for an explanation.
type Query struct {
	// Text is the query as the user wrote it.
	Text string
	// Check is set if the query is a check's ID. Explaining a check needs no cluster.
	Check *audit.Check
	// Messages are set if the query is a text with known error messages, and Names are the objects
	// that the text names.
	Messages []errortext.Match
	Names    errortext.Names
	// Namespace limits pods with a bare name; empty for all namespaces.
	Namespace string

	// kinds are the kinds of subject to look for.
	kinds []string
	// For a query of the form KIND/NAME, as printed by "kubectl get -o name", typed is the kind and
	// name the rest. Otherwise name is the whole text.
	name, typed string
	addr        netip.Addr
	prefix      netip.Prefix
}

// QueryKinds are the kinds that a query may be limited to.
var QueryKinds = []string{"ip", "block", "node", "pod", "pool", "handle", "check"}

// typedKinds are the words before the slash in names of the form KIND/NAME, in the
// singular.
var typedKinds = map[string]string{
	"ip": "ip", "block": "block", "ipamblock": "block", "blockaffinity": "block", "node": "node", "no": "node", "pod": "pod", "po": "pod",
	"pool": "pool", "ippool": "pool", "handle": "handle", "ipamhandle": "handle",
}

// typedKind returns the kind that a word names. Like kubectl, it accepts any case, singular or
// plural, with or without the API group; empty for an unknown word.
func typedKind(word string) string {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	for _, singular := range []string{word, strings.TrimSuffix(word, "s"), strings.TrimSuffix(word, "ies") + "y"} {
		if k := typedKinds[singular]; k != "" {
			return k
		}
	}
	return ""
}

// IsKind reports whether a word before a name is a kind that can be explained.
func IsKind(word string) bool { return typedKind(word) != "" }

// wanted lists the kinds of query, except error messages.
const wanted = "an address, a CIDR, a node, a pod (NAMESPACE/POD), a pool, a handle or a check's ID"

// ParseQuery parses a query: an address, a CIDR, a name, NAMESPACE/POD, KIND/NAME, a check's ID or a
// text with an error message.
// kind, if not empty, is one of [QueryKinds] and selects among subjects with the same name.
func ParseQuery(text, kind string) (Query, error) {
	q := Query{Text: text, name: strings.TrimSpace(text), kinds: QueryKinds}
	if kind != "" {
		if !slices.Contains(QueryKinds, kind) {
			return q, fmt.Errorf("unknown kind %q: want one of %s", kind, strings.Join(QueryKinds, ", "))
		}
		q.kinds = []string{kind}
	}
	spaced := strings.ContainsAny(q.name, " \t\n")
	if kind == "" && (spaced || strings.ToLower(q.name) != q.name) { // no object's name has spaces or capitals
		if q.Messages, q.Names = errortext.Find(q.name); len(q.Messages) > 0 {
			return q, nil
		}
	}
	switch {
	case q.name == "":
		return q, fmt.Errorf("cannot explain %q: want %s", text, wanted)
	case spaced:
		return q, fmt.Errorf("%.80q contains no known error message about addresses: want such a message, or %s", q.name, wanted)
	}
	if q.wants("check") {
		c, err := checks.All.ByID(q.name)
		if kind == "check" && err != nil {
			return q, err
		}
		if c != nil {
			q.Check = c
			return q, nil
		}
	}
	if word, rest, ok := strings.Cut(q.name, "/"); ok && kind == "" && rest != "" {
		switch strings.ToLower(word) {
		case "ipamconfig", "ipamconfiguration", "cluster":
			return q, fmt.Errorf("%q concerns the whole cluster: \"calico-audit report -o wide --check config\" shows its findings", text)
		}
		if k := typedKind(word); k != "" {
			if err := q.parseNumbers(rest); err != nil {
				return q, err
			}
			if k != "ip" || q.addr.IsValid() {
				q.typed = k
			}
			return q, nil
		}
	}
	if err := q.parseNumbers(q.name); err != nil {
		return q, err
	}
	return q, q.checkKind(kind)
}

// parseNumbers parses an address or a CIDR; any other text is a name.
func (q *Query) parseNumbers(text string) error {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return fmt.Errorf("%q has a zone, which Calico's addresses do not have", text)
		}
		q.addr = a.Unmap()
		return nil
	}
	before, _, cidr := strings.Cut(text, "/")
	if a, _ := netip.ParseAddr(before); !cidr || !a.IsValid() {
		return nil // a name, or NAMESPACE/POD
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("%q is not a CIDR: %w", text, withoutPrefix(err))
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	q.prefix = p.Masked()
	if p.IsSingleIP() {
		q.addr = p.Addr()
	}
	return nil
}

// withoutPrefix strips the prefix of netip's errors: the function call and the parsed text.
func withoutPrefix(err error) error {
	s := err.Error()
	if i := strings.LastIndex(s, ": "); i >= 0 {
		s = s[i+2:]
	}
	return errors.New(s)
}

func (q *Query) checkKind(kind string) error {
	switch {
	case kind == "ip" && !q.addr.IsValid():
		return fmt.Errorf("%q is not an address", q.Text)
	case kind == "pod" && strings.Count(q.name, "/") > 1:
		return fmt.Errorf("%q is not NAMESPACE/POD", q.Text)
	}
	return nil
}

// MayBePool reports whether the query may match a pool.
func (q *Query) MayBePool() bool { return q.Check == nil && len(q.Messages) == 0 && q.wants("pool") }

// wants reports whether the query looks for a kind.
func (q *Query) wants(kind string) bool { return slices.Contains(q.kinds, kind) }

// named returns the names under which to look for a kind: the whole text and, for KIND/NAME of that
// kind, the name.
func (q *Query) named(kind string) []string {
	if !q.wants(kind) {
		return nil
	}
	if q.typed == kind {
		return []string{q.name, q.bare()}
	}
	return []string{q.name}
}

// bare returns the name without its kind.
func (q *Query) bare() string {
	if q.typed == "" {
		return q.name
	}
	_, rest, _ := strings.Cut(q.name, "/")
	return rest
}

// isAddress reports whether the query is for an address.
func (q *Query) isAddress() bool {
	return q.addr.IsValid() && q.wants("ip") && (q.typed == "" || q.typed == "ip")
}

// isCIDR reports whether the query is a CIDR, or an address that may be meant as one.
func (q *Query) isCIDR(kind string) bool {
	return q.prefix.IsValid() && q.wants(kind) && (q.typed == "" || q.typed == kind)
}

// NotFoundError means that no object matches the query.
type NotFoundError struct {
	Query Query
	// Unreadable is why an object of that name could not be parsed; empty if there is no such
	// object.
	Unreadable string
	// Elsewhere names an object of that name that explain does not cover, and the command that
	// shows it; empty if there is none.
	Elsewhere string
	// Name is the name without its kind. Names are the existing names, for suggestions.
	Name  string
	Names []string
}

// Error implements error.
func (e *NotFoundError) Error() string {
	if e.Unreadable != "" {
		return fmt.Sprintf("%q could not be read: %s", e.Query.Text, e.Unreadable)
	}
	if e.Elsewhere != "" {
		return e.Elsewhere
	}
	what, name := "node, pod, pool, block or handle", e.Query.Text
	switch {
	case len(e.Query.kinds) == 1:
		what = e.Query.kinds[0]
	case e.Query.typed != "":
		what, name = e.Query.typed, e.Query.bare()
	case e.Query.Namespace != "":
		what = "pod"
	case strings.Contains(e.Query.name, "/"):
		what = "pod or check"
	}
	if what == "pod" && e.Query.Namespace != "" {
		return fmt.Sprintf("no pod %q in namespace %q", name, e.Query.Namespace)
	}
	return fmt.Sprintf("no %s %q", what, name)
}
