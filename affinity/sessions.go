package affinity

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"

	"github.com/calico-audit/calico-audit/blocks"
)

func newSessions(r *Routing, f blocks.Family) *sessions {
	ss := &sessions{r: r, family: f, speakers: make(map[string]*speaker, len(r.s.Nodes)), rules: newRules(r.s)}
	all := make([]*speaker, len(r.s.Nodes))
	for i := range r.s.Nodes {
		n := &r.s.Nodes[i]
		sp := &speaker{Node: n, as: cmp.Or(n.ASNumber, r.s.BGP.ASNumber)}
		all[i], ss.speakers[n.Name] = sp, sp
		ss.recorded = ss.recorded || addressOf(n, f).IsValid()
		ss.vteps = ss.vteps || hasVTEP(n, f)
		ss.mixed = ss.mixed || sp.as != all[0].as
	}
	ss.findPeerings()
	for _, sp := range all {
		sp.local, sp.remote = newBits(len(ss.peerings)), newBits(len(ss.peerings))
	}
	ss.matchPeerings(all)
	ss.findGroups(all)
	return ss
}

// findPeerings skips the peers that confd skips: those with an invalid address, and those
// that are pods of the node.
func (ss *sessions) findPeerings() {
	for i := range ss.r.s.BGPPeers {
		p := &peering{BGPPeer: &ss.r.s.BGPPeers[i], index: len(ss.peerings)}
		p.global = p.Node == "" && p.NodeSelector == ""
		if p.LocalWorkloads {
			continue
		}
		if p.PeerSelector == "" {
			ip, ok := parsePeerIP(p.PeerIP)
			if !ok && p.PeerIP != "" || ok && blocks.FamilyOf(ip) != ss.family {
				continue
			}
			p.router = ip
		}
		ss.peerings = append(ss.peerings, p)
	}
}

// matchPeerings determines the nodes at both ends of each peering. An invalid selector
// selects no nodes (confd node_labels.go).
func (ss *sessions) matchPeerings(all []*speaker) {
	at := map[netip.Addr][]*speaker{}
	for _, sp := range all {
		if a := addressOf(sp.Node, ss.family); a.IsValid() {
			at[a.Addr()] = append(at[a.Addr()], sp)
		}
	}
	known := map[string][]*speaker{}
	selected := func(text string) []*speaker {
		of, ok := known[text]
		if !ok {
			if sel, err := selector.Parse(text); err == nil {
				of = slices.DeleteFunc(slices.Clone(all), func(sp *speaker) bool { return !sel.Evaluate(sp.Labels) })
			}
			known[text] = of
		}
		return of
	}
	for _, p := range ss.peerings {
		local := all
		if p.NodeSelector != "" {
			local = selected(p.NodeSelector)
		} else if p.Node != "" {
			local = nil
			if sp := ss.speakers[p.Node]; sp != nil {
				local = []*speaker{sp}
			}
		}
		remote := at[p.router]
		if p.PeerSelector != "" {
			remote = selected(p.PeerSelector)
		} else if len(remote) > 0 {
			p.router = netip.Addr{}
		}
		for _, sp := range local {
			sp.local.set(p.index)
		}
		for _, sp := range remote {
			sp.remote.set(p.index)
		}
	}
}

func (ss *sessions) findGroups(all []*speaker) {
	byKey := map[string]*group{}
	for _, sp := range all {
		if !ss.speaks(sp) {
			continue
		}
		if sp.RouteReflectorID == "" {
			ss.meshed++
		}
		var key strings.Builder
		_ = binary.Write(&key, binary.BigEndian, sp.as)
		_ = binary.Write(&key, binary.BigEndian, sp.local)
		_ = binary.Write(&key, binary.BigEndian, sp.remote)
		key.WriteString(sp.RouteReflectorID)
		if ss.mixed && ss.r.s.BGP.Mesh {
			key.WriteString("|" + addressOf(sp.Node, ss.family).Masked().String())
		}
		g := byKey[key.String()]
		if g == nil {
			g = &group{routers: ss.routersOf(sp)}
			byKey[key.String()] = g
			ss.groups = append(ss.groups, g)
		}
		g.members = append(g.members, sp)
		sp.group = g
	}
}
