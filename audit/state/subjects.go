package state

import (
	"fmt"
	"net/netip"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// PoolSubject returns a pool as a subject.
func PoolSubject(p *Pool) Subject {
	return Subject{Kind: KindPool, Name: p.Name, CIDR: p.CIDR.String()}
}

// PodSubject returns a pod as a subject, with its node.
func PodSubject(w *blocks.Workload) Subject {
	return Subject{Kind: KindPod, Name: w.FullName(), Node: w.Node}
}

// NodeSubject returns a node as a subject.
func NodeSubject(name string) Subject { return Subject{Kind: KindNode, Name: name, Node: name} }

// BlockSubject returns a block as a subject.
func BlockSubject(b *Block) Subject {
	return Subject{Kind: KindBlock, Name: b.Name, CIDR: b.CIDR.String()}
}

// IPSubject returns an address as a subject, with the node that uses it; "" if that is not known.
func IPSubject(a netip.Addr, node string) Subject {
	return Subject{Kind: KindIP, IP: a.String(), Node: node}
}

// IPPrefix returns an address as a CIDR.
func IPPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// ConfigSubject returns the IPAM configuration as a subject.
func ConfigSubject() Subject { return Subject{Kind: KindConfig, Name: "default"} }

// ClusterSubject returns the whole cluster as a subject.
func ClusterSubject(st *State) Subject {
	name := st.Cluster.GUID
	if name == "" {
		name = "cluster"
	}
	return Subject{Kind: KindCluster, Name: name}
}

// PoolsOf returns the names of pools, for a finding's Pools. It skips nil.
func PoolsOf(ps ...*Pool) blocks.Names {
	var out []string
	for _, p := range ps {
		if p != nil {
			out = append(out, p.Name)
		}
	}
	return out
}

// AffinitySubject returns an affinity as a subject.
func AffinitySubject(a *blocks.Affinity) Subject {
	return Subject{Kind: KindAffinity, Name: a.Name, Node: a.Owner.Name, CIDR: a.CIDR.String()}
}

// HandleSubject returns a handle as a subject.
func HandleSubject(id string) Subject { return Subject{Kind: KindHandle, Name: id} }

// The kinds of subject.
const (
	KindNode     = "Node"
	KindPool     = apiv3.KindIPPool
	KindBlock    = libapiv3.KindIPAMBlock
	KindAffinity = apiv3.KindBlockAffinity
	KindIP       = "IP"
	KindHandle   = libapiv3.KindIPAMHandle
	KindConfig   = libapiv3.KindIPAMConfig
	KindCluster  = "Cluster"
	KindPod      = "Pod"

	KindWhereaboutsPool        = "WhereaboutsPool"
	KindWhereaboutsReservation = "WhereaboutsReservation"
)

// Subject is the object that a finding is about. Its spec identifies it (a block's CIDR, an
// affinity's CIDR and node), not only its name. Subjects that differ in any field are different,
// because several objects may have the same spec.
type Subject struct {
	Kind string `json:"kind"`
	// Name is the object's name. An address of a secondary network has the name of the pool that
	// records it, else of its network; other addresses have none.
	Name string `json:"name,omitempty"`
	// Node is set for nodes, affinities and pods. For addresses, it is the node that uses the address,
	// if known.
	Node string `json:"node,omitempty"`
	// CIDR is set for pools, blocks and affinities.
	CIDR string `json:"cidr,omitempty"`
	// IP is set for addresses.
	IP string `json:"ip,omitempty"`
}

// ID returns the name by which people know the subject: an address, a CIDR, or a name.
func (s Subject) ID() string {
	switch {
	case s.IP != "":
		return s.IP
	case s.Kind == KindBlock && s.CIDR != "":
		return s.CIDR
	case s.Kind == KindAffinity && s.CIDR != "":
		return s.CIDR + " of " + s.Node
	}
	return s.Name
}

// ResourceName returns the subject as "kubectl get -o name" does, such as "node/worker-1" or
// "ip/10.0.0.1".
func (s Subject) ResourceName() string {
	name := s.Name
	if s.IP != "" {
		name = s.IP
	}
	return strings.ToLower(s.Kind) + "/" + name
}

// Evidence is one fact that supports a verdict. Times are RFC 3339 times, never ages, so that the
// same state gives the same bytes.
type Evidence struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Evidences returns evidence for pairs of name and value, without empty values.
func Evidences(pairs ...any) []Evidence {
	out := make([]Evidence, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := Value(pairs[i+1]); value != "" {
			out = append(out, Evidence{fmt.Sprint(pairs[i]), value})
		}
	}
	return out
}

// Value formats a fact: names as a list, anything else as it prints itself.
func Value(v any) string {
	switch list := v.(type) {
	case []string:
		return phrase.List(list)
	case blocks.Names:
		return phrase.List(list)
	}
	return fmt.Sprint(v)
}
