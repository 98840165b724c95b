package state

import (
	"cmp"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/audit/state/nodeset"
	"github.com/calico-audit/calico-audit/audit/state/selectors"
	"github.com/calico-audit/calico-audit/blocks"
)

// DefaultGrace is how long a state must have held before anything acts on it, unless set
// otherwise. Calico's own collector waits as long.
const DefaultGrace = 15 * time.Minute

// Options are the settings of an audit.
type Options struct {
	// Grace is how long a state must have held before it counts as lasting.
	// Zero means [DefaultGrace].
	Grace time.Duration
}

// State is a snapshot with indexes and shared verdicts. It is immutable once made.
type State struct {
	// Snapshot holds the objects read, in canonical order.
	*blocks.Snapshot
	Grace time.Duration
	// takenAt is when the snapshot was taken.
	takenAt blocks.Time
	// Pools, by name; IPBlocks, by CIDR; NodeStates, by name.
	Pools      []*Pool
	IPBlocks   []*Block
	NodeStates []*NodeState
	// Borrows are the borrowed addresses, in order.
	Borrows []*Borrow
	// Families are the address families in use: those in which a workload has an address. If no
	// workload has one and some wait, they are the pools' families.
	Families []blocks.Family
	// Reserved are the addresses that IPReservations exclude from assignment.
	Reserved blocks.ReservedSet
	// Routing predicts how routers treat traffic to blocks.
	Routing *affinity.Routing
	// Views are the host views, each with the facts that it proves.
	Views *hosts.Views

	// unreadable are the objects that could not be decoded, by resource.
	unreadable map[blocks.Resource][]blocks.Gap
	// unreadPod names a pod that could not be decoded at all, "" if there is none.
	unreadPod string
	// partial are the pods that were decoded in part ([blocks.Extras.Partial]). placeless are
	// those of them whose node could not be decoded: they may run on any node.
	partial, placeless []*blocks.Workload
	// terminated are the nodes whose machines the operator has confirmed are off.
	terminated []string

	// optional are the families that some live pod lacks, because it has an address only of the
	// other family.
	optional map[blocks.Family]bool
	// asked are the sets of pools that live pods ask for, without duplicates.
	asked [][]*Pool
	// otherIPAM are the pods whose addresses Calico's IPAM does not assign.
	otherIPAM OtherIPAM
	// poolsOf holds the pools of each CIDR, and poolBits the prefix lengths of these CIDRs.
	poolsOf    map[netip.Prefix][]*Pool
	poolBits   map[blocks.Family][]int
	nodeStates map[string]*NodeState
	uses       []use
	floats     map[netip.Addr][]*blocks.Workload
	spaces     map[string]*blocks.Namespace
	own        ownership
	tunnels    map[netip.Addr][]TunnelUse
	// nodeUses holds, for each deleted node with a tunnel address, another remaining use of the
	// node; "" if there is no other.
	nodeUses map[string]string
	// tunnelAddrs are the keys of tunnels, sorted.
	tunnelAddrs []netip.Addr
	deadline    *deadline
	// fates are the kernel's answers for borrowed addresses on their owners, if a host view
	// proves them. foreign are routes that drop traffic to blocks of other owners, and freeUses
	// are addresses in use that the datastore calls free. seconds are the namespaces that hold an
	// address besides its live owners.
	fates    map[*Borrow]hosts.Answer
	foreign  []*ForeignBlackhole
	freeUses []FreeUse
	seconds  map[netip.Addr][]hosts.Use
	// derived caches the results of [Derived] by type.
	derived *sync.Map
}

// Pool is an IPPool with its counts.
type Pool struct {
	*blocks.Pool
	Addrs blocks.Addrs
	Slots blocks.Slots
	// Releasable is how many slots would become free if every releasable block were released. It
	// is 0 and means unknown unless ReleasableKnown is true.
	Releasable      blocks.Count
	ReleasableKnown bool
	// Needed is how many blocks the nodes that the pool selects will need.
	Needed blocks.Count
	// unused is true if Calico's IPAM gave no pod of the cluster its address.
	unused bool
	// takeover are the empty blocks that Calico's allocator would give to a node other than their
	// owner. Slots.Allocatable includes them.
	takeover []*Block
	// takenFrom counts the takeover blocks by owner.
	takenFrom map[string]int
	// selected are the nodes that the pool's node selector matches, by index in NodeStates.
	selected nodeset.Set
	// demand compares the pool's blocks with the need of its nodes; nil if it has enough.
	demand *Demand
	// cutOff are the nodes that lack a block of the pool; waiting are the pods that lack an
	// address of it.
	cutOff  cutOff
	waiting []*blocks.Workload
	// Blocks are the blocks that lie in the pool or overlap it.
	Blocks []*Block
	// unreadable are the blocks that could not be decoded but whose CIDR is known.
	unreadable []*blocks.Block

	NodeSelection, NamespaceSelection *selectors.Selector
}

