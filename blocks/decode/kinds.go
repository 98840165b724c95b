package decode

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// Kinds lists the kinds of an audit. Kinds with the most objects come first, so that
// reading them starts first.
var Kinds = []*Kind{
	pods, handles, ipamBlocks, affinities, nodes, pools, ipamConfigs, reservations, clusterInfos, controllersConfigs,
	felixConfigs, bgpConfigs, bgpPeers, bgpFilters, namespaces, virtualMachines, virtualMachineInstances,
	whereaboutsPools, whereaboutsReservations, nodeSlicePools, networkAttachments, migrations,
}

// OnDemand lists the kinds that are only read on request. A reading is complete without
// them.
var OnDemand = []*Kind{budgets, services, sandboxEvents}

// IfPermitted lists those of OnDemand that are read if the account may list them.
var IfPermitted = []*Kind{services, sandboxEvents}

// KindOf returns the kind of a resource; nil if there is none.
func KindOf(res blocks.Resource) *Kind {
	for _, all := range [][]*Kind{Kinds, OnDemand} {
		if i := slices.IndexFunc(all, func(k *Kind) bool { return k.Resource == res }); i >= 0 {
			return all[i]
		}
	}
	return nil
}
