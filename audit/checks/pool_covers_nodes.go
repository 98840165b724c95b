package checks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/identity"
	"github.com/calico-audit/calico-audit/blocks"
)

// reserveAround is the immediate remedy, movePool the lasting one.
var (
	reserveAround = remedies.ByHand("create an IPReservation for the blocks around the addresses", "no other pod gets one of the addresses automatically, and no node claims these blocks",
		"none: running pods keep their addresses", "kubectl get ipreservations -o yaml")
	movePool = remedies.ByHand("add a pool outside the networks of nodes and Services, "+remedies.DisablePool+", and restart its pods", "no pool contains the addresses",
		"each pod gets another address, and the network around the cluster must route and admit the new CIDR", "kubectl get ippools -o yaml")
	nodeIP = remedies.ByHand("if it is the address of the node's own tunnel, set the kubelet's --node-ip to the node's own address, and restart the kubelet", "the API server reaches the kubelet, and host-network pods get the right address",
		"host-network pods report the new address only once they restart", "kubectl get nodes -o wide")
)

var poolCoversNodes = audit.Check{
	ID:         "pool/covers-nodes",
	Title:      "a pool contains an address of a node or of a Service",
	Severities: []state.Severity{state.Critical, state.Error, state.Info},
	Graded:     "error; critical if a pod has that very address; info while the cluster uses another IPAM, or if the addresses are reserved",
	Why:        "Calico may give a pod the node's or the Service's address, and then traffic to it reaches the wrong one. A node that claims the block around the address attracts its traffic. Calico also treats traffic to an address in a pool, such as another machine's, as traffic to a pod: without NAT, and with the pool's encapsulation.",
	Confirm:    "kubectl get nodes -o wide; kubectl get services -A; kubectl get ippools -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr",
	Misread:    "Without the right to list Services, only the API server's own Service counts, and only if calico-audit runs in the cluster. There is no finding for a disabled pool that contains nodes: it assigns no addresses, and exempts traffic to the nodes from NAT.",
	Remedies:   []remedies.Remedy{reserveAround, movePool, nodeIP},
	Never:      "Never delete the pool while pods use it: their addresses would lose NAT and encapsulation.",
	Requires:   append(slices.Clip(state.OtherIPAMReads), blocks.Reservations),
	Optional:   []blocks.Resource{blocks.Services},
	Run: func(st *state.State, f *audit.Findings) {
		other, unread := st.OtherIPAM(), st.Unreadable(blocks.Reservations)
		for _, p := range st.Pools {
			x := coverage(st, p)
			switch covers := len(x.all) > 0 && (p.HandsOut() || x.pod != nil); {
			case !covers && len(x.tunnels) > 0:
				f.Add(x.wrongInterface(p))
				continue
			case !covers:
				continue
			case other.Unknown != "":
				f.SkipPartial("not evaluated for pool %s: %s", p.Name, other.Unknown)
				continue
			case x.pod == nil && len(unread) > 0: // the unread object may reserve the addresses
				f.SkipPartial("not evaluated for pool %s: %s", p.Name, unread[0])
				continue
			}
			f.Add(x.finding(st, p, other.Cluster))
		}
	},
}

// covered is an address of a node or Service. tunnel is true for an InternalIP that equals its own
// node's tunnel address.
type covered struct {
	addr       netip.Addr
	kind, name string
	tunnel     bool
}

func (c covered) String() string { return c.addr.String() + " of " + c.kind + " " + c.name }

// covering lists the addresses of nodes and Services in a pool.
type covering struct {
	all []covered
	// services is true if any of these addresses belongs to a Service.
	services bool
	// open names the pool's blocks with such an address that no IPReservation covers.
	open blocks.Names
	// at is the first address that Calico's IPAM assigned to a live pod, and pod is that pod; nil
	// if there is none.
	at      covered
	pod     *blocks.Workload
	tunnels []covered
}

func listMachines(st *state.State) *[]covered {
	all := []covered{{addr: st.Cluster.APIServer, kind: "Service", name: "default/kubernetes"}}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		for _, a := range identity.MachineAddresses(st, n) {
			all = append(all, covered{addr: a.Addr(), kind: "node", name: n.Name})
		}
		for _, a := range n.InternalIPs {
			all = append(all, covered{a, "node", n.Name, slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool { return t.Addr == a })})
		}
	}
	for i := range st.Services {
		for _, a := range st.Services[i].ClusterIPs {
			all = append(all, covered{addr: a, kind: "Service", name: st.Services[i].Key().String()})
		}
	}
	return &all
}

