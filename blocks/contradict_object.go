package blocks

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
)

// If the middle of a text is missing, for example in a paste, it may still be valid YAML. The
// beginning of one object and the end of another then form one object, and all objects between them
// are missing.
const joined = "two objects are joined: is the middle of the file missing?"

// blockJoined describes a block whose object has the name of another block, if that other block is
// missing although an affinity or a pod's address needs it. A wrong name by itself proves nothing,
// because the spec identifies an object.
func (s *Snapshot) blockJoined() string {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		named := PrefixOfName(b.Name)
		if !named.IsValid() || named == b.CIDR || slices.ContainsFunc(s.Blocks, func(o Block) bool { return o.CIDR == named }) {
			continue
		}
		uses := func(w *Workload) bool {
			return w.Live() && slices.ContainsFunc(slices.Collect(w.Addresses), named.Contains)
		}
		if slices.ContainsFunc(s.Affinities, func(a Affinity) bool { return a.CIDR == named }) || slices.ContainsFunc(s.Workloads, uses) {
			return fmt.Sprintf("the object %s has the name of another block than its own, %s; %s", b.Name, b.CIDR, joined)
		}
	}
	return ""
}

// affinityJoined describes an affinity whose object has the name of another affinity, if that other
// affinity is missing although a block's owner needs it: see [AffinityName].
func (s *Snapshot) affinityJoined() string {
	needed := map[string]bool{}
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.Owner.Node() != "" {
			needed[AffinityName(b.Owner.Name, b.CIDR)] = true
		}
	}
	for i := range s.Affinities {
		delete(needed, AffinityName(s.Affinities[i].Owner.Name, s.Affinities[i].CIDR))
	}
	for i := range s.Affinities {
		if a := &s.Affinities[i]; needed[a.Name] {
			return fmt.Sprintf("the object %s has the name of another affinity than its own, of %s to %s; %s", a.Name, a.Owner.Name, a.CIDR, joined)
		}
	}
	return ""
}

// podJoined names a pod with different addresses in annotation and status. One is recorded for that
// pod, the other for a pod that the files lack.
func (s *Snapshot) podJoined() string {
	differ := func(w *Workload) bool { return len(w.StatusIPs) > 0 && !slices.Equal(w.AnnotationIPs, w.StatusIPs) }
	if !slices.ContainsFunc(s.Workloads, differ) {
		return ""
	}
	exists, owner := map[Key]bool{}, map[netip.Addr]Key{}
	for _, w := range s.Workloads {
		exists[w.Key()] = true
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		for ordinal, j := range b.Ordinals {
			if j >= 0 && int(j) < len(b.Attributes) && b.Attributes[j].Pod != "" {
				owner[b.Address(ordinal)] = Key{b.Attributes[j].Namespace, b.Attributes[j].Pod}
			}
		}
	}
	for _, w := range s.Workloads {
		for _, status := range w.StatusIPs {
			for _, annotation := range w.AnnotationIPs {
				a, b := owner[annotation], owner[status]
				if a == (Key{}) || b == (Key{}) || !w.Live() || annotation.Is4() != status.Is4() || slices.Contains(w.AnnotationIPs, status) {
					continue
				}
				if b == w.Key() {
					a, b = b, a
				}
				if a == w.Key() && !exists[b] {
					return fmt.Sprintf("pod %s has the address %s in an annotation and %s in its status, and one of them is recorded for pod %s, which the files lack; %s", a, annotation, status, b, joined)
				}
			}
		}
	}
	return ""
}

// partLeftOut names a node without a status or a spec that runs a Ready pod. The kubelet reports both
// the pod and the status, and the API server writes a spec, even if it is empty.
func (s *Snapshot) partLeftOut() string {
	ready := map[string]bool{}
	for _, w := range s.Workloads {
		ready[w.Node] = ready[w.Node] || w.Ready
	}
	for i := range s.Nodes {
		switch n := &s.Nodes[i]; {
		case !ready[n.Name]:
		case !n.Ready && !n.NotReady && n.AllocatablePods() == 0 && len(n.InternalIPs) == 0:
			return fmt.Sprintf("node %s has no status, and runs Ready pods", n.Name)
		case n.NoSpec:
			return fmt.Sprintf("node %s has no spec, and runs Ready pods", n.Name)
		}
	}
	return ""
}

// blockOlder returns the pods with an address that a block does not record because it was read before
// other files. Calico writes the handle before the block, so if the block is older than the handle and
// lacks the address, it was read before the address was recorded.
func (s *Snapshot) blockOlder() iter.Seq2[*Workload, string] {
	return func(yield func(*Workload, string) bool) {
		handles, at := s.sandboxes(), map[netip.Prefix]*Block{}
		for i := range s.Blocks {
			at[s.Blocks[i].CIDR] = &s.Blocks[i]
		}
		for _, w := range s.Workloads {
			h := handles[w.ContainerID]
			if w.ContainerID == "" || h == nil || !w.Live() {
				continue
			}
			for _, c := range h.Blocks {
				b := at[c.CIDR]
				free := func(a netip.Addr) bool {
					i, ok := b.Ordinal(a)
					return ok && b.Ordinals[i] == Free
				}
				if b != nil && c.Count > 0 && h.WrittenAfter(b.Pin) && slices.ContainsFunc(w.AnnotationIPs, free) &&
					!yield(w, fmt.Sprintf("pod %[3]s uses an address of block %[1]s under handle %[2]s, which is newer than the block: the files were written at different times", b.CIDR, h.ID, w.FullName())) {
					return
				}
			}
		}
	}
}

// firstOf returns the first reason.
func firstOf(pods iter.Seq2[*Workload, string]) string {
	for _, why := range pods {
		return why
	}
	return ""
}

// SetNewPodsAside turns pods that started while files were made into gaps: the blocks were read
// before. It does nothing if such a pod is older than the reads may be apart, or if they are more
// than a tenth, because then the blocks were read at another time.
func (s *Snapshot) SetNewPodsAside() {
	isNew := func(w *Workload) bool { return w.Created.Std().After(s.Cluster.TakenAt.Add(-lag)) }
	if !slices.ContainsFunc(s.Workloads, isNew) {
		return
	}
	aside := map[*Workload]bool{}
	for _, pods := range []iter.Seq2[*Workload, string]{s.blockOlder(), s.blocksOld()} {
		for w := range pods {
			if !isNew(w) {
				return
			}
			aside[w] = true
		}
	}
	if 10*len(aside) > len(s.Workloads) {
		return
	}
	s.Workloads = slices.DeleteFunc(s.Workloads, func(w *Workload) bool {
		if aside[w] {
			s.Gaps = append(s.Gaps, Gap{Resource: Pods, Name: w.FullName(), Reason: "it started while the files were written: the blocks were read before"})
		}
		return aside[w]
	})
}
