package host

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/calico-audit/calico-audit/blocks"
)

// show adds the namespaces to the view: the node's own first, then by inode.
func (s *scan) show(links []netlink.Link) {
	peers := s.peers(links)
	order := s.sortedKeys()
	slices.SortStableFunc(order, func(a, b uint64) int { return before(a == s.own, b == s.own) })
	s.view.Namespaces = []blocks.HostNamespace{}
	for _, inode := range order {
		sp := s.spaces[inode]
		n := blocks.HostNamespace{
			ID: strconv.FormatUint(inode, 10), Name: sp.name, Host: inode == s.own,
			Addresses: sp.addresses, HostInterfaces: peers[inode],
			Sandbox: sp.container.id, PodUID: sp.podUID,
			Pids: []int{}, States: []string{}, Processes: len(sp.processes),
		}
		if n.Addresses == nil {
			n.Addresses = []netip.Prefix{}
		}
		if n.HostInterfaces == nil && (n.Host || sp.peerID != peerUnknown) {
			n.HostInterfaces = []string{}
		}
		if len(n.Addresses) == 0 && len(n.HostInterfaces) > 0 {
			s.spaceGap("network namespace %s is joined to the node by %s and has no address: a workload in it may still use addresses that the kernel does not show, such as gVisor or a bridged virtual machine", sp.label(), few(n.HostInterfaces))
		}
		// Processes in uninterruptible sleep come first.
		slices.SortStableFunc(sp.processes, func(a, b process) int { return before(a.state == "D", b.state == "D") })
		for _, p := range sp.processes[:min(len(sp.processes), s.MaxListed)] {
			n.Pids = append(n.Pids, p.pid)
			n.Commands = append(n.Commands, p.comm)
			n.States = append(n.States, p.state)
		}
		s.view.Namespaces = append(s.view.Namespaces, n)
	}
}

// peers returns the node's ends of the veth pairs that lead into namespaces.
func (s *scan) peers(links []netlink.Link) map[uint64][]string {
	byID := map[int]uint64{}
	for inode, sp := range s.spaces {
		if sp.peerID >= 0 {
			byID[sp.peerID] = inode
		}
	}
	out := map[uint64][]string{}
	var hidden []string
	for _, l := range links {
		if kind := l.Type(); kind != "veth" && kind != "netkit" {
			continue
		}
		a := l.Attrs()
		if a.NetNsID < 0 {
			continue // its peer is in the node's own namespace
		}
		if inode, ok := byID[a.NetNsID]; ok {
			out[inode] = append(out[inode], a.Name)
		} else {
			hidden = append(hidden, a.Name)
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	if slices.Sort(hidden); len(hidden) > 0 {
		s.spaceGap("%s: the other end lies in a network namespace that no readable process and no name shows", few(hidden))
	}
	return out
}
