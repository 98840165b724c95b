package hosts

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Verdict is what host views say of an allocated address.
type Verdict int

// The verdicts.
const (
	// Unknown: no view proves anything. It is the zero value.
	Unknown Verdict = iota
	// ShowsInUse: a view shows the address in a network namespace.
	ShowsInUse
	// ShowsFree: a view of the allocation's own node proves that it does not use
	// the address.
	ShowsFree
)

// Evidence is what host views say of one allocation, and how better evidence is
// given.
type Evidence struct {
	Verdict Verdict
	// Node is the allocation's own node; empty where it names none.
	Node string
	// Uses are where views show the address, those that prove it first.
	Uses []Use
	// Reason is the verdict in one sentence, without an end.
	Reason string
	// Renew says how evidence is given that would decide; empty where the verdict is
	// proven, or where no host view can decide.
	Renew string
}

// Evidence says what host views prove of an allocation of a node, assigned at a time. A
// view that shows the address holds it, of whatever machine it is, in whatever namespace, however old and
// however it came here. That nothing uses the address is proved only by a view that is
//
//   - of the allocation's own node;
//   - not older than 10 minutes by the clock of the reading, and taken so long after
//     the address was assigned (where that is not known, after the block's last write)
//     that its owner must have set it up;
//   - complete in its namespaces (see [blocks.HostView.NamespacesComplete]);
//   - authenticated, so that no one but the operator or the node can have said it.
//
// Addresses of virtual machines are never proved free: one that is bridged has its
// address within the machine, and no network namespace shows it.
func (vs *Views) Evidence(a netip.Addr, attr *blocks.Attributes, node string, assigned time.Time) Evidence {
	e := Evidence{Node: node}
	if node == "" {
		e.Reason = "the allocation names no node, so that no host view can tell"
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
			best, e.Reason = lack, fmt.Sprintf("the host view of %s (%s) does not tell: %s", node, v.Text(), how)
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

// SandboxEvidence says whether a view shows a pod sandbox, by its container ID, as
// [Views.Evidence] does of an address. That none shows it proves nothing.
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

// inUse is the verdict on an address that views show.
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
		e.Reason = fmt.Sprintf("it was in use in %s (%s), and that host view is too old to tell whether it still is", where, first.View.Text())
	}
	return e
}

// What a view lacks to prove that an address is not in use, the more that is
// lacking the smaller.
const (
	lacksNamespaces = iota
	lacksTime
	lacksCompleteness
	lacksAuthentication
	proofWhole
)

// setUp is how long after its assignment an address may first appear in a network
// namespace: Calico's CNI plugin assigns it before it configures the interface, and
// gives up after 90 s (cni-plugin pkg/ipamplugin).
const setUp = 2 * time.Minute

// lackOf says what a view lacks to prove that an allocation's address is not in use.
func (vs *Views) lackOf(v *View, since time.Time) (lack int, how string) {
	if since.IsZero() {
		since = vs.read
	}
	switch {
	case !v.RulesKnown:
		return lacksNamespaces, "it lists routes alone, and no network namespaces"
	case v.Doubt == "" && v.Expired(vs.read):
		return lacksTime, "it was taken more than 10 minutes before the cluster was read, at " + phrase.Time(vs.read)
	case v.useless != "":
		return lacksTime, strings.TrimSuffix(v.useless, ", and proves nothing")
	case v.TakenAt.Before(since.Add(min(setUp, vs.grace))):
		return lacksTime, "it is not newer than the allocation, of " + phrase.Time(since) + ", by as much as it takes to set up a pod's network"
	case !v.NamespacesComplete && v.NamespacesGap != "":
		return lacksCompleteness, "its network namespaces may not be all: " + v.NamespacesGap
	case !v.NamespacesComplete:
		return lacksCompleteness, "it does not say that its network namespaces are all"
	case !v.Authenticated:
		return lacksAuthentication, "it was fetched from the agent over a connection that does not prove who answered, and such a view may refuse a repair but never allow one"
	}
	return proofWhole, ""
}

// renewCommand says how a view is made that proves something.
func renewCommand(node string) string {
	return fmt.Sprintf("run \"calico-audit agent --once --node %[1]s -o json > %[1]s.json\" on %[1]s and name the file with --host-views", phrase.Arg(node))
}

// ofVirtualMachine reports whether a virtual machine may have the address of an
// allocation, by Calico's attributes and handle or, before Calico knew of them, by
// the name that KubeVirt gives the machine's pod.
func ofVirtualMachine(attr *blocks.Attributes) bool {
	_, _, vm := attr.VMOf()
	return vm || attr.Extras().Alternate != nil || strings.HasPrefix(attr.Pod, "virt-launcher-")
}