// Block is a block with the verdicts on it.
type Block struct {
	*blocks.Block
	// Pool is the most specific pool that the block lies in; nil if none.
	Pool *Pool
	// Used is the number of allocated ordinals.
	Used int
	// Faults are the contradictions within the block. A block with any is corrupt.
	Faults []string
	// Releasability is the verdict on an empty block; other blocks have none.
	Releasability Releasability

	// kinds holds the kind of use of each of the Attributes.
	kinds []UseKind
	// uses are the addresses in its CIDR that pods name.
	uses []use
}

// Usable reports whether addresses can be assigned from the block: it is neither soft-deleted nor
// corrupt.
func (b *Block) Usable() bool { return !b.SoftDeleted && len(b.Faults) == 0 }

// unused yields the addresses of a block that can be assigned: free, not reserved, and not used by
// a live pod that the block does not record.
func (st *State) unused(b *Block) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		touched := st.Reserved.Overlaps(b.CIDR)
		for i, o := range b.Ordinals {
			if o != blocks.Free {
				continue
			}
			addr := b.Address(i)
			used := touched && st.Reserved.Contains(addr) ||
				slices.ContainsFunc(namedBy(b.uses, addr), func(u use) bool { return st.podOf(u).MayBeLive() })
			if !used && !yield(addr) {
				return
			}
		}
	}
}

// Unused returns how many addresses of a block can be assigned.
func (st *State) Unused(b *Block) int {
	n := 0
	for range st.unused(b) {
		n++
	}
	return n
}

// hasFree reports whether Calico can assign an address of a block. It reads one object of each CIDR.
func (st *State) hasFree(b *Block) bool {
	for range st.unused(b) {
		return st.BlockObjects(b.CIDR) == 1
	}
	return false
}

// NodeState is a node, or a deleted node that still owns blocks.
type NodeState struct {
	Name string
	// Node is nil if the node no longer exists.
	Node *blocks.Node
	// Blocks are the blocks whose owner is the node.
	Blocks []*Block
	// Workloads are the pods bound to the node, without host-network pods.
	Workloads []*blocks.Workload
	// Affinities are the host's affinity objects.
	Affinities []*blocks.Affinity
	// Borrowed are the addresses that the node uses from other nodes' blocks. Lent are the
	// addresses of its own blocks that other nodes use.
	Borrowed, Lent []*Borrow
	// Schedulable reports whether pods of the pod network may start on the node. It is not out of
	// service, and either runs such pods already or is neither cordoned nor tainted.
	Schedulable bool
	// place is the node's index in NodeStates.
	place int
	// workloadPools are the pools that serve the node's workloads automatically.
	workloadPools []*Pool
	// BlockStatus holds the node's block status for each of State.Families.
	BlockStatus []*NodeBlockStatus
}

// Borrow is an address that is used on a node other than its block's owner.
type Borrow struct {
	Addr  netip.Addr
	Block *Block
	// Owner is the block's owner and User the node that uses the address.
	Owner, User string
	Attributes  *blocks.Attributes
	// Workload is the live pod that holds the address; nil if none was seen.
	Workload *blocks.Workload
	// Tunnel is true if a tunnel device has the address.
	Tunnel bool
	// VM is true for a virtual machine's address. Calico keeps it while the machine moves between
	// nodes, so it is borrowed permanently and on purpose. A restart does not end that.
	VM bool
}

// New builds the State of a snapshot. It sorts the snapshot and keeps it.
func New(s *blocks.Snapshot, o Options) *State {
	s.Sort()
	st := &State{Snapshot: s, takenAt: s.Cluster.Taken(), Grace: cmp.Or(o.Grace, DefaultGrace), deadline: &deadline{}, derived: &sync.Map{}, nodeStates: map[string]*NodeState{}, spaces: map[string]*blocks.Namespace{}}
	st.Reserved = blocks.NewReservedSet(s.Reservations)
	st.Routing = affinity.NewRouting(s)
	st.indexUnread()
	for i := range s.Namespaces {
		st.spaces[s.Namespaces[i].Name] = &s.Namespaces[i]
	}
	st.indexPools()
	st.indexBlocks()
	st.indexHosts()
	st.indexSelection()
	st.indexOwnership()
	st.indexUses()
	st.indexTunnels()
	st.findOtherIPAM()
	st.indexWorkloads()
	st.indexAsked()
	st.indexVanished()
	st.findBorrows()
	st.countPools()
	st.evaluateNodes()
	st.findCutOff()
	st.evaluateViews()
	st.evaluateEmptyBlocks()
	st.countReleasable()
	return st
}