func coverage(st *state.State, p *state.Pool) (x covering) {
	for _, c := range *state.Derived(st, listMachines) { // listed once, as a cluster may have a pool for each rack
		if inside := p.CIDR.Contains(c.addr); inside && c.tunnel {
			x.tunnels = append(x.tunnels, c)
		} else if inside {
			x.all, x.services = append(x.all, c), x.services || c.kind == "Service"
		}
	}
	slices.SortStableFunc(x.all, func(a, b covered) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	x.all = slices.Compact(x.all)
	for _, c := range x.all {
		if around, err := c.addr.Prefix(p.BlockSize); err == nil && !st.Reserved.Contains(c.addr) && !slices.Contains(x.open, around.String()) {
			x.open = append(x.open, around.String())
		}
		if r, ok := st.Allocation(c.addr); ok && x.pod == nil {
			if w := st.LiveUserOf(r); w != nil {
				x.at, x.pod = c, w
			}
		}
	}
	return x
}

// wrongInterface is the finding for nodes whose kubelet reports the address of Calico's tunnel.
func (x *covering) wrongInterface(p *state.Pool) audit.Finding {
	var nodes, texts blocks.Names
	for _, c := range x.tunnels {
		nodes, texts = append(nodes, c.name), append(texts, fmt.Sprintf("%s of %s", c.addr, c.name))
	}
	r := nodeIP
	r.Title = fmt.Sprintf("set the kubelet's --node-ip on %s to the node's own address, and restart the kubelet", nodes)
	return audit.Finding{
		Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: nodes, Remedies: []remedies.Remedy{r},
		Message: fmt.Sprintf("the kubelet reports the address of Calico's tunnel as InternalIP: %s, of pool %s", texts, p.Name),
	}
}

func (x *covering) finding(st *state.State, p *state.Pool, unused bool) audit.Finding {
	texts := make(blocks.Names, len(x.all))
	for i, c := range x.all {
		texts[i] = c.String()
	}
	routed := identity.RoutedLikePods(st, p)
	out := audit.Finding{
		Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p),
		Message:  fmt.Sprintf("pool %s contains %s%s", p.Name, texts, routed),
		Evidence: state.Evidences("CIDR", p.CIDR, "contained", texts, "blocks around them without a reservation", x.open),
	}
	first := reserveAround
	if len(x.open) > 0 {
		first.Title = fmt.Sprintf("create an IPReservation for %s, the blocks around the addresses", x.open)
	}
	out.Remedies = []remedies.Remedy{first, movePool}
	switch {
	case unused:
		out.Severity, out.Remedies = state.Info, nil
		out.Message += "; the cluster uses another IPAM, so Calico assigns none"
	case x.pod != nil && len(x.open) == 0:
		out.Remedies = append(remedies.RestartRemedies(x.pod, "it gets another address"), movePool)
	case x.pod != nil:
		out.Remedies[0].Title += ", then restart pod " + x.pod.FullName()
		out.Remedies[0].Risk = "the pod ends and starts again with another address"
	case len(x.open) == 0:
		out.Severity, out.Remedies = state.Info, out.Remedies[1:]
		out.Message += "; no pod gets one automatically, because IPReservations cover them"
	case routed != "" || len(x.open)>>max(0, p.BlockSize-p.CIDR.Bits()) > 0: // a reservation would exclude no block of the pool, or all
		out.Remedies = out.Remedies[1:]
	}
	if len(x.open) > 0 && !unused && x.services {
		out.Remedies[0].Title += "; then move the pods to a pool outside the Services' network, because the next Service may get any address of it"
	}
	if x.pod != nil && !unused {
		out.Severity, out.Absence, out.Nodes = state.Critical, true, []string{x.pod.Node}
		out.Message = fmt.Sprintf("pool %s contains %s, which is allocated to pod %s", p.Name, x.at, x.pod.FullName())
	}
	if len(x.tunnels) > 0 && !unused {
		also := x.wrongInterface(p)
		out.Evidence = append(out.Evidence, state.Evidence{Name: "tunnels", Value: also.Message})
		out.Remedies = append(out.Remedies, also.Remedies...)
	}
	return out
}
