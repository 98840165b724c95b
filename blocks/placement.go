package blocks

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Placement limits the nodes for a pod: its nodeSelector, required node affinity and
// tolerations. Pod affinities and other scheduler rules are not read.
type Placement struct {
	// Terms are alternative label selectors of nodes, in kubectl's syntax; the key
	// metadata.name matches the node's name ([PlacementName]). An empty term selects every
	// node. Without terms the pod fits no node.
	Terms []string
	// Tolerates are the tolerations that admit the pod to tainted nodes.
	Tolerates []Toleration
}

// Limited reports whether labels limit the nodes for the pod.
func (p *Placement) Limited() bool { return p != nil && !slices.Contains(p.Terms, "") }

// Tolerated reports whether the pod tolerates a taint.
func (p *Placement) Tolerated(t Taint) bool {
	return p != nil && slices.ContainsFunc(p.Tolerates, func(x Toleration) bool { return x.Tolerates(t) })
}

// ToleratesCordon reports whether the pod may be scheduled on cordoned nodes.
func (p *Placement) ToleratesCordon() bool { return p.Tolerated(taintCordoned) }

// ToleratesNotReady reports whether the pod may be scheduled on nodes that are not ready.
func (p *Placement) ToleratesNotReady() bool {
	return p.Tolerated(taintNotReady) || p.Tolerated(taintUnreachable)
}

// AdmitsDaemon reports whether a DaemonSet would start the pod on a node, where it may still run if
// a taint came later. Its pods tolerate the taints of the node life cycle, except that of a node
// without a network (k8s.io/kubernetes/pkg/controller/daemon, NodeShouldRunDaemonPod).
func (p *Placement) AdmitsDaemon(n *Node) bool {
	return p.Matcher()(n) && (!n.NoNetwork() || p.Tolerated(Taint{Key: TaintNetwork, Effect: "NoSchedule"}))
}

// Misfit explains why a node does not admit a pod like the given one, or returns "". The given pod
// runs on another node; its terms may name that node, as for DaemonSets.
func (w *Workload) Misfit(n *Node) string {
	p := w.Placement
	if p == nil { // not recorded: every pod of a DaemonSet tolerates something
		return ""
	}
	for _, t := range n.KeepsAway() {
		if !p.Tolerated(t) {
			return "does not tolerate its taint " + t.String()
		}
	}
	as := *n
	as.Name = w.Node
	if p.selector()(&as) {
		return ""
	}
	for _, term := range p.Terms {
		if s, err := labels.Parse(term); err == nil {
			all, _ := s.Requirements()
			for _, r := range all {
				if !r.Matches(named{labels.Set(n.Labels), PlacementName(w.Node)}) {
					return "runs only on nodes with " + strings.NewReplacer(" in (", "=", ")", "").Replace(r.String())
				}
			}
		}
	}
	return ""
}

func (p *Placement) String() string { return strings.Join(p.Terms, " or ") }

// maxLabelValue is the maximum length of a label value
// (k8s.io/apimachinery/pkg/util/validation, LabelValueMaxLength). Node names may be longer.
const maxLabelValue = 63

// PlacementName returns a node's name as used in terms. A name too long for a label value
// is cut, and a hash appended.
func PlacementName(node string) string {
	if len(node) <= maxLabelValue {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	return node[:maxLabelValue-9] + "-" + hex.EncodeToString(sum[:4])
}

// Matcher returns a function that reports whether a node's labels and taints admit the pod
// (k8s.io/component-helpers/scheduling/corev1). Taints of the node life cycle, including
// cordons, are ignored. A nil placement fits every node without other taints.
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

// named holds a node's labels, and its name as [PlacementName].
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
