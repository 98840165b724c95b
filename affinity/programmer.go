package affinity

import "github.com/calico-audit/calico-audit/blocks"

// programmer is the component that programs a pool's routes, including blackholes, into the
// nodes' kernels.
type programmer int

const (
	byBIRD programmer = iota
	byFelix
	byEither // unknown
)

// programmer returns the component that programs a pool's routes. If that is unknown, it
// also returns the fact that would settle it.
//
// Felix programs the routes of VXLAN pools; BIRD's kernel filter rejects them (confd's
// bird_ipam template). For other pools it is BIRD, unless the FelixConfiguration overrides
// it (programClusterRoutes). From v3.33 on, Felix programs IPIP pools by default
// (projectcalico/calico pull request 13470).
func (r *Routing) programmer(p *blocks.Pool) (programmer, string) {
	ipip := encapsulated(p.IPIP)
	if encapsulated(p.VXLAN) {
		return byFelix, ""
	}
	if g, missing := r.s.Missing(blocks.FelixConfigs); missing {
		return byEither, "the FelixConfiguration, which was not read (" + g.String() + ")"
	}
	switch value := r.s.Felix.ProgramClusterRoutes; value {
	case "Enabled":
		return byFelix, ""
	case "Disabled":
		return byBIRD, ""
	case "EnabledIPIPOnly":
		return choose(ipip), ""
	case "EnabledNoEncapOnly":
		return choose(!ipip), ""
	case "":
	default:
		return byEither, "the meaning of programClusterRoutes: " + value + " in this version of Calico"
	}
	if !ipip {
		return byBIRD, ""
	}
	version := r.s.Cluster.CalicoVersion
	if !blocks.CalicoAtLeast(version, 0, 0) {
		return byEither, "Calico's version (calicoctl version): from v3.33 on Felix programs the routes of IPIP pools, before that BIRD"
	}
	return choose(blocks.CalicoAtLeast(version, 3, 33)), ""
}

// RoutesByAffinity reports whether a node's blackhole route for a block of the pool may come from its
// affinity, as BIRD's does. Felix's comes from the owner that the block names.
func (r *Routing) RoutesByAffinity(p *blocks.Pool) bool {
	who, _ := r.programmer(p)
	return who != byFelix
}

// ByBIRD reports whether only BIRD programs the routes of a pool.
func (r *Routing) ByBIRD(p *blocks.Pool) bool {
	who, _ := r.programmer(p)
	return who == byBIRD
}

func choose(felix bool) programmer {
	if felix {
		return byFelix
	}
	return byBIRD
}

func encapsulated(e blocks.Encap) bool { return e != "" && e != blocks.EncapNever }
