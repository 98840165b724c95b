package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/calico-audit/calico-audit/blocks"
)

// Refresh returns prev, which must be sorted, with some objects read anew: one that
// is gone is gone from the result, one that is new is in it, and so is one that was
// bound to another node before. Everything else is taken over. The result's clock
// is the API server's at its last answer, so that nothing in it is from the future.
// prev is not changed, but the result shares memory with it.
//
// Objects are asked for by name, each by a list of its own. That needs no right
// beyond those of [Kubernetes.Read], and is answered from the API server's own
// store, not from a cache that lags behind. Two objects of the same CIDR are two
// objects: whoever wants the object that Calico would make now gives its name, too
// ([blocks.BlockName], [blocks.AffinityName]).
//
// An object that cannot be understood is a gap, as after Read. Any list that could
// not be read is an error: nothing can be relied on then.
func (k *Kubernetes) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	k.client.revive()
	if k.served == nil {
		if err := k.discover(ctx); err != nil {
			return nil, err
		}
	}
	byName, byNode, err := k.refreshLists(refs)
	if err != nil {
		return nil, err
	}
	// What is bound to a node is read after single pods, so that of a pod that was
	// read both ways the second reading counts.
	for _, lists := range [][]*lister{byName, byNode} {
		if err := runLists(ctx, lists); err != nil {
			return nil, err
		}
	}
	s := newRefreshed(append(byName, byNode...), refs).onto(prev)
	// The virtual machines that were not asked for are those of prev: they can become
	// unknown here, and not known.
	setVMsKnown(s, func(r blocks.Resource) bool {
		again := slices.ContainsFunc(refs, func(ref blocks.Ref) bool { return ref.Resource == r })
		return prev.VMsKnown && (!again || k.served.foreign[r])
	})
	if s.Cluster.TakenAt = k.client.lastDate(); s.Cluster.TakenAt.IsZero() {
		s.Cluster.TakenAt = k.now().UTC()
	}
	return s, nil
}

// refreshLists prepares one list for each reference. A kind that Calico can do
// without and that is not served has no objects, and no list.
func (k *Kubernetes) refreshLists(refs []blocks.Ref) (byName, byNode []*lister, err error) {
	shared := &sharedStrings{}
	seen := map[blocks.Ref]bool{}
	for _, ref := range refs {
		if seen[ref] {
			continue
		}
		seen[ref] = true
		kind, err := refKind(ref)
		if err != nil {
			return nil, nil, fmt.Errorf("reading again: %w", err)
		}
		l := &lister{
			client: k.client, kind: kind, group: k.served.group, pageSize: k.pageSize, strings: shared,
			progress: func(Progress) {}, namespace: ref.Namespace,
		}
		switch {
		case !k.served.has(kind) && kind.optional:
		case !k.served.has(kind):
			return nil, nil, fmt.Errorf("reading %s again: %s", refText(ref), k.served.absence(kind).gaps[0].Reason)
		case ref.Node != "":
			l.selector = fields.OneTermEqualSelector("spec.nodeName", ref.Node).String()
			byNode = append(byNode, l)
		default:
			l.selector = fields.OneTermEqualSelector("metadata.name", ref.Name).String()
			byName = append(byName, l)
		}
	}
	return byName, byNode, nil
}

// refKind returns the kind of what is referred to, or what is wrong with the
// reference.
func refKind(ref blocks.Ref) (*kind, error) {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.resource == ref.Resource })
	if i < 0 {
		return nil, fmt.Errorf("%q is no resource of an audit", ref.Resource)
	}
	named := ref.Name != "" && ref.Node == "" && kinds[i].namespaced == (ref.Namespace != "")
	ofNode := ref.Node != "" && ref.Name == "" && ref.Namespace == "" && ref.Resource == blocks.Pods
	if !named && !ofNode {
		return nil, fmt.Errorf("%+v names no object", ref)
	}
	return kinds[i], nil
}

func refText(ref blocks.Ref) string {
	switch {
	case ref.Node != "":
		return string(ref.Resource) + " of node " + ref.Node
	case ref.Namespace != "":
		return string(ref.Resource) + " " + ref.Namespace + "/" + ref.Name
	}
	return string(ref.Resource) + " " + ref.Name
}