// Derived returns the result of derive, computed once per type and state. It is for results that
// only some readers need, such as remedies.
func Derived[T any](st *State, derive func(*State) *T) *T {
	once, _ := st.derived.LoadOrStore(reflect.TypeFor[T](), sync.OnceValue(func() *T { return derive(st) }))
	return once.(func() *T)()
}

func (st *State) indexPools() {
	for i := range st.Snapshot.Pools {
		p := &st.Snapshot.Pools[i]
		st.Pools = append(st.Pools, &Pool{
			Pool:          p,
			NodeSelection: selectors.Parse(p.NodeSelector), NamespaceSelection: selectors.Parse(p.NamespaceSelector),
		})
	}
	st.poolsOf, st.poolBits = map[netip.Prefix][]*Pool{}, map[blocks.Family][]int{}
	for _, p := range st.Pools {
		st.poolsOf[p.CIDR.Masked()] = append(st.poolsOf[p.CIDR.Masked()], p)
		if bits := st.poolBits[p.Family()]; !slices.Contains(bits, p.CIDR.Bits()) {
			st.poolBits[p.Family()] = append(bits, p.CIDR.Bits())
		}
	}
}

func (st *State) indexBlocks() {
	st.IPBlocks = make([]*Block, len(st.Snapshot.Blocks))
	for i := range st.Snapshot.Blocks {
		b := &Block{Block: &st.Snapshot.Blocks[i]}
		b.Used = b.InUse()
		b.Faults = b.Block.Faults()
		if in := b.Within(); len(in) < len(b.Ordinals) {
			// Ordinals beyond the CIDR have no address, so no verdict may depend on them.
			c := *b.Block
			c.Ordinals = in
			b.Block = &c
		}
		b.kinds = make([]UseKind, len(b.Attributes))
		for i := range b.Attributes {
			b.kinds[i] = UseKindOf(b, &b.Attributes[i])
		}
		b.Pool = st.PoolOf(b.CIDR)
		st.IPBlocks[i] = b
		for _, p := range st.poolsAt(b.CIDR) {
			p.Blocks = append(p.Blocks, b)
		}
	}
	for _, g := range st.Unreadable(blocks.Blocks) {
		if g.Prefix.IsValid() {
			for _, p := range st.poolsAt(g.Prefix) {
				p.unreadable = append(p.unreadable, &blocks.Block{CIDR: g.Prefix})
			}
		}
	}
}

// PoolOf returns the most specific pool that contains a CIDR, else the first pool that overlaps
// it, else nil. Of several pools with the same CIDR, enabled ones come first, then the first by name.
func (st *State) PoolOf(p netip.Prefix) *Pool {
	var best, overlapping *Pool
	for _, q := range st.poolsAt(p) {
		switch {
		case blocks.PrefixContains(q.CIDR, p):
			if best == nil || q.CIDR.Bits() > best.CIDR.Bits() ||
				q.CIDR.Bits() == best.CIDR.Bits() && best.Disabled && !q.Disabled {
				best = q
			}
		case overlapping == nil:
			overlapping = q
		}
	}
	if best == nil {
		return overlapping
	}
	return best
}

// poolsAt returns the pools that overlap a CIDR. Pools with the same CIDR keep their order.
// Clusters with a pool per rack have hundreds, so it looks up those that contain the CIDR.
func (st *State) poolsAt(p netip.Prefix) (out []*Pool) {
	for _, bits := range st.poolBits[blocks.FamilyOf(p.Addr())] {
		if bits > p.Bits() { // pools may lie inside the CIDR
			return slices.DeleteFunc(slices.Clone(st.Pools), func(q *Pool) bool { return !q.CIDR.Overlaps(p) })
		}
		around, _ := p.Addr().Prefix(bits)
		out = append(out, st.poolsOf[around]...)
	}
	return out
}

func (st *State) indexHosts() {
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if st.nodeStates[n.Name] == nil {
			st.addHost(n.Name, n)
		}
	}
	for _, b := range st.IPBlocks {
		if name := b.Owner.Node(); name != "" {
			h := st.nodeStates[name]
			if h == nil {
				h = st.addHost(name, nil)
			}
			h.Blocks = append(h.Blocks, b)
		}
	}
	for i := range st.Affinities {
		a := &st.Affinities[i]
		if h := st.nodeStates[a.Owner.Node()]; h != nil {
			h.Affinities = append(h.Affinities, a)
		}
	}
	slices.SortFunc(st.NodeStates, func(a, b *NodeState) int { return cmp.Compare(a.Name, b.Name) })
}

func (st *State) addHost(name string, n *blocks.Node) *NodeState {
	h := &NodeState{Name: name, Node: n}
	st.nodeStates[name] = h
	st.NodeStates = append(st.NodeStates, h)
	return h
}

