package source

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// snapshot makes a snapshot of all that was read.
func (f *fileReader) snapshot(paths []string) (*blocks.Snapshot, error) {
	if f.objects == 0 {
		return nil, f.nothing(paths)
	}
	for _, objects := range f.ignoredKinds() {
		f.warn("ignored %s: not part of an audit", objects)
	}
	if f.info.mixed {
		f.warn("the files hold %d snapshots of different times, which are read as one", f.info.snapshots)
	}
	group, reason := f.chooseGroup()
	p := f.merge(group)
	s := p.snapshot()
	s.Cluster.Datastore = "files"
	s.Cluster.APIGroup, s.Cluster.APIGroupReason = group, reason
	s.Cluster.TakenAt = f.opts.At.UTC()
	if f.opts.At.IsZero() {
		s.Cluster.TakenAt = f.info.takenAt
	}
	if s.Cluster.TakenAt.IsZero() {
		s.Cluster.TakenAt = f.newest
	}
	f.addMissing(s)
	// A dump of one kind alone, or of neither, does not tell whether somebody left the
	// other out, or the cluster has none.
	setVMsKnown(s, func(r blocks.Resource) bool { return f.info.resources[r] || p.holds(r) })
	f.opts.Record.readWhole(f.info.resources)
	s.Sort()
	return s, nil
}

// nothing says that the files hold nothing to audit, and what else they hold.
func (f *fileReader) nothing(paths []string) error {
	text := strings.Join(paths, ", ") + ": no object that an audit reads"
	if len(f.ignored) > 0 {
		text += ", only " + strings.Join(f.ignoredKinds(), ", ")
	}
	if len(f.info.gaps) > 0 {
		text += "; " + f.info.gaps[0].String()
	}
	return errors.New(text)
}

func (f *fileReader) warn(format string, args ...any) {
	if f.opts.Warn != nil {
		f.opts.Warn(fmt.Sprintf(format, args...))
	}
}

// ignoredKinds says how many objects of which kinds were ignored.
func (f *fileReader) ignoredKinds() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(f.ignored)) {
		name, version, _ := strings.Cut(key, " ")
		n := f.ignored[key]
		text := fmt.Sprintf("%d %s object", n, name)
		if n > 1 {
			text += "s"
		}
		if slices.ContainsFunc(kinds, func(k *kind) bool { return slices.Contains(k.names, name) }) {
			text += " of " + version // another than the one that is read
		}
		out = append(out, text)
	}
	return out
}

// chooseGroup decides which API group's objects to read where files hold both,
// as they do when Calico's aggregated API was dumped beside its CRDs, or during
// a migration. The rule is that of a live cluster.
func (f *fileReader) chooseGroup() (group, reason string) {
	crd, native := !f.crd.empty(), !f.native.empty()
	switch g := f.info.apiGroup; {
	case g == groupCRD || g == groupNative:
		return g, cmp.Or(f.info.reason, "recorded when the cluster was read")
	case crd && native && f.crd.holds(blocks.Blocks):
		return groupCRD, "the files hold objects of both API groups: " + groupCRD + " counts, as Calico reads it while it is there"
	case crd && native && f.native.holds(blocks.Blocks):
		return groupNative, "the files hold objects of both API groups, and blocks of " + groupNative + " alone"
	case crd && native:
		return groupCRD, "the files hold objects of both API groups: " + groupCRD + " counts, as Calico reads it while it is there"
	case crd:
		return groupCRD, "the files hold objects of this API group alone"
	case native:
		return groupNative, "the files hold objects of this API group alone"
	}
	return "", ""
}

// merge joins the objects of all groups. Of a kind that the chosen group has
// objects of, those of the other group are left out; of another kind, such as
// pools that were dumped through the aggregated API, they are taken.
func (f *fileReader) merge(group string) *part {
	chosen, other := &f.crd, &f.native
	if group == groupNative {
		chosen, other = other, chosen
	}
	out := &part{
		pools:        merged(f, blocks.Pools, chosen.pools, other.pools),
		blocks:       merged(f, blocks.Blocks, chosen.blocks, other.blocks),
		affinities:   merged(f, blocks.Affinities, chosen.affinities, other.affinities),
		handles:      merged(f, blocks.Handles, chosen.handles, other.handles),
		reservations: merged(f, blocks.Reservations, chosen.reservations, other.reservations),
		peers:        merged(f, blocks.BGPPeers, chosen.peers, other.peers),
		filters:      merged(f, blocks.BGPFilters, chosen.filters, other.filters),
		ipam:         merged(f, blocks.IPAMConfigs, chosen.ipam, other.ipam),
		infos:        merged(f, blocks.ClusterInfos, chosen.infos, other.infos),
		controllers:  merged(f, blocks.ControllerConfig, chosen.controllers, other.controllers),
		felix:        merged(f, blocks.FelixConfigs, chosen.felix, other.felix),
		bgp:          merged(f, blocks.BGPConfigs, chosen.bgp, other.bgp),
		nodes:        merged(f, blocks.Nodes, f.core.nodes, nil),
		workloads:    merged(f, blocks.Pods, f.core.workloads, nil),
		namespaces:   merged(f, blocks.Namespaces, f.core.namespaces, nil),
		vms:          merged(f, blocks.VMs, f.core.vms, nil),
		vmInstances:  merged(f, blocks.VMInstances, f.core.vmInstances, nil),
		gaps:         f.core.gaps,
	}
	out.gaps = append(out.gaps, chosen.gaps...)
	for _, g := range other.gaps {
		if !chosen.holds(g.Resource) {
			out.gaps = append(out.gaps, g)
		}
	}
	return out
}

