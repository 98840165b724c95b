package decode

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Anonymizer replaces the names in a snapshot that is to be given away. It is used in
// two rounds over the same objects: the first collects, the second replaces.
//
// Equal names get equal replacements wherever they stand, different names
// different ones, and replacements sort as the names did: a report lists the same
// things in the same order. Names that differ in upper and lower case alone get
// replacements that do, because Calico lowers the case of some names and not of
// others.
type Anonymizer struct {
	collecting bool
	seen       map[category]map[string]string // the name, and its replacement
	// values are the labels of nodes and namespaces: what selectors select by.
	values map[string]map[string]bool
	// addresses are those to replace, and their replacements; pools hold those to keep.
	addresses map[netip.Addr]netip.Addr
	pools     []netip.Prefix
	// networksOf are the names that keep networks of Whereabouts' apart.
	networksOf map[string]bool
	// Claimant is the node of the affinity at hand, whose name begins with it.
	Claimant string
}

// category is a kind of name; it is what the replacements are called.
type category string

const (
	someNode        category = "node"
	somePod         category = "pod"
	someNamespace   category = "namespace"
	somePool        category = "pool"
	someSandbox     category = "sandbox"
	someNetwork     category = "network"
	someHandle      category = "handle"
	someReservation category = "reservation"
	somePeer        category = "peer"
	someFilter      category = "filter"
	someService     category = "service"
	someVM          category = "vm"
	someController  category = "controller"
	someTaint       category = "taint"
	someLabel       category = "label"
	someValue       category = "value"
	someWord        category = "word"
	someBlock       category = "block"
	someAffinity    category = "affinity"
	someCluster     category = "cluster"
	someUID         category = "uid"
	someAS          category = "as"
)

// NewAnonymizer returns an Anonymizer in its first round, which collects.
func NewAnonymizer() *Anonymizer {
	return &Anonymizer{collecting: true, seen: map[category]map[string]string{}, values: map[string]map[string]bool{}, addresses: map[netip.Addr]netip.Addr{}, networksOf: map[string]bool{}}
}

// name returns the replacement of a name; an empty one stays empty.
func (n *Anonymizer) name(c category, s string) string {
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
func (n *Anonymizer) EndCollecting() {
	n.collecting = false
	n.replaceAddresses()
	for c, of := range n.seen {
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

// replacement returns the replacement of the name of a number.
func (c category) replacement(number, width int) string {
	switch c {
	case someUID:
		return fmt.Sprintf("00000000-0000-0000-0000-%012d", number)
	case someAS:
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
func (n *Anonymizer) Table() Names {
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
