package source

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// joinParts joins what several decoders have read. Parts of different kinds
// share no slice, so that hardly anything is copied.
func joinParts(parts []*part) *part {
	out := &part{}
	for _, p := range parts {
		if p == nil {
			continue
		}
		join(&out.pools, p.pools)
		join(&out.blocks, p.blocks)
		join(&out.affinities, p.affinities)
		join(&out.handles, p.handles)
		join(&out.reservations, p.reservations)
		join(&out.nodes, p.nodes)
		join(&out.workloads, p.workloads)
		join(&out.namespaces, p.namespaces)
		join(&out.peers, p.peers)
		join(&out.filters, p.filters)
		join(&out.vms, p.vms)
		join(&out.vmInstances, p.vmInstances)
		join(&out.ipam, p.ipam)
		join(&out.infos, p.infos)
		join(&out.controllers, p.controllers)
		join(&out.felix, p.felix)
		join(&out.bgp, p.bgp)
		join(&out.gaps, p.gaps)
	}
	return out
}

func join[T any](into *[]T, more []T) {
	if len(*into) == 0 {
		*into = more
		return
	}
	*into = append(*into, more...)
}

// snapshot makes a snapshot of what was read, with Calico's defaults for
// configuration that does not exist.
func (p *part) snapshot() *blocks.Snapshot {
	s := &blocks.Snapshot{
		Pools: p.pools, Blocks: p.blocks, Affinities: p.affinities, Handles: p.handles,
		Reservations: p.reservations, Nodes: p.nodes, Workloads: p.workloads, Namespaces: p.namespaces,
		BGPPeers: p.peers, BGPFilters: p.filters, VMs: p.vms, VMInstances: p.vmInstances, Gaps: p.gaps,
		IPAM: blocks.DefaultIPAMConfig(), BGP: blocks.DefaultBGPConfig(),
	}
	last(&s.IPAM, p.ipam)
	last(&s.Controllers, p.controllers)
	last(&s.Felix, p.felix)
	last(&s.BGP, p.bgp)
	last(&s.Info, p.infos)
	s.Cluster.GUID, s.Cluster.CalicoVersion = s.Info.GUID, s.Info.CalicoVersion
	return s
}

func last[T any](into *T, from []T) {
	if len(from) > 0 {
		*into = from[len(from)-1]
	}
}

// replacing returns prev, which must be sorted, with the given kinds replaced by
// what was read. Slices that are taken over are not sorted again: they are not
// this snapshot's alone.
func (p *part) replacing(prev *blocks.Snapshot, again []*kind) *blocks.Snapshot {
	s, read := *prev, p.snapshot()
	read.Sort()
	s.Gaps = slices.Clone(read.Gaps)
	for _, g := range prev.Gaps {
		if !slices.ContainsFunc(again, func(k *kind) bool { return k.resource == g.Resource }) {
			s.Gaps = append(s.Gaps, g)
		}
	}
	slices.SortFunc(s.Gaps, blocks.CompareGaps)
	for _, k := range again {
		switch k.resource {
		case blocks.Pools:
			s.Pools = read.Pools
		case blocks.Blocks:
			s.Blocks = read.Blocks
		case blocks.Affinities:
			s.Affinities = read.Affinities
		case blocks.Handles:
			s.Handles = read.Handles
		case blocks.Reservations:
			s.Reservations = read.Reservations
		case blocks.Nodes:
			s.Nodes = read.Nodes
		case blocks.Pods:
			s.Workloads = read.Workloads
		case blocks.Namespaces:
			s.Namespaces = read.Namespaces
		case blocks.BGPPeers:
			s.BGPPeers = read.BGPPeers
		case blocks.BGPFilters:
			s.BGPFilters = read.BGPFilters
		case blocks.VMs:
			s.VMs = read.VMs
		case blocks.VMInstances:
			s.VMInstances = read.VMInstances
		case blocks.IPAMConfigs:
			s.IPAM = read.IPAM
		case blocks.ClusterInfos:
			s.Info = read.Info
			s.Cluster.GUID, s.Cluster.CalicoVersion = read.Cluster.GUID, read.Cluster.CalicoVersion
		case blocks.ControllerConfig:
			s.Controllers = read.Controllers
		case blocks.FelixConfigs:
			s.Felix = read.Felix
		case blocks.BGPConfigs:
			s.BGP = read.BGP
		}
	}
	return &s
}
