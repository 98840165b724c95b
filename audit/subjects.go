package audit

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

func PoolSubject(p *Pool) Subject {
	return Subject{Kind: KindPool, Name: p.Name, CIDR: p.CIDR.String()}
}

func NodeSubject(name string) Subject { return Subject{Kind: KindNode, Name: name, Node: name} }

func BlockSubject(b *Block) Subject {
	return Subject{Kind: KindBlock, Name: b.Name, CIDR: b.CIDR.String()}
}

func IPSubject(a netip.Addr, node string) Subject {
	return Subject{Kind: KindIP, IP: a.String(), Node: node}
}

// ipPrefix returns an address as a CIDR.
func IPPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ConfigSubject() Subject { return Subject{Kind: KindConfig, Name: "default"} }

func ClusterSubject(st *State) Subject {
	name := st.Cluster.GUID
	if name == "" {
		name = "cluster"
	}
	return Subject{Kind: KindCluster, Name: name}
}

// poolsOf returns the names that a finding's Pools takes.
func poolsOf(ps ...*Pool) []string {
	var out []string
	for _, p := range ps {
		if p != nil {
			out = append(out, p.Name)
		}
	}
	return out
}

// poolName returns a pool's name for texts.
func poolName(p *Pool) string {
	if p == nil {
		return "none"
	}
	return p.Name
}

// listLimit is how many things a text lists before it only counts the rest.
const listLimit = 10

// List joins words by commas, counting what is beyond the limit.
func List(words []string) string { return listBy(", ", words) }

// listBy joins words, or clauses that hold commas themselves.
func listBy(sep string, words []string) string {
	if len(words) <= listLimit {
		return strings.Join(words, sep)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(words[:listLimit], sep), sep, len(words)-listLimit)
}

// Plural writes a number with its noun: "1 block", "2 blocks", "3 addresses".
func Plural(n int, noun string) string { return pluralCount(blocks.CountOf(n), noun) }

func pluralCount(n blocks.Count, noun string) string {
	if n.Cmp(blocks.CountOf(1)) == 0 {
		return "1 " + noun
	}
	switch {
	case strings.HasSuffix(noun, "s"):
		return n.String() + " " + noun + "es"
	case strings.HasSuffix(noun, "ty"):
		return n.String() + " " + strings.TrimSuffix(noun, "y") + "ies"
	}
	return n.String() + " " + noun + "s"
}

// numberIs writes a number with its noun and verb: "1 pod is", "2 pods are".
func numberIs(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return Plural(n, noun) + " are"
}

// Arg writes a name for use in a command line that people copy: names come from
// the cluster, and one that holds anything but letters, digits and the signs
// usual in names is quoted.
func Arg(name string) string {
	plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_:/,", r)
	}) && !strings.HasPrefix(name, "-")
	if plain {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

func cidrs(bs []*Block) []string {
	out := make([]string, len(bs))
	for i, b := range bs {
		out[i] = b.CIDR.String()
	}
	return out
}

func fullNames(ws []*blocks.Workload) []string {
	out := make([]string, len(ws))
	for i, w := range ws {
		out[i] = w.FullName()
	}
	return out
}
