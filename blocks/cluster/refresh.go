package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Refresh returns prev, which must be sorted, with some objects read again. The result
// lacks deleted objects, and contains new ones, including pods previously bound to another
// node. Other data is taken from prev. The result's time is the API server's at its last
// response, so no object in it is from the future. prev is not changed, but the result
// shares memory with it.
//
// Each reference is read with a list of its own, even one of a single name. This requires no
// right beyond those of [Kubernetes.Read], and the response comes from the API server's
// datastore, not from a lagging cache. Two objects with the same CIDR are different objects: to
// see one that Calico might create meanwhile, add a reference to its name ([blocks.BlockName],
// [blocks.AffinityName]) or to its whole kind.
//
// An undecodable object is a gap, as after Read. A list that cannot be read is an error,
// because the result would be unreliable.
func (k *Kubernetes) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	k.client.reset()
	if k.served == nil {
		if err := k.discover(ctx); err != nil {
			return nil, err
		}
	}
	byName, groups, err := k.refreshLists(refs)
	if err != nil {
		return nil, err
	}
	// Groups of pods are read after single pods: if a pod is read both ways, the later
	// reading counts.
	for _, lists := range [][]*lister{byName, groups} {
		if err := runLists(ctx, lists); err != nil {
			return nil, err
		}
	}
	var read []*decode.Objects
	for _, r := range newRefreshed(append(byName, groups...), refs) {
		read = append(read, r.onto(prev))
	}
	s := decode.Replaced(prev, read)
	// Virtual machines without a reference come from prev. Reading other kinds again can make them
	// unknown, but not known.
	s.SetVMsKnown(func(r blocks.Resource) bool {
		again := slices.ContainsFunc(refs, func(ref blocks.Ref) bool { return ref.Resource == r })
		return prev.VMsKnown && (!again || k.served.has(decode.KindOf(r)))
	})
	s.SetBudgetsKnown(prev.BudgetsKnown)
	_, s.Cluster.TakenAt = k.client.clock.dates()
	return s, nil
}

// refreshLists prepares one list for each reference. An optional kind that is not served
// has no objects and needs no list.
func (k *Kubernetes) refreshLists(refs []blocks.Ref) (byName, groups []*lister, err error) {
	shared := &decode.SharedStrings{}
	seen := map[blocks.Ref]bool{}
	for _, ref := range refs {
		if seen[ref] {
			continue
		}
		seen[ref] = true
		kind, err := k.refKind(ref)
		if err != nil {
			return nil, nil, fmt.Errorf("reading again: %w", err)
		}
		l := &lister{
			client: k.client, kind: kind, group: k.served.group, pageSize: k.pageSize, strings: shared,
			namespace: ref.Namespace, podLabels: k.budgets, amend: k.amend[kind.Resource],
		}
		in := ref
		if k.original != nil {
			in = k.original(ref)
		}
		switch {
		case !k.served.has(kind) && kind.Optional:
		case !k.served.has(kind):
			return nil, nil, fmt.Errorf("reading %s again: %s", refText(ref), k.served.absence(kind).Gaps[0].Reason)
		case ref.Node != "":
			l.selector = fields.OneTermEqualSelector("spec.nodeName", in.Node).String()
			groups = append(groups, l)
		case ref.Label != "":
			l.labels = ref.Label
			groups = append(groups, l)
		case ref.All():
			byName = append(byName, l)
		default:
			l.selector = fields.OneTermEqualSelector("metadata.name", in.Name).String()
			byName = append(byName, l)
		}
	}
	return byName, groups, nil
}

// refKind returns the kind of a reference, or an error if the reference is invalid.
func (k *Kubernetes) refKind(ref blocks.Ref) (*decode.Kind, error) {
	kind := decode.KindOf(ref.Resource)
	if kind == nil {
		return nil, fmt.Errorf("%q is not a resource that an audit reads", ref.Resource)
	}
	named := ref.Name != "" && ref.Node == "" && kind.Namespaced == (ref.Namespace != "")
	ofNode := ref.Node != "" && ref.Name == "" && ref.Namespace == "" && kind.ByNode
	ofLabel := strings.Contains(ref.Label, "=") && ref.Name == "" && ref.Namespace != "" && ref.Node == "" && kind.ByNode && k.budgets
	all := ref.All() && !kind.Namespaced && !kind.Single
	if !ofLabel && !all && (ref.Label != "" || !named && !ofNode) {
		return nil, fmt.Errorf("%+v names no object", ref)
	}
	return kind, nil
}

