package state

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// DefaultGrace is how long a state must have held before it is acted on, unless
// set otherwise: as long as Calico's own collector waits.
const DefaultGrace = 15 * time.Minute

// Options are the settings of an audit.
type Options struct {
	// Grace is how long a state must have held before it counts as lasting.
	// Zero means [DefaultGrace].
	Grace time.Duration
}

// State is a snapshot with indexes and shared verdicts. It is immutable once
// made.
type State struct {
	// Snapshot is what was read, in canonical order.
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
	// Families are the address families that count: those of which at least one
	// workload has an address or, while none has any and some wait, those of the
	// pools.
	Families []blocks.Family
	// Reserved are the addresses that IPReservations keep from being handed out.
	Reserved blocks.ReservedSet
	// Routing predicts what routers do with traffic to blocks.
	Routing *affinity.Routing
	// Views are the host views, with what they prove.
	Views *hosts.Views

	// unreadable are the objects that could not be understood, by resource.
	unreadable map[blocks.Resource][]blocks.Gap
	// unreadPod is a pod that could not be understood at all, "" if there is none;
	// vmUnread is true if there is such a virtual machine.
	unreadPod string
	vmUnread  bool
	// partial are the pods that were read in part ([blocks.Extras.Partial]), placeless those
	// of them whose node could not be read: they may run on any.
	partial, placeless []*blocks.Workload
	// terminated are the nodes whose machines somebody says are off.
	terminated []string

	// optional are the families that some live pod does without, having an address
	// of another.
	optional map[blocks.Family]bool
	// asked are the sets of pools that live pods ask for, each once.
	asked [][]*Pool
	// otherIPAM are the pods whose addresses Calico's IPAM does not assign.
	otherIPAM OtherIPAM
	// poolsOf are the pools of each CIDR, and poolBits the lengths of these CIDRs.
	poolsOf    map[netip.Prefix][]*Pool
	poolBits   map[blocks.Family][]int
	nodeStates map[string]*NodeState
	uses       []use
	spaces     map[string]*blocks.Namespace
	own        ownership
	tunnels    map[netip.Addr][]TunnelUse
	// nodeUses has the nodes that no longer exist and have a tunnel address, with
	// what else of them is still in use; "" for nothing.
	nodeUses map[string]string
	// tunnelAddrs are the keys of tunnels, in order.
	tunnelAddrs []netip.Addr
	deadline    *deadline
	// fates are the answers of the owners' kernels for borrowed addresses, as far as a
	// host view proves one; foreign are the routes that drop traffic to blocks of other
	// owners; freeUses are addresses in use that the datastore calls free; seconds are
	// the namespaces that have an address besides its live owners.
	fates    map[*Borrow]hosts.Answer
	foreign  []*ForeignBlackhole
	freeUses []FreeUse
	seconds  map[netip.Addr][]hosts.Use
	// derived has by type what [Derived] has made.
	derived *sync.Map
}

// Pool is a pool with its numbers.
type Pool struct {
	*blocks.Pool
	Addrs blocks.Addrs
	Slots blocks.Slots
	// Releasable is how many slots would become free if every block that may be
	// released were. It is unknown, and 0, unless ReleasableKnown.
	Releasable      blocks.Count
	ReleasableKnown bool
	// Needed is how many blocks the nodes that the pool selects will need.
	Needed blocks.Count
	// unused is true while no pod of the cluster gets its address from Calico's IPAM.
	unused bool
	// takeover are the empty blocks that Calico's allocator would take for another
	// node than their owner; Slots.Allocatable counts them, too.
	takeover []*Block
	// takenFrom counts them by owner.
	takenFrom map[string]int
	// selected are the nodes that the pool's node selector matches, by their place among
	// NodeStates.
	selected nodeSet
	// demand is how the pool stands to what its nodes will need; nil if it has enough.
	demand *Demand
	// cutOff are the nodes that lack a block of the pool, and waiting the pods that lack an
	// address of it.
	cutOff  cutOff
	waiting []*blocks.Workload
	// Blocks are the blocks that lie in the pool or overlap it.
	Blocks []*Block
	// unreadable are those that could not be understood, of which the CIDR is known.
	unreadable []*blocks.Block

	NodeSelection, NamespaceSelection *Selector
}

// Block is a block with the verdicts on it.
type Block struct {
	*blocks.Block
	// Pool is the most specific pool that the block lies in; nil if none.
	Pool *Pool
	// Used is the number of allocated ordinals.
	Used int
	// Faults are the contradictions within the block; a block with any is
	// corrupt.
	Faults []string
	// Releasability is the verdict on an empty block; meaningless for others.
	Releasability Releasability

	// kinds says what each of the Attributes is for.
	kinds []UseKind
	// uses are the addresses of its CIDR that pods name.
	uses []use
}

// Usable is true for a block that addresses can be handed out of: neither
// soft-deleted nor corrupt.
func (b *Block) Usable() bool { return !b.SoftDeleted && len(b.Faults) == 0 }

