package blocks

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Placement is where a pod may run by its nodeSelector and its required node affinity.
// What else the scheduler goes by, such as affinities between pods, is not read.
type Placement struct {
	// Terms are alternatives, each a label selector of nodes as kubectl writes them, in
	// which metadata.name is the node's name
	// ([PlacementName]). Without any the pod may run nowhere.
	Terms []string
}

func (p *Placement) String() string { return strings.Join(p.Terms, " or ") }

// maxLabelValue is the length of a label's value from which on Kubernetes takes none
// (k8s.io/apimachinery/pkg/util/validation, LabelValueMaxLength); a node's name may be longer.
const maxLabelValue = 63

// PlacementName is a node's name as it stands in a term: one that is too long for a label's
// value is cut short, and a hash tells such names apart.
func PlacementName(node string) string {
	if len(node) <= maxLabelValue {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	return node[:maxLabelValue-9] + "-" + hex.EncodeToString(sum[:4])
}

// Matcher returns what reports whether a node is among those where the pod may run, as
// the scheduler has it (k8s.io/component-helpers/scheduling/corev1/nodeaffinity). A nil
// placement allows all.
func (p *Placement) Matcher() func(*Node) bool {
	if p == nil {
		return func(*Node) bool { return true }
	}
	var terms []labels.Selector
	for _, t := range p.Terms {
		if s, err := labels.Parse(t); err == nil {
			terms = append(terms, s)
		}
	}
	return func(n *Node) bool {
		for _, s := range terms {
			if s.Matches(named{labels.Set(n.Labels), PlacementName(n.Name)}) {
				return true
			}
		}
		return false
	}
}

// named are the labels of a node, and its name as terms have it.
type named struct {
	labels.Set
	name string
}

func (n named) Lookup(label string) (string, bool) {
	if label == "metadata.name" {
		return n.name, true
	}
	return n.Set.Lookup(label)
}

func (n named) Has(label string) bool { _, has := n.Lookup(label); return has }

func (n named) Get(label string) string { value, _ := n.Lookup(label); return value }