func refText(ref blocks.Ref) string {
	switch {
	case ref.All():
		return string(ref.Resource)
	case ref.Node != "":
		return string(ref.Resource) + " of node " + ref.Node
	case ref.Label != "":
		return string(ref.Resource) + " of " + ref.Namespace + " with " + ref.Label
	}
	return string(ref.Resource) + " " + blocks.Key{Namespace: ref.Namespace, Name: ref.Name}.String()
}

// runLists reads lists concurrently. An incomplete list is an error.
func runLists(ctx context.Context, lists []*lister) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentLists)
	for _, l := range lists {
		group.Go(func() error {
			err := l.run(ctx)
			if err == nil {
				if err = l.failed; errors.Is(l.cause, blocks.ErrDenied) {
					err = fmt.Errorf("%w: %w", blocks.ErrDenied, l.failed)
				}
			}
			if err != nil {
				of := ""
				if l.selector != "" {
					of = " (" + strings.ReplaceAll(l.selector, "=", " ") + ")"
				}
				return fmt.Errorf("reading %s again%s: %w", l.kind.Resource, of, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// refreshed holds the objects of one kind that were read again.
type refreshed struct {
	*decode.Objects
	all   bool            // whether all objects were read
	names map[string]bool // requested names
	nodes map[string]bool // nodes whose pods were read
	// labelled are namespaces and labels whose pods were read.
	labelled []blocks.Ref
}

// newRefreshed groups lists by kind.
func newRefreshed(lists []*lister, refs []blocks.Ref) []*refreshed {
	var out []*refreshed
	for _, k := range slices.Concat(decode.Kinds, decode.OnDemand) {
		r := &refreshed{Objects: decode.NewObjects(k), names: map[string]bool{}, nodes: map[string]bool{}}
		for _, ref := range refs {
			switch {
			case ref.Resource != k.Resource || k.Single && ref.Name != blocks.DefaultName:
			case ref.Node != "":
				r.nodes[ref.Node] = true
			case ref.Label != "":
				r.labelled = append(r.labelled, ref)
			case ref.All():
				r.all = true
			default:
				r.names[blocks.Key{Namespace: ref.Namespace, Name: ref.Name}.String()] = true
			}
		}
		if !r.all && len(r.names) == 0 && len(r.nodes) == 0 && len(r.labelled) == 0 {
			continue
		}
		for _, l := range lists {
			if l.kind == k {
				r.Join(l.out)
				r.Gaps = append(r.Gaps, l.out.Gaps...)
			}
		}
		out = append(out, r)
	}
	return out
}

// onto merges the new objects into those of prev. If an object was read twice, the later
// reading counts.
func (r *refreshed) onto(prev *blocks.Snapshot) *decode.Objects {
	last := map[string]int{}
	for i := range r.Len() {
		key, _ := r.At(i)
		last[key.String()] = i
	}
	r.Only(func(i int) bool {
		key, _ := r.At(i)
		return last[key.String()] == i
	})
	if len(r.nodes) > 0 || len(r.labelled) > 0 {
		without := *prev
		without.Workloads = slices.DeleteFunc(slices.Clone(prev.Workloads), func(w *blocks.Workload) bool {
			return r.nodes[w.Node] || slices.ContainsFunc(r.labelled, func(ref blocks.Ref) bool {
				key, value, _ := strings.Cut(ref.Label, "=")
				has, found := w.Labels[key]
				return w.Namespace == ref.Namespace && found && has == value
			})
		})
		prev = &without
	}
	out := decode.NewObjects(r.Kind)
	out.Take(prev)
	out.Only(func(i int) bool {
		key, _ := out.At(i)
		_, again := last[key.String()]
		return !r.all && !again && !r.names[key.String()]
	})
	out.Join(r.Objects)
	out.Gaps = r.gapsOnto(prev, last)
	return out
}

// gapsOnto returns the gaps of the kind: the new gaps, and the old gaps of other objects. A
// gap of the whole kind stays, unless it is a single kind.
func (r *refreshed) gapsOnto(prev *blocks.Snapshot, read map[string]int) []blocks.Gap {
	out := slices.Clone(r.Gaps)
	for _, g := range prev.Gaps {
		_, decoded := read[g.Name]
		switch {
		case r.all || g.Resource != r.Kind.Resource:
		case g.Whole() && r.Kind.Single:
		case !g.Whole() && (r.names[g.Name] || decoded):
		default:
			out = append(out, g)
		}
	}
	slices.SortFunc(out, blocks.CompareGaps)
	return slices.Compact(out)
}
