package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/errortext"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// KindError is the kind of an explained error message. Its name is the message's ID.
const KindError = "Error"

// Meanings explains error messages without a cluster. Complete is false: nothing was read.
func Meanings(q Query) *Explanation {
	e := &Explanation{
		APIVersion: audit.APIVersion, Kind: ExplanationKind, Query: q.Text,
		Gaps: []blocks.Gap{}, SkippedChecks: []audit.Skipped{}, Subjects: []Explained{},
	}
	for _, m := range q.Messages {
		e.Subjects = append(e.Subjects, meaning(m).done())
	}
	return e
}

// meaning explains a message by itself.
func meaning(m errortext.Match) *builder {
	s := newBuilder(state.Subject{Kind: KindError, Name: m.ID})
	s.Summary = m.Means
	s.section("Message")
	s.fact("", "text", m.Text)
	s.fact("", "printed by", m.By)
	s.fact("", "remedy", m.Do)
	s.fact("", "its checks", strings.Join(m.Checks, ", "))
	return s
}

// message explains a message in this cluster: the objects that the text names, and the findings
// that are its cause. If the text names objects, only findings that concern these count.
func (x *explainer) message(m errortext.Match, n *named) Explained {
	s := meaning(m)
	s.listed("Named in the text")
	s.Sections[len(s.Sections)-1].Facts = append(s.Sections[len(s.Sections)-1].Facts, n.facts...)
	s.Remedies = append(s.Remedies, n.remedies...)
	elsewhere := 0
	for i := range x.result.Findings {
		switch f := &x.result.Findings[i]; {
		case !slices.Contains(m.Checks, f.Check):
		case n.concerns(f):
			s.Findings = append(s.Findings, *f)
		default:
			elsewhere++
		}
	}
	s.section("Cause in this cluster")
	of := ""
	if n.any() {
		of = " about the objects named in the text"
	}
	ran := slices.DeleteFunc(slices.Clone(m.Checks), func(check string) bool {
		return slices.ContainsFunc(x.result.Skipped, func(k audit.Skipped) bool { return k.Check == check })
	})
	switch {
	case len(m.Checks) == 0:
		s.fact("", "findings", "no check finds this cause: see the remedy")
	case len(s.Findings) > 0:
		s.factf("", "findings", "%d%s", len(s.Findings), of)
	case len(ran) > 0:
		s.factf("", "findings", "none now by %s%s", strings.Join(ran, ", "), of)
	}
	if skipped := len(m.Checks) - len(ran); skipped > 0 {
		s.factf("", "not evaluated", "%d of the checks, at least in part", skipped)
	}
	if elsewhere > 0 {
		s.factf("", "elsewhere", "%d about other objects: calico-audit report --check %s", elsewhere, strings.Join(m.Checks, ","))
	}
	return s.done()
}

// named are the objects of the cluster that a text names, with facts about them.
type named struct {
	facts        []Fact
	remedies     []Remedy // of the pods
	nodes, pools []string
	pods         []string // NAMESPACE/NAME
	handles      []string
	addrs        []netip.Addr
	cidrs        []netip.Prefix
}

// mostNamed limits the facts about objects of a kind, because the text may list thousands.
const mostNamed = 10

// fact adds a fact about an object, unless there are enough of its kind.
func (n *named) fact(kind, name string, about func() string) {
	count := 0
	for _, f := range n.facts {
		if f.Name == kind {
			count++
		}
	}
	if count < mostNamed {
		n.facts = append(n.facts, Fact{Name: kind, Value: name + ": " + about()})
	}
}

// any reports whether the text names an object of the cluster.
func (n *named) any() bool {
	return len(n.nodes)+len(n.pools)+len(n.pods)+len(n.handles)+len(n.addrs)+len(n.cidrs) > 0
}

