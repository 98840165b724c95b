package agents

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// podsByNode maps nodes to their pods.
type podsByNode map[string][]*blocks.Workload

func podsOf(s *blocks.Snapshot) podsByNode {
	out := podsByNode{}
	for _, w := range s.Workloads {
		if w.Node != "" && !w.HostNetwork {
			out[w.Node] = append(out[w.Node], w)
		}
	}
	return out
}

// of returns the pod of a node that owns a namespace and has all of its addresses; nil if
// there is none.
func (p podsByNode) of(node string, ns *blocks.HostNamespace) *blocks.Workload {
	if ns.Host {
		return nil
	}
	uid := blocks.PinOf(ns.PodUID, "")
	for _, w := range p[node] {
		if ns.PodUID != "" && !w.SameUID(uid) {
			continue
		}
		foreign := func(p netip.Prefix) bool {
			for a := range w.Addresses {
				if a == p.Addr() {
					return false
				}
			}
			return true
		}
		if !slices.ContainsFunc(ns.Addresses, foreign) {
			return w
		}
	}
	return nil
}

var printSeed = maphash.MakeSeed()

// compact reduces a view to the data that verdicts need, in minimal memory. It returns a hash of
// everything in the view except pods in their usual place. For a pod's own namespace it keeps only
// the number of processes. Other namespaces may prove something, and are kept completely; once a
// pod is deleted, the next view has all of its namespace again. Routes are kept, because without a
// route another one would seem to apply to its addresses.
func (p podsByNode) compact(v *blocks.HostView) uint64 {
	var h maphash.Hash
	h.SetSeed(printSeed)
	v.Routes, v.Lookups, v.Namespaces = slices.Clone(v.Routes), slices.Clone(v.Lookups), slices.Clone(v.Namespaces)
	ordinary := func(kind, gateway, dev string) bool {
		return kind == blocks.RouteUnicast && gateway == "" && strings.HasPrefix(dev, "cali")
	}
	for _, r := range v.Routes {
		if !ordinary(r.Type, r.Gateway, r.Dev) {
			maphash.WriteComparable(&h, r)
		}
	}
	for _, l := range v.Lookups {
		if !ordinary(l.Result, l.Gateway, l.Dev) {
			maphash.WriteComparable(&h, l)
		}
	}
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		if w := p.of(v.Node, ns); w != nil {
			ns.Name, ns.Pids, ns.Commands, ns.States = "", nil, nil, nil
			if ns.PodUID != "" {
				ns.PodUID = w.UID()
			}
			continue
		}
		maphash.WriteComparable(&h, [3]string{ns.ID, ns.Sandbox, ns.PodUID})
		for _, a := range ns.Addresses {
			maphash.WriteComparable(&h, a)
		}
	}
	maphash.WriteComparable(&h, [2]string{v.Machine, v.Doubt})
	maphash.WriteComparable(&h, [4]bool{v.NamespacesComplete, v.Authenticated, v.RoutesPartial, v.LookupsPartial})
	return h.Sum64()
}
