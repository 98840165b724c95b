package remedies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/recordable"
	"github.com/calico-audit/calico-audit/blocks"
)

// RecordRemedies returns the remedies for an address that a live pod uses and no block records.
func (st *Remedies) RecordRemedies(a netip.Addr) []Remedy {
	all := st.recordables()
	i, found := slices.BinarySearchFunc(all, a, func(u *recordable.Address, a netip.Addr) int { return u.Addr.Compare(a) })
	if !found {
		return nil
	}
	return []Remedy{recordRemedy(all[i])}
}

// recordRemedy records an address. If its handle is unknown, its pod has to restart and gets
// another address.
func recordRemedy(u *recordable.Address) Remedy {
	if u.Users[0].Pod == nil && u.OtherIPAM == "" && u.Code == state.RetainSpecial {
		return RestartAgents([]string{u.Users[0].Node})
	}
	if u.Code == state.RetainUnpinned && u.Users[0].Pod != nil {
		return restartUnpinned([]string{u.Users[0].Pod.FullName()})
	}
	return RecordAddresses.Unless(u.Bar)
}

// RestartAgents is for tunnel addresses that no block records: calico-node assigns a new address
// when it starts (node/pkg/allocateip, ensureHostTunnelAddress).
func RestartAgents(nodes blocks.Names) Remedy {
	where := "the nodes"
	if len(nodes) > 0 {
		where = nodes.String()
	}
	return ByHand(fmt.Sprintf("restart calico-node on %s: when it starts, it takes a tunnel address that a block records", where),
		"each tunnel has a recorded address, which no pod gets", "traffic through a tunnel stops until every node has learned its new address",
		"kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide")
}

// DetectAddress is for existing machines that record the same address. RecordAddress is for a
// machine with a newer address than calico-node recorded.
var (
	DetectAddress = DetectAddressOf(blocks.IPv4)
	RecordAddress = ByHand("restart calico-node on the node, which then records its current address; if it refuses because the other node still records that address, first remove the annotation projectcalico.org/IPv4Address or IPv6Address of both",
		"each node records its own address, and routes lead to it again", "traffic of the node's pods is interrupted while routes change", "kubectl get nodes -o wide")
)

// GiveAddress is for nodes whose calico-node records the address of their network.
var GiveAddress = ByHand("give calico-node the address of its machine (IP from status.hostIP in its DaemonSet), or install a newer Calico and restart calico-node", "each node records its own address, and routes lead to it",
	"calico-node restarts on every node; Calico before v3.18 then records no subnet, so CrossSubnet encapsulates all traffic", "kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")

// detection returns the prefix of calico-node's variables for the address of a family, and the field of
// Tigera's operator.
func detection(f blocks.Family) (variable, field string) {
	if f == blocks.IPv6 {
		return "IP6", "nodeAddressAutodetectionV6"
	}
	return "IP", "nodeAddressAutodetectionV4"
}

// DetectAddressOf is DetectAddress for an address of a family.
func DetectAddressOf(f blocks.Family) Remedy {
	variable, field := detection(f)
	return ByHand(fmt.Sprintf("let calico-node detect an address that only its machine has (%s_AUTODETECTION_METHOD=kubernetes-internal-ip; with Tigera's operator %s of the Installation)", variable, field),
		"each calico-node records its own address when it restarts", "calico-node restarts on every node", "kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
}

// DetectFamily is for nodes that record no Calico address of a family, although their pods have some.
func DetectFamily(f blocks.Family) Remedy {
	variable, field := detection(f)
	return ByHand(fmt.Sprintf("give the machines an %s address, and let calico-node detect it (%s=autodetect; with Tigera's operator %s of the Installation)", f, variable, field),
		fmt.Sprintf("nodes route to each other's pods by %s", f), "calico-node restarts on every node", "kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
}

// ReportAddress is for nodes where the kubelet reports an InternalIP that is not the machine's own;
// nil means any such nodes.
func ReportAddress(nodes blocks.Names) Remedy {
	who := namesOr(nodes, "each node")
	return ByHand(fmt.Sprintf("let the kubelet of %s report the address of its own machine (--node-ip)", who),
		"each Node has the InternalIP of its machine", "the kubelet restarts, and its pods keep running", "kubectl get nodes -o wide")
}

// OwnAddress is for nodes that report one InternalIP, although all their machines exist, and that have
// no better address; nil means any such nodes.
func OwnAddress(nodes blocks.Names) Remedy {
	who := namesOr(nodes, "these nodes")
	return ByHand(fmt.Sprintf("let the kubelets of %s report addresses that only their machines have (--node-ip), instead of one that all have, such as that of a NAT interface; then let calico-node detect them (IP_AUTODETECTION_METHOD=kubernetes-internal-ip)", who),
		"each node has an address of its own", "the kubelets and calico-node restart, and pods keep running", "kubectl get nodes -o wide")
}

func restartUnpinned(pods blocks.Names) Remedy {
	return Restart(fmt.Sprintf("restart these pods, because no plan can record an address without the annotation cni.projectcalico.org/containerID: %s", pods),
		"each pod gets an address that a block records")
}

// unrecordedMessage describes n addresses that pods or tunnels use and no block records.
func (st *Remedies) unrecordedMessage(n int) string {
	var who []string
	for _, name := range []string{"live pods", "tunnels"} {
		if slices.ContainsFunc(st.recordables(), func(u *recordable.Address) bool { return (u.Users[0].Pod != nil) == (name == "live pods") }) {
			who = append(who, name)
		}
	}
	return fmt.Sprintf("%s use %s that no block records for them: Calico may hand them out a second time", strings.Join(who, " and "), phrase.Plural(n, "address"))
}

// recordRemedies returns the remedies for all such addresses: a plan for those that it can record,
// and manual steps for the rest.
func (st *Remedies) recordRemedies() (out []Remedy) {
	var restart, agents []string
	var first state.Bar
	recorded, of := 0, 0
	for _, u := range st.recordables() {
		if u.OtherIPAM != "" {
			continue
		}
		of++
		switch w := u.Users[0].Pod; {
		case u.Code == "":
			recorded++
		case w == nil && u.Code == state.RetainSpecial:
			if !slices.Contains(agents, u.Users[0].Node) {
				agents = append(agents, u.Users[0].Node)
			}
		case u.Code == state.RetainUnpinned && w != nil:
			if !slices.Contains(restart, w.FullName()) {
				restart = append(restart, w.FullName())
			}
		case first.Code == "":
			first = u.Bar
		}
	}
	if r := RecordAddresses; recorded > 0 {
		if r.Yield = (&Yield{Addresses: recorded}); recorded < of {
			r.Effect = fmt.Sprintf("%d of %d addresses are recorded; repair explains why the others stay", recorded, of)
		}
		out = append(out, r)
	}
	if len(restart) > 0 {
		out = append(out, restartUnpinned(restart))
	}
	if slices.Sort(agents); len(agents) > 0 {
		r := RestartAgents(agents)
		if recorded == 0 && first.Code != "" { // the tunnels' addresses keep nodes from claiming the blocks
			r.Title += "; then record the addresses of pods immediately: calico-audit repair --unrecorded-ips"
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		out = append(out, RecordAddresses.Unless(first))
	}
	return out
}
