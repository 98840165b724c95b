package source

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
)

// spacesDraft is what is learned of a view's namespaces beside those that are kept.
type spacesDraft struct {
	// count is how many there are. hostID is the number of the machine's own, and host
	// are its addresses.
	count  int
	hostID string
	host   []netip.Addr
	// addresses are those of the namespace at hand, whether they concern the cluster's
	// pools or not.
	addresses []netip.Addr
	// said is true if the agent says whether they are complete, and complete what it
	// says. lacking is what was left out here, or could not be understood.
	said, complete bool
	lacking        string
}

// takeHost notes the namespace at hand as the machine's own, and returns true if there
// was one before.
func (s *spacesDraft) takeHost(id string) (second bool) {
	if s.hostID != "" {
		return true
	}
	s.hostID, s.host = id, slices.Clone(s.addresses)
	return false
}

// finishSpaces decides whether the namespaces of a view are complete, as
// [blocks.HostView.NamespacesComplete] defines it, and which machine they are of.
func (d *viewDraft) finishSpaces() {
	v, s := &d.view, &d.spaces
	if v.BootID != "" {
		v.Machine = v.BootID + "/" + s.hostID
	}
	own := d.nodes[v.Node]
	elsewhere := len(own) > 0 && s.hostID != "" && !slices.ContainsFunc(own, func(p netip.Prefix) bool { return slices.Contains(s.host, p.Addr()) })
	switch {
	case d.listing:
		v.NamespacesGap = "it is a listing of routes"
	case s.count == 0:
		v.NamespacesGap = "it has none, not even the machine's own"
	case s.lacking != "":
		v.NamespacesGap = s.lacking
	case elsewhere:
		v.NamespacesGap = fmt.Sprintf("its own namespace does not have the address of node %s (%s), so that it was taken elsewhere", v.Node, own[0].Addr())
	case !s.complete && len(v.Gaps) > 0:
		v.NamespacesGap = v.Gaps[0]
	case !s.complete && s.said:
		v.NamespacesGap = "the agent does not say that they are"
	}
	v.NamespacesComplete = v.NamespacesGap == ""
}

// namespaces reads the network namespaces of a view. Addresses of other networks
// than the cluster's pools are passed over, and namespaces that have no other.
func (d *viewDraft) namespaces(r *jsonReader) {
	if r.peek() != '[' {
		if !r.null() {
			d.problem("namespaces", "is no list")
		}
		return
	}
	r.array(func(int) {
		if d.refused != "" {
			return
		}
		field, before := r.field(), len(r.faults)
		var n blocks.HostNamespace
		bad := ""
		d.spaces.count++
		d.spaces.addresses = d.spaces.addresses[:0]
		object := r.object(func(key []byte) { d.namespaceField(r, &n, string(key), field, &bad) })
		faults := slices.Clone(r.faults[before:])
		r.faults = r.faults[:before]
		switch {
		case !object:
			d.problem(field, "is no object")
		case bad != "":
			d.problem(field, bad)
		case len(faults) > 0:
			d.problem(faults[0].field, faults[0].reason)
		case n.ID == "":
			d.problem(field+".id", "is missing")
		case n.Host && d.spaces.takeHost(n.ID):
			d.problem(field+".host", "is a second one of the machine's own")
		case len(n.Addresses) == 0:
		case d.full(len(d.view.Namespaces), "namespaces"):
		default:
			n.Processes = max(n.Processes, len(n.Pids))
			n.Addresses = slices.Clip(n.Addresses)
			d.view.Namespaces = append(d.view.Namespaces, n)
		}
	})
}

// namespaceField reads one member of a namespace. What is wrong with an address
// leaves the address out, and what is wrong with anything else the namespace.
func (d *viewDraft) namespaceField(r *jsonReader, n *blocks.HostNamespace, key, field string, bad *string) {
	switch key {
	case "id":
		n.ID = d.word(r)
	case "name":
		n.Name = string(orEmpty(r.str()))
	case "host":
		n.Host, _ = r.boolean()
	case "addresses":
		r.array(func(i int) {
			before := len(r.faults)
			s := string(orEmpty(r.str()))
			r.faults = r.faults[:before]
			p, ok := addressPrefix(s)
			if ok {
				d.spaces.addresses = append(d.spaces.addresses, p.Addr())
			}
			switch {
			case !ok:
				d.problem(field+".addresses["+strconv.Itoa(i)+"]", notA("address with a length", s))
			case !d.concerned.Contains(p.Addr()):
			case len(n.Addresses) < maxViewEntries:
				n.Addresses = append(n.Addresses, p)
			case d.spaces.lacking == "":
				d.spaces.lacking = fmt.Sprintf("a namespace has more than %d addresses", maxViewEntries)
			}
		})
	case "hostInterfaces":
		if r.null() {
			return
		}
		n.HostInterfaces = []string{}
		r.array(func(int) { n.HostInterfaces = appendClipped(n.HostInterfaces, string(orEmpty(r.str()))) })
	case "sandbox":
		n.Sandbox = string(orEmpty(r.str()))
	case "podUID":
		n.PodUID = string(orEmpty(r.str()))
	case "pids":
		r.array(func(int) {
			pid, _ := r.int32()
			n.Pids = appendClipped(n.Pids, int(pid))
		})
	case "commands":
		r.array(func(int) { n.Commands = appendClipped(n.Commands, d.text(r)) })
	case "states":
		r.array(func(int) { n.States = appendClipped(n.States, d.text(r)) })
	case "processes":
		count, _ := r.int32()
		n.Processes = int(count)
	}
	if r.err != nil {
		*bad = "is cut off"
	}
}

// addressPrefix reads an address as it is configured, with the length of its
// subnet; without one it is a single address.
func addressPrefix(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), a.Zone() == ""
	}
	return parseNetwork(s)
}

// appendClipped appends to a list until it holds what a report would show of it.
func appendClipped[T any](s []T, v T) []T {
	if len(s) >= maxViewProcesses {
		return s
	}
	return append(s, v)
}
