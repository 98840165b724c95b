package blocks

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// References that two kinds confirm, or that lead to objects of several nodes, count even if few
// are missing. Deletions by hand remove single objects, or the objects of one node.

// sandboxes returns the handles by container, which are named NETWORK.CONTAINER.
func (s *Snapshot) sandboxes() map[string]*Handle {
	out := make(map[string]*Handle, len(s.Handles))
	for _, h := range s.Handles {
		out[h.ID[strings.LastIndexByte(h.ID, '.')+1:]] = h
	}
	return out
}

// ofContainer reports whether a handle has the random name of a container, and not that of a tunnel.
func ofContainer(handle string) bool { return len(handle)-strings.LastIndexByte(handle, '.') == 65 }

// blocksNamed counts the blocks that both a pod's address and the handle of its container name.
func (s *Snapshot) blocksNamed() string {
	handles, exists, counted, nodes, refs := s.sandboxes(), map[netip.Prefix]bool{}, map[netip.Prefix]bool{}, map[string]bool{}, references{}
	for i := range s.Blocks {
		exists[s.Blocks[i].CIDR] = true
	}
	owner := map[netip.Prefix]string{}
	for i := range s.Affinities {
		owner[s.Affinities[i].CIDR] = s.Affinities[i].Owner.Name
	}
	for _, w := range s.Workloads {
		h := handles[w.ContainerID]
		if w.ContainerID == "" || h == nil || h.SoftDeleted || !w.Live() {
			continue
		}
		for _, c := range h.Blocks {
			if c.Count == 0 || !slices.ContainsFunc(w.AnnotationIPs, c.CIDR.Contains) {
				continue
			}
			if !exists[c.CIDR] {
				nodes[cmp.Or(owner[c.CIDR], w.Node)] = true
			}
			if !counted[c.CIDR] {
				counted[c.CIDR] = true
				refs.add(exists[c.CIDR], fmt.Sprintf("%s of pod %s", c.CIDR, w.FullName()))
			}
		}
	}
	if len(nodes) < 2 {
		return ""
	}
	return refs.bulk(fewOf-1, thirdOf, "the files hold %d of the %d blocks that pods and their handles name")
}

// scattered reports whether three in four nodes, and at least two, lack some but not all of their
// references. Deletions by hand do not spread over all nodes and leave each some objects.
func scattered(nodes map[string]*references) bool {
	some, all := 0, 0
	for _, refs := range nodes {
		if refs.found+refs.missing >= fewOf {
			if all++; refs.found > 0 && refs.missing > 0 {
				some++
			}
		}
	}
	return some > 1 && 4*some >= 3*all
}

// cutOff reports whether every missing object sorts after, or before, every existing one in the API
// server's order: the list ends too early or begins too late. With ten of each, that happens by chance
// once in 92,378 cases.
func cutOff(exist, missing []string) bool {
	return len(exist) >= manyOf && len(missing) >= manyOf && (slices.Max(exist) < slices.Min(missing) || slices.Max(missing) < slices.Min(exist))
}

// calicoNodes counts the Ready nodes with blocks that run the pod of DaemonSet calico-node, which
// installs the plugin that claims blocks.
func (s *Snapshot) calicoNodes() string {
	runs, owns, refs := map[string]bool{}, map[string]bool{}, references{}
	for _, w := range s.Workloads {
		if w.OfDaemonSet() && w.Controller.Name == "calico-node" {
			runs[w.Node] = true
		}
	}
	for i := range s.Blocks {
		owns[s.Blocks[i].Owner.Node()] = true
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Ready && !n.Windows && owns[n.Name] {
			refs.add(runs[n.Name], "on "+n.Name)
		}
	}
	if refs.found == 0 {
		return ""
	}
	return refs.bulk(fewOf-1, thirdOf, "calico-node runs on %d of the %d nodes with blocks")
}

// ownersLeftOut explains that no allocation names a handle although the files hold many, or that none
// of the containers' allocations names a pod: Calico's CNI plugin records both for each pod.
func (s *Snapshot) ownersLeftOut() string {
	used, containers, handle, pod := 0, 0, false, false
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			if a := &s.Blocks[i].Attributes[j]; !a.Cooling() && !a.WindowsReserved() {
				used++
				if ofContainer(a.Handle) {
					containers++
				}
				handle, pod = handle || a.Handle != "", pod || a.Pod != "" || a.VM
			}
		}
	}
	switch {
	case !handle && min(used, len(s.Handles)) >= manyOf:
		return fmt.Sprintf("none of the %d allocations has a handle, and the files hold %d handles", used, len(s.Handles))
	case !pod && containers >= manyOf:
		return fmt.Sprintf("none of the allocations of %d containers names its pod", containers)
	}
	return ""
}

// attributesLeftOut names a block without attributes although its allocations refer to some.
func (s *Snapshot) attributesLeftOut() string {
	for i := range s.Blocks {
		if b := &s.Blocks[i]; len(b.Attributes) == 0 && slices.ContainsFunc(b.Ordinals, func(o int32) bool { return o != Free }) {
			return fmt.Sprintf("block %s has no attributes, and its allocations refer to them", b.CIDR)
		}
	}
	return ""
}

