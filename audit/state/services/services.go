// Package services finds addresses that blocks record for LoadBalancer Services and that Calico should
// not have assigned, or should have released.
package services

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Service holds the addresses that blocks record for a LoadBalancer Service.
type Service struct {
	Namespace, Name string
	refs            []state.AllocationRef
}

// Keep returns the oldest address of each family, and all addresses, the oldest first.
func (s *Service) Keep() (oldest, all []string) {
	slices.SortStableFunc(s.refs, func(a, b state.AllocationRef) int {
		return cmp.Compare(a.Attributes().Assigned, b.Attributes().Assigned)
	})
	seen := map[blocks.Family]bool{}
	for _, r := range s.refs {
		all = append(all, r.Addr().String())
		if f := blocks.FamilyOf(r.Addr()); !seen[f] {
			oldest, seen[f] = append(oldest, r.Addr().String()), true
		}
	}
	return oldest, all
}

// Twice returns the Services with several addresses of one family, in the order of their addresses.
// Calico should assign only one per family (kube-controllers pkg/controllers/loadbalancer,
// parseAnnotations and needsIPsAssigned).
func Twice(st *state.State) []*Service {
	var all []*Service
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		attr := r.Attributes()
		name := attr.Extras().Service
		if r.Block.Owner.Kind != blocks.VirtualOwner || name == "" || !st.PastGrace(state.AssignedAt(r)) {
			return
		}
		i := slices.IndexFunc(all, func(s *Service) bool { return s.Namespace == attr.Namespace && s.Name == name })
		if i < 0 {
			i, all = len(all), append(all, &Service{attr.Namespace, name, nil})
		}
		all[i].refs = append(all[i].refs, r)
	})
	return slices.DeleteFunc(all, func(s *Service) bool {
		oldest, all := s.Keep()
		return len(oldest) == len(all)
	})
}

// Ignored returns the Services that ask for an address of Calico's pools by spec.loadBalancerIP and
// wait: the controller serves only annotated Services, and only new releases read that field
// (kube-controllers pkg/controllers/loadbalancer, IsCalicoManagedLoadBalancer;
// projectcalico/calico#11815).
func Ignored(st *state.State) (out []*blocks.Service) {
	for i := range st.Services {
		s := &st.Services[i]
		if p := st.EnabledPool(s.Asks); st.Controllers.RequestedOnly && s.Pending && p != nil && p.Allows(blocks.UseLoadBalancer) && st.PastGrace(s.Created) && !blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 33) {
			out = append(out, s)
		}
	}
	return out
}

// Leaked returns the addresses that are allocated to LoadBalancer Services that no longer exist. It
// returns nil unless all Services were read: a list of one namespace lacks either Service
// default/kubernetes, which every cluster has, or all others.
func Leaked(st *state.State) (out blocks.Names) {
	exists := map[blocks.Key]bool{}
	for i := range st.Services {
		exists[st.Services[i].Key()] = true
	}
	if _, unread := st.Missing(blocks.Services); unread || !exists[blocks.Key{Namespace: "default", Name: "kubernetes"}] || len(st.Unreadable(blocks.Services)) > 0 {
		return nil
	}
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		attr := r.Attributes()
		if service := attr.Extras().Service; r.Block.Owner.Kind == blocks.VirtualOwner && service != "" && !exists[blocks.Key{Namespace: attr.Namespace, Name: service}] && st.PastGrace(state.AssignedAt(r)) {
			out = append(out, fmt.Sprintf("%s (%s/%s)", r.Addr(), attr.Namespace, service))
		}
	})
	return out
}
