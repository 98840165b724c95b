package capacity

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// kind is a group of pods that get addresses by the same rules.
type kind struct {
	// like is a pod of this kind, as an example.
	like     *blocks.Workload
	families []blocks.Family
}

// kinds groups pods by kind.
type kinds struct {
	st *state.State
	// spaces is true if some pool selects namespaces.
	spaces bool
	known  map[string]*kind
	// usual is the kind of pods that joining nodes run.
	usual *kind
}

// newKinds returns the kinds of the running pods.
func newKinds(st *state.State) *kinds {
	k := &kinds{st: st, known: map[string]*kind{}}
	for _, p := range st.Pools {
		k.spaces = k.spaces || !p.ServesAllNamespaces()
	}
	count := map[*kind]int{}
	for _, h := range st.NodeStates {
		for _, p := range h.Workloads {
			if p.Live() {
				count[k.of(p)]++
			}
		}
	}
	k.usual = k.mostUsual(count)
	return k
}

// of returns the kind of a pod; nil if the pod has no address and its families are unknown.
func (k *kinds) of(w *blocks.Workload) *kind {
	var families []blocks.Family
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		if w.HasFamily(f) {
			families = append(families, f)
		}
	}
	if len(families) == 0 {
		return nil
	}
	namespace := ""
	if ns := k.st.Namespace(w.Namespace); k.spaces || ns != nil && len(ns.PoolsV4)+len(ns.PoolsV6) > 0 {
		namespace = w.Namespace
	}
	key := strings.Join(slices.Concat([]string{namespace, families[0].String(), families[len(families)-1].String(), ""}, w.Extras().PoolsV4, []string{""}, w.Extras().PoolsV6), "\n")
	if k.known[key] == nil {
		k.known[key] = &kind{like: w, families: families}
	}
	return k.known[key]
}

// mostUsual returns the most frequent kind of pod. If no pod has an address, it returns a kind that
// may use any pool, with one address of each family that some pool serves.
func (k *kinds) mostUsual(count map[*kind]int) *kind {
	var best *kind
	for _, key := range slices.Sorted(maps.Keys(k.known)) {
		if one := k.known[key]; best == nil || count[one] > count[best] {
			best = one
		}
	}
	if best != nil {
		return best
	}
	best = &kind{like: &blocks.Workload{}}
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		if slices.ContainsFunc(k.st.Pools, func(p *state.Pool) bool { return p.ServesWorkloads() && p.Automatic && p.Family() == f }) {
			best.families = append(best.families, f)
		}
	}
	return best
}

// share is a part of the starting pods: those of one kind on one node. The weight is the
// number of such pods today.
type share struct {
	node   string
	kind   *kind
	weight int
	// given counts the started pods. full is true once a pod got no address.
	given int
	full  bool
}

// turns is a heap of items, the next in turn first.
type turns[T interface{ Sooner(other T) bool }] []T

func (q turns[T]) Len() int           { return len(q) }
func (q turns[T]) Less(i, j int) bool { return q[i].Sooner(q[j]) }
func (q turns[T]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *turns[T]) Push(x any)        { *q = append(*q, x.(T)) }
func (q *turns[T]) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// Sooner reports whether h's next pod starts before o's.
func (h *share) Sooner(o *share) bool { return h.before(h.given+1, o, o.given+1) }

// before reports whether h's n-th pod starts before o's m-th.
func (h *share) before(n int, o *share, m int) bool {
	return cmp.Or(cmp.Compare(n*o.weight, m*h.weight), cmp.Compare(h.node, o.node)) < 0
}

// takesPods reports whether the scheduler may place another pod on a node. It never does on
// a cordoned node.
func takesPods(h *state.NodeState) bool {
	return h.Node != nil && h.Schedulable && !h.Node.Unschedulable
}

// spread returns the shares of starting pods, for handing them out in proportion and as
// evenly as possible.
func (w *world) spread(joined int) (s turns[*share]) {
	if w.shares == nil {
		w.shares = w.sharesOf(joined)
	}
	for _, h := range w.shares {
		s = append(s, &h)
	}
	heap.Init(&s)
	return s
}

// sharesOf returns the shares of today's pods on nodes that accept more, and of joined
// nodes with joined pods each. If no pod has an address, each node has an equal share.
func (w *world) sharesOf(joined int) (all []share) {
	count := map[string]map[*kind]int{}
	add := func(node string, of *kind, n int) {
		if count[node] == nil {
			count[node] = map[*kind]int{}
		}
		count[node][of] += n
	}
	for _, h := range w.NodeStates {
		if !takesPods(h) {
			continue
		}
		for _, p := range h.Workloads {
			if of := w.kinds.of(p); of != nil && p.Live() {
				add(h.Name, of, 1)
			}
		}
	}
	for _, name := range w.joining {
		add(name, w.kinds.usual, joined)
	}
	if len(count) == 0 {
		for _, h := range w.NodeStates {
			if takesPods(h) {
				add(h.Name, w.kinds.usual, 1)
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(count)) {
		for of, n := range count[node] {
			if n > 0 {
				all = append(all, share{node: node, kind: of, weight: n})
			}
		}
	}
	slices.SortFunc(all, func(a, b share) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.kind.like.FullName(), b.kind.like.FullName()))
	})
	return all
}
