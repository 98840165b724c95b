package explain

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// blockRemedy says what would change the verdicts on a block.
func (x *explainer) blockRemedy(s *builder, b *state.Block) {
	defer x.findingRemedies(s)
	if b.Used == 0 {
		x.emptyRemedy(s, b)
		return
	}
	if x.FirstMissing(useReads) != nil || x.FirstMissing(state.ReleaseReads) != nil {
		return
	}
	owned, leaked := 0, 0
	for i := range b.Ordinals {
		if b.Ordinals[i] == blocks.Free {
			continue
		}
		if x.Classify(state.AllocationRef{Block: b, Ordinal: i}).Owned {
			owned++
		} else {
			leaked++
		}
	}
	var need string
	switch {
	case owned == 0:
		need = fmt.Sprintf("the %s that nothing seems to own %s released", phrase.Plural(leaked, "address"), beVerb(leaked))
	case leaked > 0:
		need = fmt.Sprintf("the %s in use %s released by their pods, and the %d that nothing seems to own by a repair", phrase.Plural(owned, "address"), beVerb(owned), leaked)
	default:
		need = fmt.Sprintf("the %s in use %s released", phrase.Plural(owned, "address"), beVerb(owned))
	}
	then := x.releaseIf(b, func(s *blocks.Snapshot, e *blocks.Block) {
		s.Cluster.TakenAt = s.Cluster.Taken().Later(lastTouch(b).Add(x.Grace)).Std()
		takeAll(e)
		s.Hosts = blocks.HostReading{}
		for i := range s.Workloads {
			if w := &s.Workloads[i]; slices.ContainsFunc(slices.Collect(w.Addresses), b.CIDR.Contains) {
				w.StatusIPs, w.AnnotationIPs, w.NetworkIPs = nil, nil, nil
			}
		}
		for i := range s.Nodes {
			s.Nodes[i].Tunnels = slices.DeleteFunc(slices.Clone(s.Nodes[i].Tunnels), func(t blocks.Tunnel) bool { return b.CIDR.Contains(t.Addr) })
		}
	})
	if !then.OK {
		s.remedy("in use", "once %s it is empty, and would still be held: %s", need, then.Held)
		return
	}
	s.remedy("in use", "once %s, and %s have passed, it could be released%s", need, phrase.Duration(x.Grace), x.cordonHint(b))
}

// beVerb is the verb for a number of things.
func beVerb(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// cordonHint says that pods that restart on the owner may take addresses of the
// block again.
func (x *explainer) cordonHint(b *state.Block) string {
	h := x.NodeState(b.Owner.Node())
	if h == nil || h.Node == nil || h.Node.Unschedulable {
		return ""
	}
	return fmt.Sprintf("; while %s is schedulable, new pods there may take more of it", h.Name)
}

// emptyRemedy says when a block without allocations may be released. It does not
// guess: it judges the state again as it would be, with time gone by or the node
// gone.
func (x *explainer) emptyRemedy(s *builder, b *state.Block) {
	const verdict = "block/empty"
	if b.Reclaimability.OK {
		s.remedy(verdict, "releasable until an address of it is assigned or anything else is written to it; from then on it must stay untouched for %s again", phrase.Duration(x.Grace))
		return
	}
	_, known := b.LastWrite()
	now := x.Cluster.TakenAt
	if due := lastTouch(b).Std().Add(x.Grace); known && !now.IsZero() && due.After(now) {
		then := x.releaseIf(b, func(s *blocks.Snapshot, _ *blocks.Block) { s.Cluster.TakenAt = due })
		if then.OK {
			s.remedy(verdict, "releasable at %s, when nothing has been written to it for %s", phrase.Time(due), phrase.Duration(x.Grace))
			return
		}
		s.remedy(verdict, "old enough at %s, and then still held: %s", phrase.Time(due), then.Held)
		now = due
	}
	withoutNode := func(s *blocks.Snapshot, _ *blocks.Block) {
		s.Cluster.TakenAt = now
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n blocks.Node) bool { return n.Name == b.Owner.Node() })
	}
	switch h := x.NodeState(b.Owner.Node()); {
	case b.Owner.Kind == blocks.VirtualOwner:
		s.remedy(verdict, "not to be released: services may take addresses of it at any time")
	case len(b.Faults) > 0:
		s.remedy(verdict, "releasable once what contradicts itself in it has been repaired")
	case b.SoftDeleted:
		s.remedy(verdict, "gone once the deletion that was begun is finished")
	case x.Info.Locked:
		s.remedy(verdict, "evaluated again once the datastore is unlocked: calicoctl datastore migrate unlock")
	case x.FirstMissing(state.ReleaseReads) != nil:
		s.remedy(verdict, "evaluated once this can be read: %s", x.FirstMissing(state.ReleaseReads).Resource)
	case !known:
		s.remedy(verdict, "evaluated once its last write is known: read the cluster itself, or files made with kubectl get --show-managed-fields")
	case h != nil && h.Node != nil && x.releaseIf(b, withoutNode).OK:
		s.remedy(verdict, "releasable once %s holds another usable block in the same pools, or is deleted", h.Name)
	}
}

// lastTouch is when a block was last written or claimed; the zero time if neither
// is known.
func lastTouch(b *state.Block) blocks.Time {
	at, _ := b.LastWrite()
	return at.Later(b.Claimed)
}

// releaseIf judges whether a block could be released in another state: that of
// edit, which gets a copy of the snapshot and its copy of the block.
func (x *explainer) releaseIf(b *state.Block, edit func(*blocks.Snapshot, *blocks.Block)) state.Reclaimability {
	s := x.Snapshot.Clone() // New sorts what it gets, and the lists of this State are shared
	same := func(e *blocks.Block) bool { return e.CIDR == b.CIDR && e.Name == b.Name && e.UID == b.UID }
	for i := range s.Blocks {
		if same(&s.Blocks[i]) {
			edit(s, &s.Blocks[i])
			break
		}
	}
	for _, e := range state.New(s, state.Options{Grace: x.Grace}).IPBlocks {
		if same(e.Block) {
			return e.Reclaimability
		}
	}
	return state.Reclaimability{}
}

// takeAll gives all addresses of a block back. It makes new slices: the old ones
// are shared.
func takeAll(b *blocks.Block) {
	n := len(b.Ordinals)
	b.Ordinals, b.Unallocated = make([]int32, n), make([]int32, n)
	for i := range n {
		b.Ordinals[i], b.Unallocated[i] = blocks.Free, int32(i)
	}
	b.Attributes, b.OrdinalSequences = nil, nil
}
