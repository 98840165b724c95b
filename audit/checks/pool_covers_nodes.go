package checks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// reserveCovered keeps addresses from pods at once; movePool removes them from the pool.
var (
	reserveCovered = remedies.ByHand("reserve the addresses with an IPReservation", "no further pod gets one of them automatically", "none: running pods keep their addresses")
	movePool       = remedies.ByHand("add a pool outside the networks of nodes and Services, set disabled: true on this one, and restart its pods", "no pool contains the addresses",
		"each pod gets another address, and the network around the cluster must route and admit the new CIDR", "kubectl get ippools -o yaml")
)

var poolCoversNodes = audit.Check{
	ID:         "pool/covers-nodes",
	Title:      "a pool contains an address of a node or of a Service",
	Severities: []state.Severity{state.Critical, state.Error, state.Info},
	Graded:     "error; critical if a pod has that very address; info while the cluster uses another IPAM",
	Why: "Calico may give a pod the node's or the Service's address, and then traffic to it reaches the wrong one. Calico also treats " +
		"traffic to an address in a pool as traffic to a pod: without NAT, and with the pool's encapsulation.",
	Confirm: "kubectl get nodes -o wide; kubectl get services -A; kubectl get ippools -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr",
	Misread: "A disabled pool that contains nodes is no finding: it assigns no addresses, and keeps traffic to the nodes from NAT.",
	Remedies: []remedies.Remedy{
		reserveCovered, movePool,
	},
	Never:    "Never delete the pool while pods use it: their addresses would lose NAT and encapsulation.",
	Requires: state.OtherIPAMReads,
	Optional: []blocks.Resource{blocks.Reservations},
	Run: func(st *state.State, f *audit.Findings) {
		other := st.OtherIPAM()
		for _, p := range st.Pools {
			x := coverage(st, p)
			switch {
			case len(x.all) == 0 || !p.HandsOut() && x.pod == nil:
				continue
			case other.Unknown != "":
				f.SkipPartial("not evaluated for pool %s: %s", p.Name, other.Unknown)
				continue
			}
			f.Add(x.finding(st, p, other.Cluster))
		}
	},
}

// covered is an address of a node or Service.
type covered struct {
	addr netip.Addr
	of   string
}

func (c covered) String() string { return c.addr.String() + " of " + c.of }

// covering lists the addresses of nodes and Services in a pool.
type covering struct {
	all []covered
	// free are those that no IPReservation excludes from assignment.
	free []netip.Addr
	// at is the first of them that a live pod has from Calico's IPAM, and pod that pod; nil
	// if there is none.
	at  covered
	pod *blocks.Workload
}

func coverage(st *state.State, p *state.Pool) (x covering) {
	seen := map[covered]bool{}
	add := func(a netip.Addr, of string) {
		if c := (covered{a, of}); p.CIDR.Contains(a) && !seen[c] {
			seen[c] = true
			x.all = append(x.all, c)
		}
	}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		for _, a := range n.Addresses {
			add(a.Addr(), "node "+n.Name)
		}
		for _, a := range n.InternalIPs {
			add(a, "node "+n.Name)
		}
	}
	add(st.Cluster.APIServer, "Service default/kubernetes")
	slices.SortStableFunc(x.all, func(a, b covered) int { return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.of, b.of)) })
	for _, c := range x.all {
		if !st.Reserved.Contains(c.addr) {
			x.free = append(x.free, c.addr)
		}
		if r, ok := st.Allocation(c.addr); ok && x.pod == nil {
			if w := st.LiveUserOf(r); w != nil {
				x.at, x.pod = c, w
			}
		}
	}
	return x
}

func (x *covering) finding(st *state.State, p *state.Pool, unused bool) audit.Finding {
	texts := make([]string, len(x.all))
	for i, c := range x.all {
		texts[i] = c.String()
	}
	out := audit.Finding{
		Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p),
		Message:  fmt.Sprintf("pool %s contains %s", p.Name, phrase.Some(texts)),
		Evidence: state.Evidences("CIDR", p.CIDR.String(), "contained", phrase.Some(texts)),
	}
	first := x.reserve(st)
	switch {
	case unused:
		out.Severity = state.Info
		out.Message += "; the cluster uses another IPAM, so Calico assigns none"
		return out
	case x.pod != nil:
		out.Severity, out.Absence, out.Nodes = state.Critical, true, []string{x.pod.Node}
		out.Message = fmt.Sprintf("pool %s contains %s, which is allocated to pod %s", p.Name, x.at, x.pod.FullName())
		first.Title += ", then restart pod " + x.pod.FullName()
		first.Risk = "the pod ends and starts again with another address"
	case len(x.free) == 0:
		out.Evidence = append(out.Evidence, state.Evidence{Name: "reserved", Value: "all"})
		out.Remedies = []remedies.Remedy{movePool}
		return out
	}
	out.Remedies = []remedies.Remedy{first, movePool}
	return out
}

// reserve is the remedy that reserves the addresses, with its command for up to three.
func (x *covering) reserve(st *state.State) remedies.Remedy {
	r := reserveCovered
	if len(x.free) == 0 || len(x.free) > 3 {
		r.Commands = []string{"kubectl get nodes -o wide"}
		return r
	}
	var cidrs []string
	for _, a := range x.free {
		cidrs = append(cidrs, fmt.Sprintf("%q", state.IPPrefix(a)))
	}
	r.Commands = []string{fmt.Sprintf(`echo '{"apiVersion":%q,"kind":"IPReservation","metadata":{"name":"nodes-and-services"},"spec":{"reservedCIDRs":[%s]}}' | kubectl apply -f -`,
		cmp.Or(st.Cluster.APIGroup, "projectcalico.org/v3"), strings.Join(cidrs, ","))}
	return r
}