// Unused returns how many addresses of a block could still be assigned.
func (st *State) Unused(b *Block) int {
	n := 0
	touched := st.Reserved.Overlaps(b.CIDR)
	for i, o := range b.Ordinals {
		if o == blocks.Free && (!touched || !st.Reserved.Contains(b.Address(i))) {
			n++
		}
	}
	return n
}

// NodeState is a node, or the owner of blocks that no longer exists.
type NodeState struct {
	Name string
	// Node is nil for a host that owns blocks and no longer exists.
	Node *blocks.Node
	// Blocks are those that name the host as owner.
	Blocks []*Block
	// Workloads are the pods bound to the node, host-network ones left out.
	Workloads []*blocks.Workload
	// Affinities are the host's affinity objects.
	Affinities []*blocks.Affinity
	// Borrowed are the addresses it uses of other hosts' blocks, Lent those of
	// its blocks that others use.
	Borrowed, Lent []*Borrow
	// Schedulable reports whether pods of the pod network may come to the node:
	// neither cordoned nor tainted, or such pods run on it already; and not out of
	// service.
	Schedulable bool
	// place is the node's among all NodeStates.
	place int
	// workloadPools are the pools that serve the node's workloads automatically.
	workloadPools []*Pool
	// BlockStatus says, per family that counts, how the node stands with blocks.
	BlockStatus []*NodeBlockStatus
}

// Borrow is an address that is used on another node than its block's owner.
type Borrow struct {
	Addr  netip.Addr
	Block *Block
	// Owner is the block's owner and User the node that uses the address.
	Owner, User string
	Attributes  *blocks.Attributes
	// Workload is the live pod that holds the address; nil if none was seen.
	Workload *blocks.Workload
	// Tunnel is true if the address is that of a tunnel device.
	Tunnel bool
	// VM is true if the address is a virtual machine's. Calico keeps it while the
	// machine moves between nodes, so that it is borrowed for good and on purpose:
	// restarting anything does not end that.
	VM bool
}

// New builds the State of a snapshot, which it sorts and keeps.
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
	st.findOtherIPAM()
	st.indexWorkloads()
	st.indexAsked()
	st.indexTunnels()
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

// Derived returns what derive makes of a state, made once for each type: what only some
// readers of the verdicts need, such as the ways out.
func Derived[T any](st *State, derive func(*State) *T) *T {
	once, _ := st.derived.LoadOrStore(reflect.TypeFor[T](), sync.OnceValue(func() *T { return derive(st) }))
	return once.(func() *T)()
}

func (st *State) indexPools() {
	for i := range st.Snapshot.Pools {
		p := &st.Snapshot.Pools[i]
		st.Pools = append(st.Pools, &Pool{
			Pool:          p,
			NodeSelection: parseSelector(p.NodeSelector), NamespaceSelection: parseSelector(p.NamespaceSelector),
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
		b.Faults = faults(b.Block)
		if in := b.Within(); len(in) < len(b.Ordinals) {
			// What lies beyond the CIDR has no address: no verdict may rest on it.
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

// PoolOf returns the most specific pool that a CIDR lies in or, if it lies in
// none, the first that it overlaps; nil if there is none. Of two pools alike the
// enabled one is meant, then the first by name.
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

// poolsAt returns the pools that overlap a CIDR, those of one CIDR in order: those that
// contain it are looked up, for racks may have hundreds.
func (st *State) poolsAt(p netip.Prefix) (out []*Pool) {
	for _, bits := range st.poolBits[blocks.FamilyOf(p.Addr())] {
		if bits > p.Bits() { // some may lie in it
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

// NodeState returns a host by name, or nil.
func (st *State) NodeState(name string) *NodeState { return st.nodeStates[name] }

// Namespace returns a namespace by name, or nil.
func (st *State) Namespace(name string) *blocks.Namespace { return st.spaces[name] }

// findBorrows lists the allocations that are used on another node than their
// block's owner. The node that uses one is that of the live pod holding it, or
// of the tunnel, or the one the allocation names.
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
			continue // no one, the owner itself, or a node that is gone uses it
		}
		borrow := new(br) // only now: nearly every address is its owner's
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
		p.takeover = st.takenOver(p)
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

// countReleasable counts the slots that releasing every releasable block would
// free; a slot that another block overlaps as well stays claimed.
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

// Occupying returns what takes slots of the pool, if of its blocks only some are left: these,
// and those that could not be understood, which are there all the same.
func (p *Pool) Occupying(left []*Block) []*blocks.Block { return append(Bare(left), p.unreadable...) }

// Bare returns what was read of blocks.
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
	for i := range p.selected.all() {
		n = n.Add(NodeDemand(st.NodeStates[i].Node, p))
	}
	return n
}

// NodeDemand is how many blocks of a pool one node needs for as many pods as it
// may run, one at least.
func NodeDemand(n *blocks.Node, p *Pool) blocks.Count {
	size, small := p.BlockAddresses().Int()
	if !small || size == 0 || n.AllocatablePods < 1 {
		return blocks.CountOf(1)
	}
	return blocks.CountOf((n.AllocatablePods-1)/size + 1)
}