// nullsLeftOut names a block whose allocations lack exactly the free addresses, which are null.
func (s *Snapshot) nullsLeftOut() string {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		want, ok := Addresses(b.CIDR).Int()
		if free := len(b.Unallocated); ok && free > 0 && len(b.Ordinals)+free == want && !slices.Contains(b.Ordinals, Free) {
			return fmt.Sprintf("the allocations of block %s lack its %d free addresses, which are null: null values were left out", b.CIDR, free)
		}
	}
	return ""
}

// nodesAgree counts the pods that run on the node that the block records for their address. A pod
// never moves, so a difference means that nodes were renamed in the pods or in the blocks.
func (s *Snapshot) nodesAgree() string {
	type record struct {
		pod  Key
		node string
	}
	named, records, refs := map[Key]string{}, map[record]bool{}, references{}
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			if a := &s.Blocks[i].Attributes[j]; a.Pod != "" && a.Node != "" && !a.Cooling() && !a.VM {
				pod := Key{a.Namespace, a.Pod}
				named[pod], records[record{pod, a.Node}] = a.Node, true
			}
		}
	}
	for _, w := range s.Workloads {
		if node := named[w.Key()]; node != "" && w.Live() {
			refs.add(records[record{w.Key(), w.Node}], fmt.Sprintf("pod %s, which runs on %s but is recorded on %s", w.FullName(), w.Node, node))
		}
	}
	return refs.bulk(manyOf, mostOf, "%d of %d pods run on the node that blocks name")
}

// nodeLabelsLeftOut names a pool that selects nodes by label although no node has a label. Every
// kubelet labels its node.
func (s *Snapshot) nodeLabelsLeftOut() string {
	if len(s.Nodes) < 2 || slices.ContainsFunc(s.Nodes, func(n Node) bool { return len(n.Labels) > 0 }) {
		return ""
	}
	for i := range s.Pools {
		if p := &s.Pools[i]; !p.Disabled && p.NodeSelector != "" && p.NodeSelector != "all()" {
			return fmt.Sprintf("no node has a label, but pool %s selects nodes by label", p.Name)
		}
	}
	return ""
}

// newest returns the newest of the times; zero if one of them is missing.
func newest[T any](all []T, at func(*T) Time) (out Time) {
	for i := range all {
		t := at(&all[i])
		if t.IsZero() {
			return 0
		}
		if t.After(out) {
			out = t
		}
	}
	return out
}

// blocksOld returns the pods that use an unrecorded address and were created after the last write to any
// block or handle. Calico writes a block when it assigns an address.
func (s *Snapshot) blocksOld() iter.Seq2[*Workload, string] {
	return func(yield func(*Workload, string) bool) {
		written := newest(s.Blocks, func(b *Block) Time { return b.Written })
		if written.IsZero() {
			return
		}
		for _, h := range s.Handles {
			if h.Created.After(written) {
				written = h.Created
			}
		}
		ranges := map[string]*Node{}
		for i := range s.Nodes {
			ranges[s.Nodes[i].Name] = &s.Nodes[i]
		}
		for _, w := range s.Workloads {
			n := ranges[w.Node]
			if n == nil || !w.Live() || !w.Created.After(written) || w.Extras().NoIPAM {
				continue
			}
			for _, a := range w.AnnotationIPs {
				for i := range s.Blocks {
					if o, ok := s.Blocks[i].Ordinal(a); ok && !n.AssignsPods(a) && s.Blocks[i].Ordinals[o] == Free &&
						!yield(w, fmt.Sprintf("pod %s uses %s, and was created after the last write to any block: the files were written at different times", w.FullName(), a)) {
						return
					}
				}
			}
		}
	}
}

// lag is the longest time between the reads of one dump. Kubelets write their nodes more often.
const lag = 5 * time.Minute

// podsOld names a missing pod that blocks name and that has a handle created long after the last
// write to any pod or node.
func (s *Snapshot) podsOld() string {
	written := newest(s.Nodes, func(n *Node) Time { return n.Written })
	if written.IsZero() {
		return ""
	}
	exists, created := map[Key]bool{}, map[string]Time{}
	for _, w := range s.Workloads {
		exists[w.Key()] = true
		for _, t := range []Time{w.Created, w.Written} {
			if t.After(written) {
				written = t
			}
		}
	}
	for _, h := range s.Handles {
		created[h.ID] = h.Created
	}
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			a := &s.Blocks[i].Attributes[j]
			if pod := (Key{a.Namespace, a.Pod}); a.Pod != "" && !a.Cooling() && !exists[pod] && created[a.Handle].After(written.Add(lag)) {
				return fmt.Sprintf("the address of pod %s, which they do not hold, was assigned after the last write to any pod or node: the files were written at different times", pod)
			}
		}
	}
	return ""
}
