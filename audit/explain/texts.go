package explain

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/selectors"
	"github.com/calico-audit/calico-audit/audit/state/traffic"
	"github.com/calico-audit/calico-audit/blocks"
)

// poolFacts lists the properties of a pool that matter for its blocks and addresses.
func (x *explainer) poolFacts(s *builder, p *state.Pool) {
	src := poolSource(p)
	s.factf(src, "pool", "%s, %s in blocks of /%d (addresses in each: %s)", p.Name, p.CIDR, p.BlockSize, p.BlockAddresses())
	s.fact(src, "state", poolState(p))
	if p.OfOperator {
		s.fact(src, "managed by", "Tigera's operator: it undoes changes made by hand, so change the pool in the Installation (calicoNetwork.ipPools; disableNewAllocations disables it); it deletes a pool whose CIDR is not listed there")
	}
	if b := oldestBlock(p); b != nil && p.Created.After(b.Created.Add(x.Grace)) {
		s.factf(src, "created again", "at %s, after its block %s (%s): something deleted the pool in between, as Tigera's operator does if the Installation lists the CIDR in another notation", p.Created, b.CIDR, b.Created)
	}
	s.fact(src, "assigned", assignmentText(p))
	s.fact(src, "serves", phrase.Uses(p.Uses))
	s.fact(src, "encapsulation", encapText(p.Pool))
	if nodes, all := traffic.HostSubnets(x.State, p); all {
		s.factf(src, "CrossSubnet", "never applies, and all traffic between nodes is encapsulated: all %d nodes record an address without a subnet (/%d)", len(nodes), p.CIDR.Addr().BitLen())
	} else if len(nodes) > 0 && len(x.State.SelectedBy(p)) > 1 {
		s.factf(src, "CrossSubnet", "does not apply to %s, with an address without a subnet (/%d): traffic from there is encapsulated, and traffic to there may not be, which strict reverse path filtering drops", nodes, p.CIDR.Addr().BitLen())
	}
	if need := traffic.BetweenSubnets(x.State, p); need != "" {
		s.fact(src, "subnets", need)
	}
	if need := traffic.InSubnet(x.State, p); need != "" {
		s.fact(src, "on AWS", "traffic between nodes that is not encapsulated "+need)
	}
	if p.Allows(blocks.UseWorkload) && !p.NATOutgoing {
		s.fact(src, "outgoing NAT", "off (natOutgoing): its pods reach addresses outside all pools only if the network there routes the pool to the nodes, as by BGP peers")
	}
	if p.DisableBGPExport {
		s.fact(src, "BGP", "its routes are not exported (disableBGPExport)")
	}
	s.fact(src, "nodes", selectorText(p.NodeSelector, p.NodeSelection))
	s.fact(src, "namespaces", selectorText(p.NamespaceSelector, p.NamespaceSelection))
}

// oldestBlock returns the first block of a pool that records when it was created; nil if there is none.
func oldestBlock(p *state.Pool) (oldest *state.Block) {
	for _, b := range p.Blocks {
		if !b.Created.IsZero() && (oldest == nil || oldest.Created.After(b.Created)) {
			oldest = b
		}
	}
	return oldest
}

func poolState(p *state.Pool) string {
	out := "enabled"
	if p.Disabled {
		out = "disabled: it assigns no addresses; assigned ones stay in use"
	}
	if p.NotAllocatable != "" {
		out += "; Calico marks it not allocatable (" + p.NotAllocatable + ")"
	}
	return out
}

func assignmentText(p *state.Pool) string {
	if p.Automatic {
		return "automatically"
	}
	return "only where a pod or its namespace asks for the pool (assignmentMode Manual)"
}

func encapText(p *blocks.Pool) string {
	var out []string
	for _, e := range []struct {
		name string
		mode blocks.Encap
	}{{"VXLAN", p.VXLAN}, {"IPIP", p.IPIP}} {
		if e.mode != "" && e.mode != blocks.EncapNever {
			out = append(out, fmt.Sprintf("%s (%s)", e.name, e.mode))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func selectorText(text string, s *selectors.Selector) string {
	switch {
	case s.Err != nil:
		return fmt.Sprintf("selector %q cannot be parsed: %v", text, s.Err)
	case s.MatchesAll():
		return "all"
	}
	return "those that match " + text
}

// ownerWord names an owner within a sentence.
func ownerWord(o blocks.Owner) string {
	switch {
	case o.Node() != "":
		return "node " + o.Node()
	case o.Kind == blocks.VirtualOwner:
		return o.String() + ", which serves LoadBalancer services"
	}
	return o.String()
}

// tunnelName returns the display name of a tunnel address type.
func tunnelName(kind string) string {
	switch kind {
	case blocks.TypeIPIP:
		return "IPIP tunnel"
	case blocks.TypeVXLAN:
		return "VXLAN tunnel"
	case blocks.TypeVXLANv6:
		return "VXLAN tunnel (IPv6)"
	case blocks.TypeWireguard:
		return "WireGuard tunnel"
	case blocks.TypeWireguardV6:
		return "WireGuard tunnel (IPv6)"
	}
	return kind
}

// since returns " since TIME", or nothing for an unknown time.
func since(t blocks.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + t.String()
}

// comma puts a comma before a non-empty phrase.
func comma(phrase string) string {
	if phrase == "" {
		return ""
	}
	return "," + phrase
}

// holder describes the use of an allocated ordinal in a few words.
func (x *explainer) holder(b *state.Block, ordinal int) string {
	a := b.At(ordinal)
	if a == nil {
		if x.unread(blocks.Blocks) != "" {
			return "attributes that were not read"
		}
		return "attributes that do not exist"
	}
	switch state.UseKindOf(b, a) {
	case state.UseCooling:
		return "no one: released at " + a.Extras().Released.String() + " and cooling down"
	case state.UseWindows:
		return "no one: a Windows node reserves it"
	case state.UseTunnel:
		kind, node := a.TunnelOf()
		return "the " + tunnelName(kind) + " of node " + phrase.OrNone(node)
	case state.UseVM:
		if namespace, name, _ := a.VMOf(); name != "" {
			return "virtual machine " + namespace + "/" + name
		}
		return "a virtual machine"
	case state.UsePod:
		return "pod " + a.Namespace + "/" + a.Pod
	case state.UseService:
		if a.Extras().Service != "" {
			return "service " + phrase.FullName(a.Namespace, a.Extras().Service)
		}
		return "a LoadBalancer service"
	case state.UseUnknown:
	}
	if a.Handle != "" {
		return "handle " + a.Handle
	}
	return "something without a name"
}
