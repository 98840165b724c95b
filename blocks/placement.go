package blocks

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Placement is where a pod may run by its nodeSelector, its required node affinity and its
// tolerations. Affinities between pods and other rules of the scheduler are not read.
type Placement struct {
	// Terms are alternatives, each a label selector of nodes as kubectl writes them, in
	// which metadata.name is the node's name ([PlacementName]). An empty one selects every
	// node; without any term the pod may run nowhere.
	Terms []string
	// Tolerates are the tolerations by which the pod may come to nodes that others do not
	// come to.
	Tolerates []Toleration
}

// Limited reports whether labels limit where the pod may run.
func (p *Placement) Limited() bool { return p != nil && !slices.Contains(p.Terms, "") }

// Tolerated reports whether the pod tolerates a taint.
func (p *Placement) Tolerated(t Taint) bool {
	return p != nil && slices.ContainsFunc(p.Tolerates, func(x Toleration) bool { return x.Tolerates(t) })
}

// ToleratesCordon reports whether the scheduler puts the pod on cordoned nodes, too.
func (p *Placement) ToleratesCordon() bool { return p.Tolerated(taintCordoned) }

// ToleratesNotReady reports whether the scheduler puts the pod on nodes that are not ready, too.
func (p *Placement) ToleratesNotReady() bool {
	return p.Tolerated(taintNotReady) || p.Tolerated(taintUnreachable)
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

// Matcher returns a function that reports whether the scheduler may put the pod on a node by
// the node's labels and taints (k8s.io/component-helpers/scheduling/corev1). Taints of the
// node life-cycle, cordons among them, are not looked at. A nil placement allows every node
// without other taints.
func (p *Placement) Matcher() func(*Node) bool {
	selects := p.selector()
	return func(n *Node) bool {
		return !slices.ContainsFunc(n.KeepsAway(), func(t Taint) bool { return !p.Tolerated(t) }) && selects(n)
	}
}

func (p *Placement) selector() func(*Node) bool {
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
