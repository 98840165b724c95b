package hostviews

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// spacesDraft holds facts about a view's namespaces that are not part of the view.
type spacesDraft struct {
	// count is their number. hostID and host are the inode and the addresses of the
	// machine's own namespace.
	count  int
	hostID string
	host   []netip.Prefix
	// said is true if the agent states whether they are complete, and complete is its
	// statement. lacking is the first omitted or malformed part.
	said, complete bool
	lacking        string
}

// hostHas reports whether the machine's own namespace has an address.
func (s *spacesDraft) hostHas(a netip.Addr) bool {
	return slices.ContainsFunc(s.host, func(p netip.Prefix) bool { return p.Addr() == a })
}

// takeHost records n as the machine's own namespace. It returns true if there already was
// one.
func (s *spacesDraft) takeHost(n *blocks.HostNamespace) (second bool) {
	if s.hostID != "" {
		return true
	}
	s.hostID, s.host = n.ID, n.Addresses
	return false
}

// finishSpaces decides whether a view's namespaces are complete, as defined by
// [blocks.HostView.NamespacesComplete], and identifies their machine.
func (d *viewDraft) finishSpaces() {
	v, s := &d.view, &d.spaces
	if v.BootID != "" {
		v.Machine = v.BootID + "/" + s.hostID
	}
	own := d.nodes[v.Node]
	elsewhere := len(own) > 0 && s.hostID != "" && !slices.ContainsFunc(own, func(p netip.Prefix) bool { return s.hostHas(p.Addr()) })
	switch {
	case d.listing:
		v.NamespacesGap = "it is a listing of routes"
	case s.count == 0:
		v.NamespacesGap = "the view has none, not even the machine's own"
	case s.lacking != "":
		v.NamespacesGap = s.lacking
	case elsewhere:
		v.NamespacesGap = fmt.Sprintf("its own namespace does not have the address of node %s (%s), so it was taken elsewhere", v.Node, own[0].Addr())
	case !s.complete && len(v.Gaps) > 0:
		v.NamespacesGap = v.Gaps[0]
	case !s.complete && s.said:
		v.NamespacesGap = "the agent does not claim that they are"
	}
	v.NamespacesComplete = v.NamespacesGap == ""
}

// namespaces reads the network namespaces of a view, with all their addresses: an address
// outside Calico's pools may belong to a secondary network, and a namespace without
// addresses may be a sandbox that holds an allocation. A malformed address is omitted; any
// other malformed field omits the whole namespace.
func (d *viewDraft) namespaces(r *parse.Reader) {
	var partial bool // unused: finishSpaces looks at d.spaces.lacking
	d.entries(r, "namespaces", "", &partial, func(r *parse.Reader, bad func(field, reason string)) (parse.Members, func()) {
		var n blocks.HostNamespace
		d.spaces.count++
		known := parse.Members{
			"id": (*parse.Word)(&n.ID), "name": &n.Name, "host": &n.Host, "sandbox": &n.Sandbox, "podUID": &n.PodUID, "processes": &n.Processes,
			"addresses": func() { d.spaceAddresses(r, &n, bad) },
			"hostInterfaces": func() {
				if !r.Null() {
					n.HostInterfaces = []string{}
					r.Array(func(int) { n.HostInterfaces = appendClipped(n.HostInterfaces, r.String()) })
				}
			},
			"pids": func() {
				r.Array(func(int) {
					pid, _ := r.Int32()
					n.Pids = appendClipped(n.Pids, int(pid))
				})
			},
			"commands": func() { r.Array(func(int) { n.Commands = appendClipped(n.Commands, r.String()) }) },
			"states":   func() { r.Array(func(int) { n.States = appendClipped(n.States, r.String()) }) },
		}
		return known, func() {
			switch {
			case n.ID == "":
				bad(".id", "is missing")
			case n.Host && d.spaces.takeHost(&n):
				bad(".host", "is a second one of the machine's own")
			case d.full(len(d.view.Namespaces), "namespaces"):
			default:
				n.Processes = max(n.Processes, len(n.Pids))
				n.Addresses = slices.Clip(n.Addresses)
				d.view.Namespaces = append(d.view.Namespaces, n)
			}
		}
	})
}

// spaceAddresses reads the addresses of a namespace.
func (d *viewDraft) spaceAddresses(r *parse.Reader, n *blocks.HostNamespace, bad func(field, reason string)) {
	r.Array(func(i int) {
		before := len(r.Faults)
		s := r.String()
		r.Faults = r.Faults[:before]
		p, ok := addressPrefix(s)
		switch {
		case !ok:
			bad(".addresses["+strconv.Itoa(i)+"]", parse.NotA("address with a length", s))
		case len(n.Addresses) < maxViewEntries:
			n.Addresses = append(n.Addresses, p)
		case d.spaces.lacking == "":
			d.spaces.lacking = fmt.Sprintf("a namespace has more than %d addresses", maxViewEntries)
		}
	})
}

// addressPrefix parses a configured address with its subnet length. Without a length it is
// a single address.
func addressPrefix(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), a.Zone() == ""
	}
	return blocks.ParseNetwork(s)
}

// appendClipped appends to a list up to the length that a report shows.
func appendClipped[T any](s []T, v T) []T {
	if len(s) >= maxViewProcesses {
		return s
	}
	return append(s, v)
}