// merged returns the objects of the chosen group, or of the other one if that
// alone has any, each object once.
func merged[T any](f *fileReader, res blocks.Resource, chosen, other []T) []T {
	if len(chosen) == 0 {
		return once(f, res, other)
	}
	chosen = once(f, res, chosen)
	if len(other) > 0 {
		have := map[string]bool{}
		for i := range chosen {
			name, _ := identity(&chosen[i])
			have[name] = true
		}
		missing := 0
		for i := range other {
			if name, _ := identity(&other[i]); !have[name] {
				missing++
			}
		}
		if missing > 0 {
			f.warn("left out %d %s that only the other API group has", missing, res)
		}
	}
	return chosen
}

// once returns each object once: of several with one name, the newest.
func once[T any](f *fileReader, res blocks.Resource, objects []T) []T {
	at := make(map[string]int, len(objects))
	out := objects[:0]
	var twice []string // under different UIDs, which one cluster has not at one time
	for i := range objects {
		name, meta := identity(&objects[i])
		j, seen := at[name]
		if !seen {
			at[name] = len(out)
			out = append(out, objects[i])
			continue
		}
		_, have := identity(&out[j])
		if have.UID != meta.UID && have.UID != "" && meta.UID != "" {
			twice = append(twice, name)
		}
		if !newer(have, meta) {
			out[j] = objects[i]
		}
	}
	switch n := len(twice); {
	case n == 1:
		f.warn("%s %q stands in the files twice, with different UIDs: the newer one counts", res, twice[0])
	case n > 1:
		f.warn("%s %q and %d more stand in the files twice, with different UIDs: the newer one of each counts", res, twice[0], n-1)
	}
	return out
}

// newer tells whether a was written after b, by resource version. Versions that
// do not tell leave it to the order of the files.
func newer(a, b *blocks.Meta) bool {
	x, err1 := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, err2 := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return err1 == nil && err2 == nil && x > y
}

// identity returns the name by which an object is told from others of its kind.
func identity(object any) (string, *blocks.Meta) {
	switch o := object.(type) {
	case *blocks.Pool:
		return o.Name, &o.Meta
	case *blocks.Block:
		return o.Name, &o.Meta
	case *blocks.Affinity:
		return o.Name, &o.Meta
	case *blocks.Handle:
		return o.Name, &o.Meta
	case *blocks.Reservation:
		return o.Name, &o.Meta
	case *blocks.Node:
		return o.Name, &o.Meta
	case *blocks.Workload:
		return o.FullName(), &o.Meta
	case *blocks.VirtualMachine:
		return o.FullName(), &o.Meta
	case *blocks.Namespace:
		return o.Name, &o.Meta
	case *blocks.BGPPeer:
		return o.Name, &o.Meta
	case *blocks.BGPFilter:
		return o.Name, &o.Meta
	case *blocks.IPAMConfig:
		return o.Name, &o.Meta
	case *blocks.ClusterInfo:
		return o.Name, &o.Meta
	case *blocks.ControllersConfig:
		return o.Name, &o.Meta
	case *blocks.FelixConfig:
		return o.Name, &o.Meta
	case *blocks.BGPConfig:
		return o.Name, &o.Meta
	}
	panic(fmt.Sprintf("source: no identity for %T", object))
}

