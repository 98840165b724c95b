package blocks

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Contradiction explains why a dump must lack objects of a kind: other objects refer to many
// objects of the kind that are missing. It returns "" if they do not.
func (s *Snapshot) Contradiction(r Resource) string {
	why := map[Resource]func() string{
		Handles: s.handlesNamed, Pools: s.poolsOfBlocks,
		Affinities: func() string { return cmp.Or(s.affinitiesNeeded(), s.affinityJoined()) },
		Nodes:      func() string { return cmp.Or(s.nodesNamed(), s.partLeftOut(), s.nodeLabelsLeftOut()) },
		Pods: func() string {
			return cmp.Or(s.podsNamed(), s.calicoNodes(), s.nodesAgree(), s.podJoined(), s.podsOld())
		},
		Blocks: func() string {
			return cmp.Or(s.addressesUsed(), s.ownersConfirmed(), s.blockJoined(), s.blocksNamed(), s.attributesLeftOut(), s.nullsLeftOut(), s.ownersLeftOut(), firstOf(s.blockOlder()), firstOf(s.blocksOld()))
		},
	}[r]
	if why == nil {
		return ""
	}
	return why()
}

// handlesNamed counts the handles that blocks name. A third suffices if most nodes lack some, and
// fewer if the beginning or the end of the list is missing: handles have random names.
func (s *Snapshot) handlesNamed() string {
	const format = "the files hold %d of the %d handles that blocks name"
	exists, refs, nodes := make(map[string]bool, len(s.Handles)), references{}, map[string]*references{}
	var names, missing []string
	for _, h := range s.Handles {
		if exists[h.ID] = true; ofContainer(h.ID) {
			names = append(names, h.ID)
		}
	}
	for i := range s.Blocks {
		on := nodes[s.Blocks[i].Owner.Node()]
		if on == nil {
			on = &references{}
			nodes[s.Blocks[i].Owner.Node()] = on
		}
		for j := range s.Blocks[i].Attributes {
			if a := &s.Blocks[i].Attributes[j]; a.Handle != "" && !a.Cooling() && !a.WindowsReserved() {
				on.add(exists[a.Handle], a.Handle)
				if refs.add(exists[a.Handle], a.Handle); !exists[a.Handle] && ofContainer(a.Handle) {
					missing = append(missing, a.Handle)
				}
			}
		}
	}
	least := mostOf
	if scattered(nodes) {
		least = thirdOf
	}
	if why := refs.bulk(manyOf, least, format); why != "" || !cutOff(names, missing) {
		return why
	}
	return refs.bulk(manyOf, 0, "the beginning or end of the list is missing: "+format)
}

// affinitiesNeeded counts the affinities of nodes to their blocks, also of each family: affinities have
// a label with it.
func (s *Snapshot) affinitiesNeeded() string {
	type claim struct {
		cidr  Prefix
		owner Owner
	}
	exists, refs, families := map[claim]bool{}, references{}, map[Family]*references{IPv4: {}, IPv6: {}}
	for i := range s.Affinities {
		exists[claim{s.Affinities[i].CIDR, s.Affinities[i].Owner}] = true
	}
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.Owner.Node() != "" && !b.SoftDeleted {
			name := fmt.Sprintf("that of %s to %s", b.Owner.Node(), b.CIDR)
			refs.add(exists[claim{b.CIDR, b.Owner}], name)
			families[b.Family()].add(exists[claim{b.CIDR, b.Owner}], name)
		}
	}
	for _, g := range s.Unreadable(Blocks) { // an unreadable block may lack its affinity, too
		if refs.missing > 0 && !exists[claim{g.Prefix, g.Owner}] {
			refs.missing++
		}
	}
	const format = "the files hold %d of the %d affinities of nodes to their "
	return cmp.Or(refs.bulk(fewOf, mostOf, format+"blocks"), families[IPv4].bulk(fewOf, mostOf, format+"IPv4 blocks"), families[IPv6].bulk(fewOf, mostOf, format+"IPv6 blocks"))
}

// poolsOfBlocks counts the pools of nodes' blocks. When Calico's clients delete a pool, they take its
// blocks from their nodes (libcalico-go clientv3/ippool.go, Delete).
func (s *Snapshot) poolsOfBlocks() string {
	var refs references
	for i := range s.Blocks {
		if b := &s.Blocks[i]; !b.SoftDeleted && b.Owner.Node() != "" {
			found := slices.ContainsFunc(s.Pools, func(p Pool) bool { return p.CIDR.Overlaps(b.CIDR) })
			refs.add(found, fmt.Sprintf("that of %s of %s", b.CIDR, b.Owner.Node()))
		}
	}
	return cmp.Or(s.sizeLeftOut(), refs.bulk(fewOf, mostOf, "the files hold the pools of %d of the %d blocks of nodes"))
}

// sizeLeftOut names a pool without a block size if all of its blocks differ from Calico's default
// size. Calico's clients always write the size, and the API server rejects changes of it.
func (s *Snapshot) sizeLeftOut() string {
	for i := range s.Pools {
		p := &s.Pools[i]
		if !p.DefaultSize {
			continue
		}
		in, other := 0, 0
		for j := range s.Blocks {
			if cidr := s.Blocks[j].CIDR; p.CIDR.Overlaps(cidr) {
				if in++; cidr.Bits() != p.BlockSize {
					other++
				}
			}
		}
		if in > 0 && in == other {
			return fmt.Sprintf("pool %s has no blockSize, and none of its blocks has the default, /%d", p.Name, p.BlockSize)
		}
	}
	return ""
}

