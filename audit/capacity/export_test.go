package capacity

import (
	"container/heap"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
)

// Holdings lists all blocks with their free addresses, and all affinities.
func (a *Allocator) Holdings() string {
	var lines []string
	for _, b := range a.blocks {
		lines = append(lines, fmt.Sprintf("block %v of %q, free %v, deleted %v", b.cidr, b.owner, b.free, b.softDeleted))
	}
	for owner, affinities := range a.affinities {
		for _, c := range affinities {
			lines = append(lines, fmt.Sprintf("affinity of %q to %v, confirmed %v, deleted %v", owner, c.cidr, c.confirmed, c.softDeleted))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Age makes every block older than a minute.
func (a *Allocator) Age() {
	for _, b := range a.blocks {
		b.claimed = time.Time{}
		a.changed(b)
	}
}

// Owned returns the owner of each block.
func (a *Allocator) Owned() map[netip.Prefix]string {
	out := map[netip.Prefix]string{}
	for cidr, b := range a.blocks {
		out[cidr] = b.owner.Affinity()
	}
	return out
}

// Play returns an Allocator for a scenario, and the requests of each starting pod in order.
func Play(st *state.State, q Scenario) (*Allocator, [][]Request, error) {
	w, err := assume(st, &q)
	if err != nil {
		return nil, nil, err
	}
	w.kinds, w.stopped = newKinds(st), func() bool { return false }
	r := &run{world: w, q: &q, a: w.allocator(), out: &Outcome{}, nodes: map[string]*NodeOutcome{}}
	r.rebuild()
	var pods [][]Request
	add := func(node string, k *kind) {
		var all []Request
		for _, f := range k.families {
			all = append(all, r.request(node, k, f))
		}
		pods = append(pods, all)
	}
	for _, name := range w.joining {
		for range q.podsPerNode() {
			add(name, w.kinds.usual)
		}
	}
	shares := w.spread(q.podsPerNode())
	for range min(q.Pods, q.Pods*len(shares)) {
		h := shares[0]
		h.given++
		heap.Fix(&shares, 0)
		add(h.node, h.kind)
	}
	return r.a, pods, nil
}
