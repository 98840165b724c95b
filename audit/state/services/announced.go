package services

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Unassigned describes the Services that wait for an address by spec.loadBalancerIP that BGP would
// announce, if no LoadBalancer pool contains it. BGP announces addresses of a Service's status only, which
// another controller has to assign (confd, routeGenerator; projectcalico/calico#7921).
func Unassigned(st *state.State) (out blocks.Names) {
	for i := range st.Services {
		s := &st.Services[i]
		if _, announced := st.BGP.LoadBalancerRange(s.Asks); announced && s.Pending && st.EnabledPool(s.Asks) == nil && st.PastGrace(s.Created) {
			out = append(out, fmt.Sprintf("%s (%s)", s.Key(), s.Asks))
		}
	}
	return out
}

// Unannounced describes the addresses of Calico's LoadBalancer pools that BGP announces as a range of
// one address. Calico v3.30 to v3.31.3 announces such an address only if the Service asks for it by
// spec.loadBalancerIP, or for externalTrafficPolicy: Local (confd, routeGenerator;
// projectcalico/calico#11917).
func Unannounced(st *state.State) (out blocks.Names) {
	v := st.Cluster.CalicoVersion
	if !blocks.CalicoFrom(v, "3.30.0") || blocks.CalicoFrom(v, "3.30.6") && !blocks.CalicoFrom(v, "3.31.0") || blocks.CalicoFrom(v, "3.31.4") || st.BGP.Singly {
		return nil
	}
	by := map[blocks.Key]*blocks.Service{}
	for i := range st.Services {
		by[st.Services[i].Key()] = &st.Services[i]
	}
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		s := by[blocks.Key{Namespace: r.Attributes().Namespace, Name: r.Attributes().Extras().Service}]
		if p, announced := st.BGP.LoadBalancerRange(r.Addr()); announced && p.IsSingleIP() && s != nil && !s.Local && s.Asks != r.Addr() && r.Block.Owner.Kind == blocks.VirtualOwner {
			out = append(out, fmt.Sprintf("%s (%s)", r.Addr(), s.Key()))
		}
	})
	return out
}
