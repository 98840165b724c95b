package hosts

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Verdict is the conclusion from host views about an allocated address.
type Verdict int

const (
	// Unknown means that the views prove nothing. It is the zero value.
	Unknown Verdict = iota
	// ShowsInUse means that a view shows the address in a network namespace.
	ShowsInUse
	// ShowsFree means that a view of the allocation's own node proves that it does not use the
	// address.
	ShowsFree
)

// Evidence is the conclusion from host views about one allocation.
type Evidence struct {
	Verdict Verdict
	// Node is the allocation's own node; empty if it names none.
	Node string
	// Uses are the places where views show the address, the proven ones first.
	Uses []Use
	// Reason explains the verdict in one sentence, without a full stop.
	Reason string
	// Renew is an instruction to obtain better evidence; empty if the verdict is proven, or
	// if no host view can decide.
	Renew string
}

// Evidence evaluates the host views for an allocation of a node, assigned at a time. Any
// view that shows the address retains it, regardless of its machine, namespace, age and
// origin. Only a view with all of these properties proves that the address is unused:
//
//   - It shows the allocation's own node.
//   - It is at most 10 minutes older than the reading of the cluster, and enough younger than the
//     assignment for the owner to have set up the address. If the time of the assignment is
//     unknown, the block's last write counts.
//   - It shows all network namespaces (see [blocks.HostView.NamespacesComplete]).
//   - It is authenticated, so it must come from the operator or the node.
//
// An address of a virtual machine is never proven unused: a bridged machine has its address
// inside, and no network namespace shows it.
func (vs *Views) Evidence(a netip.Addr, attr *blocks.Attributes, node string, assigned time.Time) Evidence {
	e := Evidence{Node: node}
	if node == "" {
		e.Reason = "the allocation names no node, so no host view can prove it unused"
	}
	if uses := vs.Uses(a); len(uses) > 0 {
		return inUse(e, uses, assigned)
	}
	switch {
	case node == "":
		return e
	case ofVirtualMachine(attr):
		e.Reason = "it is the address of a virtual machine, which may have it without any network namespace showing it"
		return e
	}
	e.Renew = renewCommand(node)
	best := -1
	for _, v := range vs.byNode[node] {
		lack, how := vs.lackOf(v, assigned)
		if lack == proofWhole {
			return Evidence{
				Verdict: ShowsFree, Node: node,
				Reason: fmt.Sprintf("the host view of %s (%s) is complete and does not show it", node, v.Text()),
			}
		}
		if lack > best {
			best, e.Reason = lack, fmt.Sprintf("the host view of %s (%s) proves nothing: %s", node, v.Text(), how)
		}
	}
	if best < 0 {
		e.Reason = "there is no host view of node " + node
		if why, known := vs.whyNone[node]; known {
			e.Reason += " (" + why + ")"
		}
	}
	return e
}

// SandboxEvidence returns the views that show a pod sandbox, by its container ID. As with
// [Views.Evidence], any view counts. The absence of the sandbox proves nothing.
func (vs *Views) SandboxEvidence(id string, since time.Time) Evidence {
	var uses []Use
	for _, v := range vs.all {
		for i := range v.Namespaces {
			if ns := &v.Namespaces[i]; id != "" && ns.Sandbox == id {
				uses = append(uses, Use{View: v, Namespace: ns})
			}
		}
	}
	if len(uses) == 0 {
		return Evidence{}
	}
	e := inUse(Evidence{}, uses, since)
	e.Reason = "its sandbox still exists: " + e.Reason
	return e
}

// inUse returns the verdict for an address that views show.
func inUse(e Evidence, uses []Use, assigned time.Time) Evidence {
	e.Verdict = ShowsInUse
	proven := func(u Use) bool { return u.View.NewerThan(assigned) }
	for _, proves := range []bool{true, false} {
		for _, u := range uses {
			if proven(u) == proves {
				e.Uses = append(e.Uses, u)
			}
		}
	}
	first := e.Uses[0]
	where := NamespaceText(first.View.Node, first.Namespace)
	e.Reason = fmt.Sprintf("it is in use in %s (%s)", where, first.View.Text())
	if !proven(first) {
		e.Renew = renewCommand(first.View.Node)
		e.Reason = fmt.Sprintf("it was in use in %s (%s), and that host view is too old to show whether it still is", where, first.View.Text())
	}
	return e
}

// The first property that a view lacks to prove an address unused. Lower values lack more.
const (
	lacksNamespaces = iota
	lacksTime
	lacksCompleteness
	lacksAuthentication
	proofWhole
)

// setUp is how long after its assignment an address may first appear in a network
// namespace. Calico's CNI plugin assigns it before it configures the interface, and gives
// up after 90 s (cni-plugin pkg/ipamplugin).
const setUp = 2 * time.Minute

// lackOf returns the first property that keeps a view from proving an allocation's address unused.
func (vs *Views) lackOf(v *View, since time.Time) (lack int, how string) {
	if since.IsZero() {
		since = vs.read
	}
	switch {
	case !v.RulesKnown:
		return lacksNamespaces, "it lists only routes, not network namespaces"
	case v.Doubt == "" && v.Expired(vs.read):
		return lacksTime, "it was taken more than 10 minutes before the cluster was read, at " + phrase.Time(vs.read)
	case v.useless != "":
		return lacksTime, strings.TrimSuffix(v.useless, ", and proves nothing")
	case v.TakenAt.Before(since.Add(min(setUp, vs.grace))):
		return lacksTime, "it may predate the setup of the pod's network (allocated at " + phrase.Time(since) + ")"
	case !v.NamespacesComplete && v.NamespacesGap != "":
		return lacksCompleteness, "its list of network namespaces may be incomplete: " + v.NamespacesGap
	case !v.NamespacesComplete:
		return lacksCompleteness, "it does not claim to list all network namespaces"
	case !v.Authenticated:
		return lacksAuthentication, "it was fetched from the agent over a connection that does not prove who answered: such a view can block a repair, but never allow one"
	}
	return proofWhole, ""
}

// renewCommand returns an instruction to create a view of a node.
func renewCommand(node string) string {
	return fmt.Sprintf("run \"calico-audit agent --once --node %[1]s -o json > %[1]s.json\" on %[1]s and name the file with --host-views", phrase.Arg(node))
}

// ofVirtualMachine reports whether an allocation may belong to a virtual machine, by
// Calico's attributes and handle or, for older Calico releases, by KubeVirt's name for the
// machine's pod.
func ofVirtualMachine(attr *blocks.Attributes) bool {
	_, _, vm := attr.VMOf()
	return vm || attr.Extras().Alternate != nil || strings.HasPrefix(attr.Pod, "virt-launcher-")
}
