package source

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// An objectKey names an object among those of its kind.
type objectKey struct{ namespace, name string }

// A column is the store of one kind: its objects as records in canonical order,
// shared with the snapshots made of them and never changed in place, and beside
// them the few that have changed since. Nothing is indexed: a thousand changes cost
// one walk over the records when the next snapshot is made, and memory holds each
// record once.
type column interface {
	// replace takes the objects of a list in the place of all others.
	replace(*part)
	// put stores what an object has become: the record that a part holds, or none.
	put(objectKey, *part)
	// fill hands out all records.
	fill(*part)
	len() int
}

type records[T any] struct {
	in      func(*part) *[]T
	key     func(*T) objectKey
	compare func(a, b *T) int

	base    []T
	changed map[objectKey]*T // nil: gone
}

func (c *records[T]) replace(p *part) {
	all := *c.in(p)
	slices.SortStableFunc(all, func(a, b T) int { return c.compare(&a, &b) })
	c.base, c.changed = slices.Clip(all), nil
}

func (c *records[T]) put(key objectKey, p *part) {
	var now *T
	if some := *c.in(p); len(some) > 0 {
		now = &some[len(some)-1]
	}
	if c.changed == nil {
		c.changed = map[objectKey]*T{}
	}
	c.changed[key] = now
	if len(c.changed) > max(1000, len(c.base)/4) {
		c.merge()
	}
}

func (c *records[T]) fill(p *part) {
	c.merge()
	*c.in(p) = c.base
}

func (c *records[T]) len() int { return len(c.base) + len(c.changed) }

// merge makes new records of the old ones and the changes.
func (c *records[T]) merge() {
	if len(c.changed) == 0 {
		return
	}
	fresh := make([]*T, 0, len(c.changed))
	for _, o := range c.changed {
		if o != nil {
			fresh = append(fresh, o)
		}
	}
	slices.SortFunc(fresh, c.compare)
	all := make([]T, 0, len(c.base)+len(fresh))
	for i := range c.base {
		old := &c.base[i]
		if _, again := c.changed[c.key(old)]; again {
			continue
		}
		for len(fresh) > 0 && c.compare(fresh[0], old) < 0 {
			all, fresh = append(all, *fresh[0]), fresh[1:]
		}
		all = append(all, *old)
	}
	for _, o := range fresh {
		all = append(all, *o)
	}
	c.base, c.changed = slices.Clip(all), nil
}

// newColumn makes the store of a kind.
func newColumn(res blocks.Resource) column {
	switch res {
	case blocks.Pools:
		return named(func(p *part) *[]blocks.Pool { return &p.pools }, func(o *blocks.Pool) *blocks.Meta { return &o.Meta })
	case blocks.Blocks:
		c := named(func(p *part) *[]blocks.Block { return &p.blocks }, func(o *blocks.Block) *blocks.Meta { return &o.Meta })
		c.compare = blocks.CompareBlocks
		return c
	case blocks.Affinities:
		c := named(func(p *part) *[]blocks.Affinity { return &p.affinities }, func(o *blocks.Affinity) *blocks.Meta { return &o.Meta })
		c.compare = blocks.CompareAffinities
		return c
	case blocks.Handles:
		return named(func(p *part) *[]blocks.Handle { return &p.handles }, func(o *blocks.Handle) *blocks.Meta { return &o.Meta })
	case blocks.Reservations:
		return named(func(p *part) *[]blocks.Reservation { return &p.reservations }, func(o *blocks.Reservation) *blocks.Meta { return &o.Meta })
	case blocks.Nodes:
		return named(func(p *part) *[]blocks.Node { return &p.nodes }, func(o *blocks.Node) *blocks.Meta { return &o.Meta })
	case blocks.Pods:
		return &records[blocks.Workload]{
			in:      func(p *part) *[]blocks.Workload { return &p.workloads },
			key:     func(o *blocks.Workload) objectKey { return objectKey{o.Namespace, o.Name} },
			compare: blocks.CompareWorkloads,
		}
	case blocks.VMs:
		return virtualMachines(func(p *part) *[]blocks.VirtualMachine { return &p.vms })
	case blocks.VMInstances:
		return virtualMachines(func(p *part) *[]blocks.VirtualMachine { return &p.vmInstances })
	case blocks.Namespaces:
		return named(func(p *part) *[]blocks.Namespace { return &p.namespaces }, func(o *blocks.Namespace) *blocks.Meta { return &o.Meta })
	case blocks.BGPPeers:
		return named(func(p *part) *[]blocks.BGPPeer { return &p.peers }, func(o *blocks.BGPPeer) *blocks.Meta { return &o.Meta })
	case blocks.BGPFilters:
		return named(func(p *part) *[]blocks.BGPFilter { return &p.filters }, func(o *blocks.BGPFilter) *blocks.Meta { return &o.Meta })
	case blocks.IPAMConfigs:
		return named(func(p *part) *[]blocks.IPAMConfig { return &p.ipam }, func(o *blocks.IPAMConfig) *blocks.Meta { return &o.Meta })
	case blocks.ClusterInfos:
		return named(func(p *part) *[]blocks.ClusterInfo { return &p.infos }, func(o *blocks.ClusterInfo) *blocks.Meta { return &o.Meta })
	case blocks.ControllerConfig:
		return named(func(p *part) *[]blocks.ControllersConfig { return &p.controllers }, func(o *blocks.ControllersConfig) *blocks.Meta { return &o.Meta })
	case blocks.FelixConfigs:
		return named(func(p *part) *[]blocks.FelixConfig { return &p.felix }, func(o *blocks.FelixConfig) *blocks.Meta { return &o.Meta })
	case blocks.BGPConfigs:
		return named(func(p *part) *[]blocks.BGPConfig { return &p.bgp }, func(o *blocks.BGPConfig) *blocks.Meta { return &o.Meta })
	}
	panic("no records of " + string(res))
}

func virtualMachines(in func(*part) *[]blocks.VirtualMachine) column {
	return &records[blocks.VirtualMachine]{
		in:      in,
		key:     func(o *blocks.VirtualMachine) objectKey { return objectKey{o.Namespace, o.Name} },
		compare: blocks.CompareVirtualMachines,
	}
}

// named makes the store of a kind whose objects have no namespace and are in the
// order of their names.
func named[T any](in func(*part) *[]T, meta func(*T) *blocks.Meta) *records[T] {
	return &records[T]{
		in:      in,
		key:     func(o *T) objectKey { return objectKey{"", meta(o).Name} },
		compare: func(a, b *T) int { return blocks.CompareMeta(meta(a), meta(b)) },
	}
}
