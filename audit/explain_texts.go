package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// poolFacts are what an engineer asks of the pool that something lies in.
func (x *explainer) poolFacts(s *sheet, p *Pool) {
	src := poolSource(p)
	s.factf(src, "pool", "%s, %s in blocks of /%d (%s)", p.Name, p.CIDR, p.BlockSize, pluralCount(p.BlockAddresses(), "address"))
	s.fact(src, "state", poolState(p))
	s.fact(src, "assigned", assignmentText(p))
	s.fact(src, "serves", usesText(p))
	s.fact(src, "encapsulation", encapText(p.Pool))
	if p.DisableBGPExport {
		s.fact(src, "BGP", "its routes are not exported (disableBGPExport)")
	}
	s.fact(src, "nodes", selectorText(p.NodeSelector, p.nodeSelector))
	s.fact(src, "namespaces", selectorText(p.NamespaceSelector, p.namespaceSelector))
}

func poolState(p *Pool) string {
	out := "enabled"
	if p.Disabled {
		out = "disabled: it hands out nothing; what it handed out stays in use"
	}
	if p.NotAllocatable != "" {
		out += "; Calico marks it not allocatable (" + p.NotAllocatable + ")"
	}
	return out
}

func assignmentText(p *Pool) string {
	if p.Automatic {
		return "automatically"
	}
	return "only where a pod or its namespace asks for the pool (assignmentMode Manual)"
}

func usesText(p *Pool) string {
	words := make([]string, len(p.Uses))
	for i, u := range p.Uses {
		words[i] = string(u)
	}
	return strings.Join(words, ", ")
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

func selectorText(text string, s *selectorOrError) string {
	switch {
	case s.err != nil:
		return fmt.Sprintf("selector %q cannot be parsed: %v", text, s.err)
	case s.selectsAll():
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
	return OwnerText(o)
}

// tunnelName calls a type of tunnel address by its name.
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

// since writes " since TIME", or nothing for a time that is not known.
func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + FormatTime(t)
}

// comma puts a comma before a phrase that is not empty.
func comma(phrase string) string {
	if phrase == "" {
		return ""
	}
	return "," + phrase
}

// holder says in a few words what an allocated ordinal is for.
func (x *explainer) holder(b *Block, ordinal int) string {
	a := b.At(ordinal)
	if a == nil {
		return "attributes that do not exist"
	}
	switch sortOf(b, a) {
	case UseCooling:
		return "nobody: released at " + FormatTime(a.Released) + " and cooling down"
	case UseWindows:
		return "nobody: a Windows node keeps it back"
	case UseTunnel:
		kind, node := a.TunnelOf()
		return "the " + tunnelName(kind) + " of node " + orNone(node)
	case UseVM:
		if namespace, name, _ := a.VMOf(); name != "" {
			return "virtual machine " + namespace + "/" + name
		}
		return "a virtual machine"
	case UsePod:
		return "pod " + a.Namespace + "/" + a.Pod
	case UseService:
		if a.Service != "" {
			return "service " + joinNonEmpty(a.Namespace, a.Service)
		}
		return "a LoadBalancer service"
	case UseUnknown:
	}
	if a.Handle != "" {
		return "handle " + a.Handle
	}
	return "something without a name"
}

// nodePhrase is " on NODE", or nothing.
func nodePhrase(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}

// each writes words with commas and "and".
func each(words []string) string {
	switch n := len(words); n {
	case 0:
		return "none"
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}