// runLists reads lists, several at once. A list that could not be read is an error.
func runLists(ctx context.Context, lists []*lister) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentLists)
	for _, l := range lists {
		group.Go(func() error {
			err := l.run(ctx)
			if err == nil {
				err = l.failed
			}
			if err != nil {
				return fmt.Errorf("reading %s again (%s): %w", l.kind.resource, strings.ReplaceAll(l.selector, "=", " "), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// refreshed is what was read of which objects.
type refreshed struct {
	part  *part
	names map[blocks.Resource]map[string]bool // "namespace/name" of kinds in namespaces
	nodes map[string]bool                     // whose pods were read
	kinds []*kind
}

func newRefreshed(lists []*lister, refs []blocks.Ref) *refreshed {
	parts := make([]*part, len(lists))
	for i, l := range lists {
		parts[i] = &l.out
	}
	r := &refreshed{part: joinParts(parts), names: map[blocks.Resource]map[string]bool{}, nodes: map[string]bool{}}
	for _, k := range kinds {
		for _, ref := range refs {
			if ref.Resource == k.resource && (!singletons[k.resource] || ref.Name == defaultName) {
				r.kinds = append(r.kinds, k)
				r.names[k.resource] = map[string]bool{}
				break
			}
		}
	}
	for _, ref := range refs {
		if ref.Node != "" {
			r.nodes[ref.Node] = true
			continue
		}
		if names := r.names[ref.Resource]; names != nil {
			names[refName(ref.Namespace, ref.Name)] = true
		}
	}
	return r
}

func refName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// onto returns prev with what was read in the place of what it holds of the same
// objects.
func (r *refreshed) onto(prev *blocks.Snapshot) *blocks.Snapshot {
	p, read := *r.part, r.names
	p.pools = mergeRead(read[blocks.Pools], prev.Pools, p.pools, func(o *blocks.Pool) string { return o.Name })
	p.blocks = mergeRead(read[blocks.Blocks], prev.Blocks, p.blocks, func(o *blocks.Block) string { return o.Name })
	p.affinities = mergeRead(read[blocks.Affinities], prev.Affinities, p.affinities, func(o *blocks.Affinity) string { return o.Name })
	p.handles = mergeRead(read[blocks.Handles], prev.Handles, p.handles, func(o *blocks.Handle) string { return o.Name })
	p.reservations = mergeRead(read[blocks.Reservations], prev.Reservations, p.reservations, func(o *blocks.Reservation) string { return o.Name })
	p.nodes = mergeRead(read[blocks.Nodes], prev.Nodes, p.nodes, func(o *blocks.Node) string { return o.Name })
	p.namespaces = mergeRead(read[blocks.Namespaces], prev.Namespaces, p.namespaces, func(o *blocks.Namespace) string { return o.Name })
	p.peers = mergeRead(read[blocks.BGPPeers], prev.BGPPeers, p.peers, func(o *blocks.BGPPeer) string { return o.Name })
	p.filters = mergeRead(read[blocks.BGPFilters], prev.BGPFilters, p.filters, func(o *blocks.BGPFilter) string { return o.Name })
	p.vms = mergeRead(read[blocks.VMs], prev.VMs, p.vms, (*blocks.VirtualMachine).FullName)
	p.vmInstances = mergeRead(read[blocks.VMInstances], prev.VMInstances, p.vmInstances, (*blocks.VirtualMachine).FullName)
	workloads := prev.Workloads
	if len(r.nodes) > 0 {
		workloads = slices.DeleteFunc(slices.Clone(workloads), func(w blocks.Workload) bool { return r.nodes[w.Node] })
	}
	p.workloads = mergeRead(read[blocks.Pods], workloads, p.workloads, (*blocks.Workload).FullName)
	p.gaps = r.gaps(prev)
	return p.replacing(prev, r.kinds)
}

// mergeRead returns the objects of prev that were not read anew, by name or
// otherwise, and those that were. Of one that was read twice, the last counts. nil
// names mean that nothing of the kind was read.
func mergeRead[T any](names map[string]bool, prev, read []T, name func(*T) string) []T {
	if names == nil {
		return nil
	}
	last := map[string]int{}
	for i := range read {
		last[name(&read[i])] = i
	}
	out := make([]T, 0, len(prev)+len(last))
	for i := range prev {
		n := name(&prev[i])
		if _, again := last[n]; !again && !names[n] {
			out = append(out, prev[i])
		}
	}
	for i := range read {
		if last[name(&read[i])] == i {
			out = append(out, read[i])
		}
	}
	return out
}

// gaps returns those of the kinds of which something was read: the new ones, and
// the old ones about anything else. A gap of a whole kind stays, unless the kind is
// one of whose objects there is only one that counts.
func (r *refreshed) gaps(prev *blocks.Snapshot) []blocks.Gap {
	out := slices.Clone(r.part.gaps)
	decoded := map[string]bool{}
	for i := range r.part.workloads {
		decoded[r.part.workloads[i].FullName()] = true
	}
	for _, g := range prev.Gaps {
		names, again := r.names[g.Resource]
		switch {
		case !again: // replacing takes it over
		case g.Whole() && names[defaultName] && singletons[g.Resource]:
		case !g.Whole() && (names[g.Name] || g.Resource == blocks.Pods && decoded[g.Name]):
		default:
			out = append(out, g)
		}
	}
	slices.SortFunc(out, blocks.CompareGaps)
	return slices.Compact(out)
}

// singletons are the kinds of which only the object named "default" counts.
var singletons = map[blocks.Resource]bool{
	blocks.IPAMConfigs: true, blocks.ClusterInfos: true, blocks.ControllerConfig: true, blocks.FelixConfigs: true, blocks.BGPConfigs: true,
}