// ownersConfirmed counts the blocks of confirmed affinities. Calico removes the owner of a block only
// while its affinity is pending deletion.
func (s *Snapshot) ownersConfirmed() string {
	owned, refs := map[Prefix]bool{}, references{}
	for i := range s.Blocks {
		owned[s.Blocks[i].CIDR] = s.Blocks[i].Owner != Owner{}
	}
	for i := range s.Affinities {
		a := &s.Affinities[i]
		if has, exists := owned[a.CIDR]; exists && a.Effective() == Confirmed && !a.SoftDeleted {
			refs.add(has, fmt.Sprintf("%s of %s", a.CIDR, a.Owner.Name))
		}
	}
	return refs.bulk(fewOf, mostOf, "the files hold %d of the %d blocks with owners that affinities name")
}

// nodesNamed counts the nodes of Ready pods. Pods do not stay Ready for long when their node is
// deleted, except on a machine that cannot be reached.
func (s *Snapshot) nodesNamed() string {
	exists, seen, refs := map[string]bool{}, map[string]bool{}, references{}
	for i := range s.Nodes {
		exists[s.Nodes[i].Name] = true
	}
	for _, w := range s.Workloads {
		if w.Ready && w.Node != "" && !seen[w.Node] {
			seen[w.Node] = true
			refs.add(exists[w.Node], w.Node)
		}
	}
	return refs.bulk(fewOf-1, thirdOf, "the files hold %d of the %d nodes that run Ready pods")
}

// podsNamed counts the pods that blocks name. Leaked addresses name pods that no longer exist, so
// missing pods by themselves prove nothing. A dump lacks pods if it has none of the named ones, or if
// all its pods run on one node while blocks name many pods of at least two other Ready nodes.
func (s *Snapshot) podsNamed() string {
	const format = "the files hold %d of the %d pods that blocks name"
	exists, onNode, idle := make(map[Key]bool, len(s.Workloads)), map[string]bool{}, map[string]*references{}
	for _, w := range s.Workloads {
		exists[w.Key()] = true
		if w.Node != "" {
			onNode[w.Node] = true
		}
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Ready && !n.Unschedulable && !onNode[n.Name] {
			idle[n.Name] = &references{}
		}
	}
	var all references
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			a := &s.Blocks[i].Attributes[j]
			if a.Pod == "" || a.Cooling() {
				continue
			}
			name := Key{a.Namespace, a.Pod}
			all.add(exists[name], "pod "+name.String())
			if on := idle[a.Node]; on != nil {
				on.add(false, name.String()+" or any other pod of node "+a.Node)
			}
		}
	}
	var lack []string
	for _, node := range slices.Sorted(maps.Keys(idle)) {
		if why := idle[node].bulk(manyOf, mostOf, format+" on one node"); why != "" {
			lack = append(lack, why)
		}
	}
	if len(lack) > 1 && len(onNode) == 1 {
		return lack[0]
	}
	if why := all.bulk(manyOf, mostOf, format); all.found == 0 && len(s.Workloads) > 0 && why != "" {
		return why
	}
	if label := s.sharedLabel(); label != "" {
		return all.bulk(manyOf, thirdOf, "all pods have the label "+label+", and "+format)
	}
	return ""
}

// sharedLabel returns a label that all pods have. A whole cluster has no such label, so a selector
// was used. If the pods share only a key, it returns the key; if they share none, "".
func (s *Snapshot) sharedLabel() string {
	if len(s.Workloads) < 2 {
		return ""
	}
	shared := maps.Clone(s.Workloads[0].Labels)
	for _, w := range s.Workloads {
		for key, value := range shared {
			if other, has := w.Labels[key]; !has {
				delete(shared, key)
			} else if other != value {
				shared[key] = ""
			}
		}
	}
	if len(shared) == 0 {
		return ""
	}
	label := slices.Min(slices.Collect(maps.Keys(shared)))
	if value := shared[label]; value != "" {
		label += "=" + value
	}
	return label
}

// addressesUsed counts the addresses that Calico assigned to pods: those outside the nodes'
// podCIDRs, as in [Snapshot.KeptElsewhere].
func (s *Snapshot) addressesUsed() string {
	ranges, recorded, refs := map[string]*Node{}, make(map[netip.Addr]bool, len(s.Workloads)), references{}
	for i := range s.Nodes {
		ranges[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for i := range s.Blocks {
		for ordinal, attributes := range s.Blocks[i].Ordinals {
			if attributes >= 0 {
				recorded[s.Blocks[i].Address(ordinal)] = true
			}
		}
	}
	for _, w := range s.Workloads {
		n := ranges[w.Node]
		for _, a := range w.AnnotationIPs {
			if w.Live() && n != nil && !n.AssignsPods(a) && !w.Extras().NoIPAM {
				refs.add(recorded[a], fmt.Sprintf("%s of pod %s", a, w.FullName()))
			}
		}
	}
	return refs.bulk(manyOf, mostOf, "the blocks record %d of the %d addresses of pods")
}