// resolve looks up the objects that a text names. It drops unknown nodes, which may be misread
// words. An unknown pod is a fact, unless pods of that name exist in other namespaces.
func (x *explainer) resolve(names errortext.Names) *named {
	n := new(named)
	var unknown []string
	for _, p := range names.Pods {
		known := x.podsNamed(p.Namespace, p.Name)
		if len(known) == 0 && p.Namespace != "" {
			unknown = append(unknown, p.Namespace+"/"+p.Name)
		}
		if len(known) == 1 && !slices.Contains(n.pods, known[0]) {
			n.pods = append(n.pods, known[0])
		}
	}
	var v4, v6 []*state.Pool
	for _, full := range n.pods {
		ns, name, _ := strings.Cut(full, "/")
		n.fact("pod", full, func() string {
			pod := x.pod(ns, name)
			n.remedies = append(n.remedies, pod.Remedies...)
			return pod.Summary
		})
		if w := x.Pod(ns, name); w != nil && w.Node != "" {
			n.addNode(w.Node)
			v4, v6 = append(v4, x.PodPools(w, x.nodeNamed(w.Node), blocks.IPv4)...), append(v6, x.PodPools(w, x.nodeNamed(w.Node), blocks.IPv6)...)
		}
	}
	for _, full := range unknown {
		if len(n.pods) == 0 {
			n.fact("pod", full, func() string { return "no such pod" + x.unreadNote(blocks.Pods) })
		}
	}
	for _, name := range names.Nodes {
		if x.knowsNode(name) {
			n.addNode(name)
		}
	}
	for _, name := range n.nodes {
		n.fact("node", name, func() string { return x.node(name).Summary })
		if node := x.nodeNamed(name); node != nil && len(n.pods) == 0 {
			v4, v6 = append(v4, x.WorkloadPools(node, blocks.IPv4)...), append(v6, x.WorkloadPools(node, blocks.IPv6)...)
		}
	}
	x.resolvePools(n, names)
	for _, a := range names.Addresses {
		n.addrs = append(n.addrs, a)
		n.fact("address", a.String(), func() string { return x.ip(a).Summary })
	}
	for _, h := range names.Handles {
		if id := x.handleID(h); id != "" {
			n.handles = append(n.handles, id)
			n.fact("handle", id, func() string { return x.handle(id).Summary })
		}
	}
	if len(n.pools) == 0 {
		n.pools = state.PoolsOf(append(v4, v6...)...)
	}
	return n
}

func (n *named) addNode(name string) {
	if !slices.Contains(n.nodes, name) {
		n.nodes = append(n.nodes, name)
	}
}

// resolvePools looks up the pools and blocks that a text names.
func (x *explainer) resolvePools(n *named, names errortext.Names) {
	for _, name := range names.Pools {
		if p := x.PoolByNameOrCIDR(name); p != nil {
			n.addPool(x, p)
			continue
		}
		n.fact("pool", name, func() string { return "no such pool" + x.unreadNote(blocks.Pools) })
	}
	for _, c := range names.CIDRs {
		if p := x.PoolByNameOrCIDR(c.String()); p != nil {
			n.addPool(x, p)
			continue
		}
		n.cidrs = append(n.cidrs, c)
		n.fact("CIDR", c.String(), func() string { return x.block(c).Summary })
	}
}

func (n *named) addPool(x *explainer, p *state.Pool) {
	if !slices.Contains(n.pools, p.Name) {
		n.pools = append(n.pools, p.Name)
		n.fact("pool", p.Name, func() string { return x.pool(p).Summary })
	}
}

// unreadNote qualifies the statement that an object does not exist, if its kind was not read
// completely.
func (x *explainer) unreadNote(r blocks.Resource) string {
	if why := x.unread(r); why != "" {
		return " was seen (" + why + ")"
	}
	if bad := x.Unreadable(r); len(bad) > 0 {
		return " was seen (" + bad[0].String() + ")"
	}
	return ""
}

// concerns reports whether a finding is about the named objects. The most specific names count: if
// the text names addresses, a finding about an address is compared with them, else with the named
// nodes.
func (n *named) concerns(f *audit.Finding) bool {
	if !n.any() || f.ConcernsNode(nil) || strings.HasPrefix(f.Check, "whereabouts/") {
		return true // about the whole cluster, or a range that nodes share
	}
	switch f.Subject.Kind {
	case state.KindIP:
		if len(n.addrs) > 0 {
			return slices.ContainsFunc(n.addrs, func(a netip.Addr) bool { return a.String() == f.Subject.IP })
		}
	case state.KindBlock, state.KindAffinity:
		if len(n.cidrs)+len(n.addrs) > 0 {
			p, err := netip.ParsePrefix(f.Subject.CIDR)
			return err == nil && (slices.ContainsFunc(n.addrs, p.Contains) || slices.ContainsFunc(n.cidrs, p.Overlaps))
		}
	case state.KindHandle:
		if len(n.handles) > 0 {
			return slices.Contains(n.handles, f.Subject.Name)
		}
	case state.KindPod:
		if len(n.pods) > 0 {
			return slices.Contains(n.pods, f.Subject.Name)
		}
	case state.KindPool:
		return len(n.pools) == 0 || f.ConcernsPool(n.pools) // without a pool, any of them may be missing
	}
	if len(n.nodes) > 0 {
		return f.ConcernsNode(n.nodes)
	}
	return f.ConcernsPool(n.pools)
}

// ambiguous explains that several pods have a bare name; empty if not.
func (x *explainer) ambiguous(q Query) string {
	if !q.wants("pod") || q.typed != "" && q.typed != "pod" || strings.Contains(q.bare(), "/") {
		return ""
	}
	pods := x.podsNamed(q.Namespace, q.bare())
	if len(pods) < 2 {
		return ""
	}
	return fmt.Sprintf("%d pods have the name %q: %s; give the namespace, as NAMESPACE/POD or with -n", len(pods), q.bare(), pods)
}