// NodeState returns a node by name, or nil.
func (st *State) NodeState(name string) *NodeState { return st.nodeStates[name] }

// Migrating reports whether Calico's objects are moving to the other API group, or both groups
// serve blocks. Any lock of the datastore is then the migration's.
func (st *State) Migrating() bool { return len(st.Migrations) > 0 || st.Cluster.OtherGroup != "" }

// Namespace returns a namespace by name, or nil.
func (st *State) Namespace(name string) *blocks.Namespace { return st.spaces[name] }

// findBorrows lists the allocations that are used on a node other than their block's owner. The
// user is the node of the live pod or tunnel that holds the address, else the node that the
// allocation names.
func (st *State) findBorrows() {
	nodesRead := st.NodesRead()
	for ref := range st.allocated() {
		b, attr, sort := ref.Block, ref.Attributes(), ref.Kind()
		owner := b.Owner.Node()
		if owner == "" || attr == nil || sort == UseCooling || sort == UseWindows {
			continue
		}
		addr := ref.Addr()
		br := Borrow{Addr: addr, Block: b, Owner: owner, User: NodeOf(attr), Attributes: attr, Tunnel: sort == UseTunnel, VM: sort == UseVM}
		if t := st.tunnels[addr]; len(t) > 0 && br.Tunnel {
			br.User = t[0].Node.Name
		} else if w := st.LiveUserOf(ref); w != nil && w.Node != "" {
			br.User, br.Workload = w.Node, w
		}
		if br.User == "" || br.User == owner || br.Workload == nil && nodesRead && st.Vanished(br.User) {
			continue // unused, used by the owner itself, or by a deleted node
		}
		borrow := new(br) // allocated late, because nearly every address is used by its block's owner
		st.Borrows = append(st.Borrows, borrow)
		if h := st.nodeStates[br.User]; h != nil {
			h.Borrowed = append(h.Borrowed, borrow)
		}
		st.nodeStates[owner].Lent = append(st.nodeStates[owner].Lent, borrow)
	}
}

func (st *State) countPools() {
	for _, p := range st.Pools {
		p.Addrs = blocks.PoolAddresses(p.Pool, Bare(p.Blocks), st.Reserved)
		p.Slots = blocks.PoolSlots(p.Pool, p.Occupying(p.Blocks), st.Reserved)
		if st.takesBlocks() {
			p.takeover = st.takeable(p)
		}
		p.takenFrom = map[string]int{}
		for _, b := range p.takeover {
			p.takenFrom[b.Owner.Name]++
		}
		p.Slots.Allocatable = p.Slots.Allocatable.Add(blocks.CountOf(len(p.takeover)))
		p.Needed = st.demand(p)
	}
	for _, p := range st.Pools {
		p.demand = st.demandOf(p)
	}
}

// countReleasable counts the slots that become free if every releasable block is released. A slot
// that also overlaps a kept block stays claimed.
func (st *State) countReleasable() {
	known := st.ReleasableKnown()
	for _, p := range st.Pools {
		p.ReleasableKnown = known
		kept := slices.DeleteFunc(slices.Clone(p.Blocks), func(b *Block) bool { return b.Releasability.OK })
		if len(kept) < len(p.Blocks) {
			p.Releasable = p.Slots.Claimed.Sub(blocks.ClaimedSlots(p.Pool, p.Occupying(kept)))
		}
	}
}

// Occupying returns the blocks that occupy slots of the pool if only the given ones of its blocks
// remain: these, and the blocks that could not be decoded.
func (p *Pool) Occupying(left []*Block) []*blocks.Block { return append(Bare(left), p.unreadable...) }

// Bare returns the blocks as they were read.
func Bare(bs []*Block) []*blocks.Block {
	out := make([]*blocks.Block, len(bs))
	for i, b := range bs {
		out[i] = b.Block
	}
	return out
}

// demand is how many blocks the nodes that a pool selects will need.
func (st *State) demand(p *Pool) blocks.Count {
	if !p.ServesWorkloads() || !p.Automatic || p.unused {
		return blocks.Count{}
	}
	n := blocks.Count{}
	for i := range p.selected.All() {
		n = n.Add(NodeDemand(st.NodeStates[i].Node, p))
	}
	return n
}

// NodeDemand is how many blocks of a pool one node needs for its maximum number of pods; at least
// one.
func NodeDemand(n *blocks.Node, p *Pool) blocks.Count {
	size, small := p.BlockAddresses().Int()
	if !small || size == 0 || n.AllocatablePods() < 1 {
		return blocks.CountOf(1)
	}
	return blocks.CountOf((n.AllocatablePods()-1)/size + 1)
}
