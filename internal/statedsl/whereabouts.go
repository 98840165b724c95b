package statedsl

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// whereabouts adds a Whereabouts object or a NetworkAttachmentDefinition. It returns
// false for any other kind.
func (p *parser) whereabouts(kind string, w words) bool {
	s, namespace := p.snap, cmp.Or(w.get("ns"), "kube-system")
	switch kind {
	case "wpool":
		meta := p.meta(w.at(0), w)
		s.WhereaboutsPools = append(s.WhereaboutsPools, blocks.WhereaboutsPool{
			Meta: meta, Namespace: namespace, Range: netip.MustParsePrefix(w.at(1)), RangeText: w.at(1), Assigned: meta.Written,
		})
	case "walloc":
		i := slices.IndexFunc(s.WhereaboutsPools, func(o blocks.WhereaboutsPool) bool { return o.Name == w.at(0) })
		of := &s.WhereaboutsPools[i]
		of.Allocations = append(of.Allocations, blocks.WhereaboutsAllocation{Addr: netip.MustParseAddr(w.at(1)), WhereaboutsOwner: wowner(w, w.at(2))})
		slices.SortFunc(of.Allocations, func(a, b blocks.WhereaboutsAllocation) int { return a.Addr.Compare(b.Addr) })
	case "wres":
		s.WhereaboutsReservations = append(s.WhereaboutsReservations, blocks.WhereaboutsReservation{
			Meta: p.meta(w.at(0), w), Namespace: namespace, WhereaboutsOwner: wowner(w, w.at(1)),
		})
	case "wslices":
		o := blocks.NodeSlicePool{Meta: p.meta(w.at(0), w), Namespace: namespace}
		for _, slice := range w.pos[1:] {
			node, cidr, _ := strings.Cut(slice, "@")
			o.Slices = append(o.Slices, blocks.NodeSlice{Node: node, Range: netip.MustParsePrefix(cidr)})
		}
		s.NodeSlicePools = append(s.NodeSlicePools, o)
	case "nad":
		ns, name, _ := strings.Cut(w.at(0), "/")
		o := blocks.NetworkAttachment{Meta: p.meta(name, w), Namespace: ns}
		o.LocalIPAM = w.get("local")
		o.OtherIPAM = w.has("otheripam") || o.LocalIPAM != ""
		for _, r := range w.pos[1:] {
			o.Whereabouts, o.NetworkName, o.Sliced, o.Overlapping = true, w.get("network"), w.has("sliced"), !w.has("nooverlap")
			one := blocks.AttachedRange{CIDR: netip.MustParsePrefix(r)}
			for _, e := range w.list("exclude") {
				one.Exclude = append(one.Exclude, netip.MustParsePrefix(e))
			}
			if bounds := w.list("from"); len(bounds) == 2 {
				one.First, one.Last = netip.MustParseAddr(bounds[0]), netip.MustParseAddr(bounds[1])
			}
			o.Ranges = append(o.Ranges, one)
		}
		s.NetworkAttachments = append(s.NetworkAttachments, o)
	default:
		return false
	}
	return true
}

func wowner(w words, pod string) blocks.WhereaboutsOwner {
	o := blocks.WhereaboutsOwner{ContainerID: w.get("id"), Interface: w.get("if")}
	if ns, name, ok := strings.Cut(pod, "/"); ok {
		o.Pod = blocks.Key{Namespace: ns, Name: name}
	}
	return o
}

// attach sets a pod's addresses on networks other than the cluster's own.
func attach(pod *blocks.Workload, w words) {
	if w.has("netstatus") || w.has("nets") {
		pod.Extend().NetworkStatus = true
	}
	for _, x := range w.list("nets") {
		network, addr, _ := strings.Cut(x, "@")
		a := netip.MustParseAddr(addr)
		e := pod.Extend()
		e.Attached = append(e.Attached, blocks.AttachedAddress{Network: network, Addr: a})
		e.NetworkIPs, e.Interfaces = append(e.NetworkIPs, a), append(e.Interfaces, network)
	}
	if wants := w.list("wants"); len(wants) > 0 {
		pod.Extend().AsksNetworks = wants
	}
	slices.SortFunc(pod.Extras().NetworkIPs, netip.Addr.Compare)
}

func (m *manifest) whereabouts(s *blocks.Snapshot) {
	const version = "whereabouts.cni.cncf.io/v1alpha1"
	for i := range s.WhereaboutsPools {
		p := &s.WhereaboutsPools[i]
		allocations := map[string]any{}
		for _, a := range p.Allocations {
			entry := map[string]any{"id": a.ContainerID, "podref": podref(a.WhereaboutsOwner)}
			set(entry, "ifname", a.Interface)
			allocations[fmt.Sprint(p.Offset(a.Addr))] = entry
		}
		m.add(version, "IPPool", namespaced(p.Meta, p.Namespace), map[string]any{"range": p.RangeText, "allocations": allocations}, nil)
	}
	for i := range s.WhereaboutsReservations {
		r := &s.WhereaboutsReservations[i]
		spec := map[string]any{"podref": podref(r.WhereaboutsOwner)}
		set(spec, "containerid", r.ContainerID)
		set(spec, "ifname", r.Interface)
		m.add(version, "OverlappingRangeIPReservation", namespaced(r.Meta, r.Namespace), spec, nil)
	}
	for i := range s.NodeSlicePools {
		p := &s.NodeSlicePools[i]
		slices := []any{}
		for _, x := range p.Slices {
			slices = append(slices, map[string]any{"nodeName": x.Node, "sliceRange": x.Range.String()})
		}
		m.add(version, "NodeSlicePool", namespaced(p.Meta, p.Namespace), map[string]any{"range": "10.0.0.0/8", "sliceSize": "/28"}, map[string]any{"allocations": slices})
	}
	for i := range s.NetworkAttachments {
		n := &s.NetworkAttachments[i]
		m.add("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", namespaced(n.Meta, n.Namespace), map[string]any{"config": attachmentConfig(n)}, nil)
	}
}

func podref(o blocks.WhereaboutsOwner) string {
	if o.Pod == (blocks.Key{}) {
		return ""
	}
	return o.Pod.String()
}

func attachmentConfig(n *blocks.NetworkAttachment) string {
	if !n.Whereabouts && !n.OtherIPAM {
		return asJSON(map[string]any{"cniVersion": "0.3.1", "name": n.Name, "type": "macvlan"})
	}
	ipam := map[string]any{"type": cmp.Or(n.LocalIPAM, "dhcp")}
	if n.Whereabouts {
		ipam["type"], ipam["enable_overlapping_ranges"] = "whereabouts", n.Overlapping
		set(ipam, "network_name", n.NetworkName)
		if n.Sliced {
			ipam["node_slice_size"] = "/28"
		}
		ranges := []any{}
		for _, r := range n.Ranges {
			one := map[string]any{"range": r.CIDR.String(), "exclude": texts(r.Exclude)}
			if r.First.IsValid() {
				one["range_start"], one["range_end"] = r.First.String(), r.Last.String()
			}
			ranges = append(ranges, one)
		}
		ipam["ipRanges"] = ranges
	}
	return asJSON(map[string]any{"cniVersion": "0.3.1", "name": n.Name, "type": "macvlan", "ipam": ipam})
}
