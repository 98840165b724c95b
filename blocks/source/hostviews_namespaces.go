package source

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
)

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
			switch {
			case !ok:
				d.problem(field+".addresses["+strconv.Itoa(i)+"]", notA("address with a length", s))
			case d.concerned.Contains(p.Addr()) && len(n.Addresses) < maxViewEntries:
				n.Addresses = append(n.Addresses, p)
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
