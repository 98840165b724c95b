package alias

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Aliases gives names and addresses replacements, in two rounds over the same texts: the
// first collects, the second replaces.
type Aliases struct {
	collecting bool
	seen       map[Kind]map[string]string // replacements by name
	// values holds the values of nodes' and namespaces' labels, for rewriting selectors.
	values map[string]map[string]bool
	// addresses maps addresses to replacements; pools hold addresses to keep.
	addresses map[netip.Addr]netip.Addr
	pools     []netip.Prefix
	// networksOf are the network names that separate Whereabouts' networks.
	networksOf map[string]bool
	// Claimant is the node of the current affinity; the affinity's name starts with it.
	Claimant string
}

// Kind is a kind of name. It is also the prefix of replacements, as in node-12.
type Kind string

// The kinds of names.
const (
	// UID is replaced by UUIDs.
	UID Kind = "uid"
	// AS is replaced by AS numbers.
	AS Kind = "as"

	Node      Kind = "node"
	Pod       Kind = "pod"
	Namespace Kind = "namespace"
	Pool      Kind = "pool"
	Sandbox   Kind = "sandbox"
	Network   Kind = "network"
	Handle    Kind = "handle"
	VM        Kind = "vm"

	labels  Kind = "label"
	values  Kind = "value"
	numbers Kind = "number"
)

// privateAS is the base of replaced AS numbers, in the private use range of RFC 6996.
const privateAS = 4200000000

// Bad replaces a value that is invalid for its field, and therefore might reveal anything.
// It is invalid for every decoder, too.
const Bad = "?"

// Kept returns s if it is valid, else [Bad].
func Kept(s string, valid bool) string {
	if valid {
		return s
	}
	return Bad
}

// New returns Aliases in their first, collecting round.
func New() *Aliases {
	return &Aliases{collecting: true, seen: map[Kind]map[string]string{}, values: map[string]map[string]bool{}, addresses: map[netip.Addr]netip.Addr{}, networksOf: map[string]bool{}}
}

// Collecting reports whether this is the first round. In it, names are returned unchanged.
func (n *Aliases) Collecting() bool { return n.collecting }

// Name returns the replacement of a name; "" for an empty name, and for a name that was not
// collected.
func (n *Aliases) Name(c Kind, s string) string {
	if s == "" {
		return ""
	}
	if !n.collecting {
		return n.seen[c][s]
	}
	of := n.seen[c]
	if of == nil {
		of = map[string]string{}
		n.seen[c] = of
	}
	of[s] = ""
	return s
}

// EndCollecting ends the first round: every collected name gets its replacement.
func (n *Aliases) EndCollecting() {
	n.collecting = false
	n.replaceAddresses()
	for c, of := range n.seen {
		if c == numbers {
			replaceNumbers(of)
			continue
		}
		all := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
			return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(b, a))
		})
		// The lower-case spelling of a name comes first. One of its other spellings is the same
		// name in upper case, and any further spelling is another name.
		width := len(fmt.Sprint(len(all)))
		number, last, upper := 0, "", false
		for _, s := range all {
			lower := strings.ToLower(s)
			if lower != last || upper || number == 0 {
				number, last, upper = number+1, lower, false
			}
			if of[s] = c.replacement(number, width); s != lower && c != UID {
				of[s], upper = strings.ToUpper(of[s]), true
			}
		}
	}
}

// replaceNumbers replaces numbers by others in the same order, because node affinities
// compare them. Different spellings of one number still differ only in leading zeros.
func replaceNumbers(of map[string]string) {
	value := func(s string) int64 { v, _ := strconv.ParseInt(s, 10, 64); return v }
	all := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(value(a), value(b)), cmp.Compare(len(a), len(b)))
	})
	rank, zeros := 0, 0
	for i, s := range all {
		if zeros++; i == 0 || value(s) != value(all[i-1]) {
			rank, zeros = rank+1, 0
		}
		of[s] = strings.Repeat("0", zeros) + strconv.Itoa(rank)
	}
}

// replacement returns the n-th replacement of a kind; width pads the number.
func (c Kind) replacement(number, width int) string {
	switch c {
	case UID:
		return fmt.Sprintf("00000000-0000-0000-0000-%012d", number)
	case AS:
		return fmt.Sprint(privateAS + number)
	default:
		return fmt.Sprintf("%s-%0*d", c, width, number)
	}
}

// Names maps kinds of names and replacements to the original names.
type Names map[string]map[string]string

// Table returns the original names of all replacements.
func (n *Aliases) Table() Names {
	out := Names{}
	for c, of := range n.seen {
		back := make(map[string]string, len(of))
		for name, replacement := range of {
			back[replacement] = name
		}
		out[string(c)] = back
	}
	addresses := make(map[string]string, len(n.addresses))
	for a, replacement := range n.addresses {
		addresses[replacement.String()] = a.String()
	}
	out["address"] = addresses
	return out
}