// addMissing adds gaps for kinds that no cluster with blocks is without, and
// that the files do not hold.
func (f *fileReader) addMissing(s *blocks.Snapshot) {
	s.Gaps = append(s.Gaps, f.info.gaps...)
	if len(s.Blocks) == 0 && len(s.Unreadable(blocks.Blocks)) == 0 {
		if _, known := s.Missing(blocks.Blocks); !known && !f.info.resources[blocks.Blocks] && wantsBlocks(s) {
			s.Gaps = append(s.Gaps, blocks.Gap{Resource: blocks.Blocks, Reason: "no IPAMBlock in the files, though what they hold belongs to blocks"})
		}
		return
	}
	missing := func(res blocks.Resource, name string, found int, reason string) {
		_, known := s.Missing(res)
		if found == 0 && !known && !f.info.resources[res] && len(s.Unreadable(res)) == 0 {
			s.Gaps = append(s.Gaps, blocks.Gap{Resource: res, Reason: "no " + name + " in the files" + reason})
		}
	}
	missing(blocks.Nodes, "Node", len(s.Nodes), "")
	missing(blocks.Pods, "Pod", len(s.Workloads), "")
	missing(blocks.Pools, "IPPool", len(s.Pools), "")
	if slices.ContainsFunc(s.Pools, func(p blocks.Pool) bool { return p.NamespaceSelector != "" }) {
		missing(blocks.Namespaces, "Namespace", len(s.Namespaces), ", though a pool selects namespaces by label")
	}
	if slices.ContainsFunc(s.BGPPeers, func(p blocks.BGPPeer) bool { return len(p.Filters) > 0 }) {
		missing(blocks.BGPFilters, "BGPFilter", len(s.BGPFilters), ", though a BGPPeer names one")
	}
	f.warnMissing(s)
}

// fewWithoutBlock is up to how many objects that belong to blocks are believed
// to have lost theirs; beyond it, the blocks were not dumped.
const fewWithoutBlock = 3

// wantsBlocks tells whether files without any block hold so much that belongs to
// blocks that somebody must have left the blocks out.
func wantsBlocks(s *blocks.Snapshot) bool {
	if len(s.Affinities) > fewWithoutBlock || len(s.Handles) > fewWithoutBlock {
		return true
	}
	addressed := 0
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Live() && len(w.AnnotationIPs) > 0 {
			addressed++
		}
	}
	return addressed > fewWithoutBlock
}

// warnMissing points out kinds that a cluster may be without, but whose absence
// more likely means that nobody dumped them, unless the snapshot command recorded
// that it read them.
func (f *fileReader) warnMissing(s *blocks.Snapshot) {
	if len(s.Affinities) == 0 && !f.info.resources[blocks.Affinities] && slices.ContainsFunc(s.Blocks, func(b blocks.Block) bool { return b.Owner.Node() != "" }) {
		f.warn("no BlockAffinity in the files, though blocks have owners: were blockaffinities left out?")
	}
	if len(s.Handles) == 0 && !f.info.resources[blocks.Handles] && slices.ContainsFunc(s.Blocks, func(b blocks.Block) bool {
		return slices.ContainsFunc(b.Attributes, func(a blocks.Attributes) bool { return a.HasHandle })
	}) {
		f.warn("no IPAMHandle in the files, though addresses have handles: were ipamhandles left out?")
	}
	if len(s.Namespaces) == 0 && len(s.Workloads) > 0 && len(s.Pools) > 1 && !f.info.resources[blocks.Namespaces] {
		f.warn("no Namespace in the files: which pools namespaces ask for by annotation is not known")
	}
}

// empty tells whether nothing was read.
func (p *part) empty() bool { return len(p.gaps) == 0 && slices.Max(p.size()) == 0 }

// holds tells whether anything of a resource was read.
func (p *part) holds(res blocks.Resource) bool {
	for _, g := range p.gaps {
		if g.Resource == res {
			return true
		}
	}
	switch res {
	case blocks.Pools:
		return len(p.pools) > 0
	case blocks.Blocks:
		return len(p.blocks) > 0
	case blocks.Affinities:
		return len(p.affinities) > 0
	case blocks.Handles:
		return len(p.handles) > 0
	case blocks.Reservations:
		return len(p.reservations) > 0
	case blocks.BGPPeers:
		return len(p.peers) > 0
	case blocks.BGPFilters:
		return len(p.filters) > 0
	case blocks.IPAMConfigs:
		return len(p.ipam) > 0
	case blocks.ClusterInfos:
		return len(p.infos) > 0
	case blocks.ControllerConfig:
		return len(p.controllers) > 0
	case blocks.FelixConfigs:
		return len(p.felix) > 0
	case blocks.BGPConfigs:
		return len(p.bgp) > 0
	case blocks.Nodes:
		return len(p.nodes) > 0
	case blocks.Pods:
		return len(p.workloads) > 0
	case blocks.Namespaces:
		return len(p.namespaces) > 0
	case blocks.VMs:
		return len(p.vms) > 0
	case blocks.VMInstances:
		return len(p.vmInstances) > 0
	}
	return false
}
