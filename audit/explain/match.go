package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// candidate is a subject that matches a query.
type candidate struct {
	kind, name string
	explain    func() Explained
}

// matches returns every subject that matches a query, each once.
func (x *explainer) matches(q Query) []candidate {
	var out []candidate
	add := func(kind, name string, explain func() Explained) {
		for _, c := range out {
			if c.kind == kind && c.name == name {
				return
			}
		}
		out = append(out, candidate{kind, name, explain})
	}
	x.matchCIDRs(q, add)
	if q.isAddress() {
		add(state.KindIP, q.addr.String(), func() Explained { return x.ip(q.addr) })
	}
	for _, name := range q.named("node") {
		if x.knowsNode(name) {
			add(state.KindNode, name, func() Explained { return x.node(name) })
		}
	}
	for _, name := range q.named("pool") {
		for _, p := range x.Pools {
			if p.Name == name {
				add(state.KindPool, p.Name, func() Explained { return x.pool(p) })
			}
		}
	}
	for _, name := range q.named("pod") {
		ns, pod, ok := strings.Cut(name, "/")
		if !ok {
			ns, pod = q.Namespace, name
		}
		if pods := x.podsNamed(ns, pod); len(pods) == 1 {
			ns, pod, _ := strings.Cut(pods[0], "/")
			add(state.KindPod, pods[0], func() Explained { return x.pod(ns, pod) })
		}
	}
	for _, name := range q.named("handle") {
		if id := x.handleID(name); id != "" {
			add(state.KindHandle, id, func() Explained { return x.handle(id) })
		}
	}
	for _, name := range q.named("block") {
		for _, p := range x.blocksNamed(name) {
			add(state.KindBlock, p.String(), func() Explained { return x.block(p) })
		}
	}
	return out
}

// matchCIDRs finds the block and the pools with exactly the queried CIDR. Without a match, the CIDR
// is explained as a possible block or, if it is a single address, as that address.
func (x *explainer) matchCIDRs(q Query, add func(kind, name string, explain func() Explained)) {
	found := false
	if q.isCIDR("block") && (x.BlockOf(q.prefix) != nil || len(x.AffinitiesOf(q.prefix)) > 0) {
		found = true
		add(state.KindBlock, q.prefix.String(), func() Explained { return x.block(q.prefix) })
	}
	if q.isCIDR("pool") {
		for _, p := range x.Pools {
			if p.CIDR == q.prefix {
				found = true
				add(state.KindPool, p.Name, func() Explained { return x.pool(p) })
			}
		}
	}
	if !found && q.isCIDR("block") && !q.isAddress() {
		add(state.KindBlock, q.prefix.String(), func() Explained { return x.block(q.prefix) })
	}
}

// knowsNode reports whether a node of this name exists, or whether blocks, affinities, pods or
// allocations still refer to one.
func (x *explainer) knowsNode(name string) bool {
	return x.NodeState(name) != nil ||
		slices.ContainsFunc(x.Affinities, func(a blocks.Affinity) bool { return a.Owner.Node() == name }) ||
		slices.ContainsFunc(x.Workloads, func(w *blocks.Workload) bool { return w.Node == name }) ||
		slices.ContainsFunc(x.IPBlocks, func(b *state.Block) bool {
			return slices.ContainsFunc(b.Attributes, func(a blocks.Attributes) bool { return a.Node == name })
		})
}

// knowsPod reports whether a pod exists, or whether blocks record addresses for it.
func (x *explainer) knowsPod(namespace, name string) bool {
	return namespace != "" && name != "" && (x.Pod(namespace, name) != nil || len(x.allocatedTo(namespace, name)) > 0)
}

// handleID returns the ID of a handle that exists or that blocks refer to.
func (x *explainer) handleID(name string) string {
	if h := x.Handle(name); h != nil {
		return h.ID
	}
	for _, r := range x.HandleRefs(name) {
		return r.Attributes().Handle
	}
	for _, h := range x.Handles {
		if h.Name == name {
			return h.ID
		}
	}
	return ""
}

// blocksNamed returns the CIDRs of the blocks and affinities whose objects have this name.
func (x *explainer) blocksNamed(name string) (out []netip.Prefix) {
	for _, b := range x.IPBlocks {
		if b.Name == name {
			out = append(out, b.CIDR)
		}
	}
	for i := range x.Affinities {
		if x.Affinities[i].Name == name {
			out = append(out, x.Affinities[i].CIDR)
		}
	}
	return out
}

// notFound returns the error for a query that matches nothing.
func (x *explainer) notFound(q Query) error {
	e := &NotFoundError{Query: q, Name: q.bare(), Elsewhere: x.ambiguous(q)}
	for _, g := range x.Gaps {
		if !g.Whole() && (g.Name == q.name || g.Name == q.bare()) {
			e.Unreadable = g.String()
		}
	}
	if q.wants("node") {
		for _, h := range x.NodeStates {
			e.Names = append(e.Names, h.Name)
		}
	}
	if q.wants("pool") {
		for _, p := range x.Pools {
			e.Names = append(e.Names, p.Name)
		}
		for _, p := range whereabouts.Of(x.State).SecondaryPools {
			if name := p.FullName(); name == q.name || name == q.bare() {
				e.Elsewhere = fmt.Sprintf("%q is a Whereabouts pool, which explain does not cover: \"calico-audit report --pool %s\" shows it", q.Text, phrase.Arg(name))
			}
		}
	}
	if q.wants("pod") {
		for _, w := range x.Workloads {
			e.Names = append(e.Names, w.FullName())
		}
	}
	if q.wants("check") {
		for _, c := range checks.All {
			e.Names = append(e.Names, c.ID)
		}
	}
	return e
}
