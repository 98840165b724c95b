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

// Aliases gives names and addresses their replacements, in two rounds over the same
// texts: the first collects, the second replaces.
type Aliases struct {
	collecting bool
	seen       map[Kind]map[string]string // the name, and its replacement
	// values are the labels of nodes and namespaces: what selectors select by.
	values map[string]map[string]bool
	// addresses are those to replace, and their replacements; pools hold those to keep.
	addresses map[netip.Addr]netip.Addr
	pools     []netip.Prefix
}

// Kind is a kind of name; it is what the replacements are called, as in node-12.
type Kind string

const (
	// UID is a kind whose replacements are UUIDs.
	UID Kind = "uid"
	// AS is a kind whose replacements are AS numbers.
	AS Kind = "as"

	labels  Kind = "label"
	values  Kind = "value"
	numbers Kind = "number"
)

// privateAS is what the replacements of AS numbers count up from: the private use
// range of RFC 6996.
const privateAS = 4200000000

// Bad stands for a text that is not what its field calls for, and is not for others to
// read. It makes no sense to any decoder, either.
const Bad = "?"

// New returns Aliases in their first round, which collects.
func New() *Aliases {
	return &Aliases{collecting: true, seen: map[Kind]map[string]string{}, values: map[string]map[string]bool{}, addresses: map[netip.Addr]netip.Addr{}}
}

// Collecting reports whether this is the first round, in which a replacement is the name
// itself.
func (n *Aliases) Collecting() bool { return n.collecting }

// Name returns the replacement of a name; an empty one stays empty, and of one that was
// not collected it is empty.
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

// EndCollecting ends the first round: every name that was seen gets its replacement.
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
		// b before a puts lower case first: it is the one without an offset.
		width := len(fmt.Sprint(len(all)))
		number, spelling, last := 0, 0, ""
		for _, s := range all {
			lower := strings.ToLower(s)
			if lower != last || number == 0 {
				number, spelling, last = number+1, 0, lower
			}
			if s != lower {
				spelling++
			}
			of[s] = spelled(c.replacement(number, width), spelling)
		}
	}
}

// replaceNumbers gives numbers others of the same order: node affinities compare them. Those
// that are equal stay so, and differ by leading zeros.
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

// replacement returns the replacement of the name of a number.
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

// spelled writes a word in another mixture of upper and lower case: the bits of
// number tell which letters are large, so that 0 changes nothing.
func spelled(word string, number int) string {
	out := []byte(word)
	for i := 0; i < len(out) && number > 0; i++ {
		if out[i] < 'a' || out[i] > 'z' {
			continue
		}
		if number&1 == 1 {
			out[i] -= 'a' - 'A'
		}
		number >>= 1
	}
	return string(out)
}

// Names tells what the names in an anonymized snapshot stand for: by kind of
// name, and by the name in the snapshot.
type Names map[string]map[string]string

// Table returns what the replacements stand for.
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
