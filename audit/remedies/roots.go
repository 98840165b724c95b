package remedies

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// shortageReads are the reads needed to find the common causes of block shortages.
var shortageReads = append(slices.Clip(state.BlockStatusReads), blocks.IPAMConfigs, blocks.ClusterInfos)

// RootReads are shortageReads and the reads that choose between the remedies. Borrowing is a remedy
// only if routes deliver the traffic.
var RootReads = slices.Concat(shortageReads, state.RouteReads)

func (st *Remedies) root(id string, message func(int) string, remedies func() []Remedy) *Root {
	r := &Root{ID: id, Message: message, Remedies: sync.OnceValue(func() []Remedy { return Prefer(remedies()) })}
	st.roots[id] = r
	return r
}

// Now adapts remedies to the present state. It omits plans with missing reads. It first unlocks a
// locked datastore, except during a migration, which unlocks it itself. It adds the consent for a
// Calico newer than the supported one.
func (st *Remedies) Now(ways []Remedy) []Remedy {
	unlock, first := Unlock, "once the datastore is unlocked: "
	if st.Migrating() {
		unlock, first = EndMigration, "once the migration has ended: "
	} else if len(agents.Upgrading(st.State)) > 0 {
		unlock, first = EndUpgrade, "once calico-node has started: "
	}
	out := slices.Clone(ways)
	for i := range out {
		r := &out[i]
		if *r = r.Unless(st.readBar(r)); st.Info.Locked && writes(*r) {
			r.Title, r.Manual, r.Yield = first+r.Title, true, nil
		}
		*r = st.AllowingNewer(*r)
	}
	if st.Info.Locked && slices.ContainsFunc(ways, writes) && ways[0].Title != unlock.Title {
		return Prefer(append([]Remedy{unlock}, out...))
	}
	return out
}

// writes reports whether a plan carries out the remedy, possibly after a confirmation by the
// operator.
func writes(r Remedy) bool {
	return r.Resumes() || len(r.Commands) > 0 && len(planFlags(r.Commands[0])) > 0
}

// plans describes the kinds of repair by flag. Without reads, a plan refuses the whole kind. pods
// is true if a single pod that cannot be parsed has the same effect. plain is true if the kind
// writes no object that a newer Calico may have given another meaning.
var plans = map[string]struct {
	reads       []blocks.Resource
	pods, plain bool
}{
	"--empty-blocks": {state.ReleaseReads, true, false}, "--dead-nodes": {state.ReleaseReads, true, false},
	"--consolidate": {state.ReleaseReads, true, false}, "--rehome": {state.ReleaseReads, true, true},
	"--orphan-affinities": {state.DeleteAffinityReads, false, false}, "--missing-affinities": {state.RestoreAffinityReads, false, false},
	"--soft-deleted": {state.FinishDeleteReads, true, false}, "--unrecorded-ips": {state.RecordIPReads, true, false}, "--leaked-ips": {state.ReleaseIPReads, true, false},
	"--whereabouts-stranded": {state.WhereaboutsReads, true, true}, "--whereabouts-reservations": {state.WhereaboutsReads, true, true}, "--strict-affinity": {state.SetStrictReads, false, true},
	"--leaked-handles": {state.HandleReads, true, false}, "--missing-handles": {state.HandleReads, true, false},
}

// planFlags returns the repair flags in a command.
func planFlags(command string) (out []string) {
	flags, _ := strings.CutPrefix(command, repairCommand(""))
	for _, f := range strings.Fields(flags) {
		if f, _, _ = strings.Cut(f, "="); plans[f].reads != nil {
			out = append(out, f)
		}
	}
	return out
}

const allowNewer = " --allow-newer-calico"

// AllowingNewer adds to a remedy the consent that its plans need if the cluster's Calico may be
// newer than known.
func (st *Remedies) AllowingNewer(r Remedy) Remedy {
	if st.Cluster.NewerThanKnown() == "" {
		return r
	}
	r.Commands = slices.Clone(r.Commands)
	for i, c := range r.Commands {
		if slices.ContainsFunc(planFlags(c), func(f string) bool { return !plans[f].plain }) && !strings.HasSuffix(c, allowNewer) {
			r.Commands[i] += allowNewer
			r.Risk = strings.TrimPrefix(r.Risk+"; this Calico is newer than calico-audit knows ("+blocks.NewestKnown+")", "none; ")
		}
	}
	return r
}

// readBar returns the missing read that makes the remedy's plan refuse a whole kind of repair; a
// zero bar for a remedy without a plan.
func (st *Remedies) readBar(r *Remedy) (b state.Bar) {
	if len(r.Commands) == 0 {
		return b
	}
	for _, flag := range planFlags(r.Commands[0]) {
		plan := plans[flag]
		if b.Code == "" {
			b = st.ReadBar(plan.reads)
		}
		if b.Code == "" && plan.pods {
			b = st.PodBar()
		}
		if b.Code == "" && slices.Contains([]string{"--rehome", "--consolidate", "--strict-affinity"}, flag) {
			b = st.WholeBar(plan.reads, flag != "--strict-affinity")
		}
	}
	return b
}

// Unserved returns, by ID, the roots that keep nodes from the blocks that they need.
func (st *Remedies) Unserved() (out []*Root) {
	for _, id := range slices.Sorted(maps.Keys(st.roots)) {
		if r := st.roots[id]; len(r.Nodes) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// known returns id if a root with this ID exists; otherwise "".
func (st *Remedies) known(id string) string {
	if st.roots[id] == nil {
		return ""
	}
	return id
}

// RootOfNode returns the root of a node's lack of a block, or of room in its blocks, in a family.
func (st *Remedies) RootOfNode(n *state.NodeBlockStatus) string {
	if id := st.RootOfNodeName(n.Host.Name); id != "" {
		return id
	}
	switch cause := rootCause(n); cause {
	case state.CauseNone:
		// A virtual machine's address stays borrowed, and a tunnel's address does not belong to a
		// pod.
		if slices.ContainsFunc(n.Borrowed, func(b *state.Borrow) bool { return b.Workload != nil && !staysBorrowed(b) && !b.Tunnel }) {
			return st.known("borrowed")
		}
		return ""
	default:
		if !cause.Shortfall() {
			return st.known(barredID(n, cause))
		}
		for _, p := range st.PoolsAtIssue(n) {
			if id := st.RootOfPool(p); id != "" {
				return id
			}
		}
		return ""
	}
}

// rootCause explains why a node cannot get an address; if it can, why its waiting pods cannot.
func rootCause(n *state.NodeBlockStatus) state.Cause {
	if n.Cause != state.CauseNone || len(n.Stuck) == 0 {
		return n.Cause
	}
	return n.Stuck[0].Cause
}

// RootOfPool returns the root of a pool's shortage of blocks or addresses.
func (st *Remedies) RootOfPool(p *state.Pool) string {
	if s := st.shortages[p]; s != nil {
		return s.root.ID
	}
	return ""
}

// RootOfBorrow returns the root of a borrowed address. A virtual machine's address has none: it
// stays borrowed on purpose.
func (st *Remedies) RootOfBorrow(b *state.Borrow) string {
	if staysBorrowed(b) {
		return ""
	}
	if id := st.RootOfNodeName(b.User); id != "" {
		return id
	}
	if n := st.statusOf(b); n != nil {
		if id := st.RootOfNode(n); id != "" && (!b.Tunnel || id != "borrowed") {
			return id
		}
	}
	return st.RootOfHost(b.Owner)
}

// statusOf returns the block status, in the address's family, of the node that uses a borrowed
// address; nil if unknown.
func (st *Remedies) statusOf(b *state.Borrow) *state.NodeBlockStatus {
	if h := st.NodeState(b.User); h != nil {
		return h.StatusOf(blocks.FamilyOf(b.Addr))
	}
	return nil
}

// RootOfHost returns the root of the objects that a vanished node left behind.
func (st *Remedies) RootOfHost(host string) string {
	if st.departed[host] == nil {
		return ""
	}
	return st.known("vanished")
}

// RootOfBlock returns the root of an empty block: the vanished node that left it, or the shortage
// that it worsens.
func (st *Remedies) RootOfBlock(b *state.Block) string {
	if id := st.RootOfHost(b.Owner.Node()); id != "" || b.Pool == nil || !b.Pool.OutOfBlocks() {
		return id
	}
	return st.RootOfPool(b.Pool)
}

// RootOfLeak returns the root of a leaked address.
func (st *Remedies) RootOfLeak(r state.AllocationRef) string {
	if a := r.Attributes(); a != nil {
		if id := st.RootOfHost(state.NodeOf(a)); id != "" {
			return id
		}
	}
	if len(st.Views.Uses(r.Addr())) > 0 {
		return "" // its user has to be ended first
	}
	return st.known("leaks")
}

// RootOfUnrecorded returns the root of addresses that live pods use and no block records.
func (st *Remedies) RootOfUnrecorded() string { return st.known("unrecorded") }

// RootOfDropped returns the root that all dropped borrows share; empty if they share none.
func (st *Remedies) RootOfDropped() string {
	root, first := "", true
	for _, b := range st.Borrows {
		if b.VM || st.Predict(b).Outcome != affinity.Dropped {
			continue
		}
		if id := st.RootOfBorrow(b); first {
			root, first = id, false
		} else if id != root {
			return ""
		}
	}
	return root
}

// barredID is the root ID of nodes that could not claim even a free block.
func barredID(n *state.NodeBlockStatus, c state.Cause) string {
	switch c {
	case state.CauseSelector:
		return "selector/" + strings.ToLower(n.Family.String())
	case state.CauseNoAuto:
		return "automatic-blocks"
	case state.CauseLimit:
		return "block-limit/" + n.Host.Name
	case state.CauseNoPool:
		return "no-pool/" + n.Host.Name
	default:
		return "" // no pool may serve the pod, a cause that no root covers
	}
}

// findBarred finds the roots of nodes that cannot claim a block for a reason other than a lack of
// blocks.
func (st *Remedies) findBarred() {
	barred := map[string][]*state.NodeBlockStatus{}
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if c := rootCause(n); c != state.CauseNone && !c.Shortfall() {
				barred[barredID(n, c)] = append(barred[barredID(n, c)], n)
			}
		}
	}
	delete(barred, "")
	for id, ns := range barred {
		n, detail := ns[0], ns[0].Detail
		if detail == "" && len(n.Stuck) > 0 {
			detail = n.Stuck[0].Detail
		}
		var names blocks.Names
		for _, n := range ns {
			names = append(names, n.Host.Name)
		}
		root := st.root(id, func(int) string {
			borrowed, waiting := 0, 0
			for _, n := range ns {
				borrowed, waiting = borrowed+len(n.Borrowed), waiting+len(n.Stuck)
			}
			message := fmt.Sprintf("%s cannot claim a block: %s", names, detail)
			if borrowed > 0 {
				message += fmt.Sprintf("; borrowed addresses: %d", borrowed)
			}
			if waiting > 0 {
				message += fmt.Sprintf("; waiting pods: %d", waiting)
			}
			return message
		}, func() []Remedy { return st.causeRemedies(n, rootCause(n), detail) })
		root.Subject, root.Nodes = state.NodeSubject(n.Host.Name), names
		for _, n := range ns {
			root.Pools = append(root.Pools, state.PoolsOf(n.Pools...)...)
		}
	}
}

// borrowedMessage names the nodes with pods that still borrow, although these nodes could have
// blocks of their own.
func (st *Remedies) borrowedMessage() string {
	var users blocks.Names
	for _, b := range st.Borrows {
		if !b.Tunnel && st.RootOfBorrow(b) == "borrowed" {
			users = append(users, b.User)
		}
	}
	borrowed := len(users)
	slices.Sort(users)
	users = slices.Compact(users)
	dropped := ""
	if text := st.droppedText(func(b *state.Borrow) bool { return st.RootOfBorrow(b) == "borrowed" }); text != "" {
		dropped = ", and " + text
	}
	return fmt.Sprintf("pods on %s still borrow from other nodes (addresses: %d), although their own nodes can have blocks%s", users, borrowed, dropped)
}

// findVanished finds the root of objects left by nodes that no longer exist. They all share one
// root, because an autoscaler without clean-up leaves thousands.
func (st *Remedies) findVanished() {
	st.departed = map[string]*state.NodeState{}
	for _, h := range st.NodeStates {
		if st.Vanished(h.Name) {
			st.departed[h.Name] = h
		}
	}
	for i := range st.Affinities {
		a := &st.Affinities[i]
		if name := a.Owner.Node(); st.Vanished(name) && st.NodeState(name) == nil {
			if st.departed[name] == nil {
				st.departed[name] = &state.NodeState{Name: name}
			}
			st.departed[name].Affinities = append(st.departed[name].Affinities, a)
		}
	}
	if len(st.departed) > 0 {
		st.root("vanished", func(int) string { return st.vanishedMessage() }, func() []Remedy {
			return []Remedy{st.cleanUp(slices.Sorted(maps.Keys(st.departed)), "")}
		})
	}
}

// vanishedMessage describes the objects left by nodes that no longer exist.
func (st *Remedies) vanishedMessage() string {
	owned, used, affinities := 0, 0, 0
	for _, h := range st.departed {
		owned, affinities = owned+len(h.Blocks), affinities+len(h.Affinities)
		for _, b := range h.Blocks {
			used += b.Used
		}
	}
	names := blocks.Names(slices.Sorted(maps.Keys(st.departed)))
	who := fmt.Sprintf("node %q no longer exists", names[0])
	if len(names) > 1 {
		who = fmt.Sprintf("%d nodes no longer exist (%s)", len(names), names)
	}
	least := func(r blocks.Resource) string {
		if _, unread := st.Missing(r); unread || len(st.Unreadable(r)) > 0 {
			return "at least "
		}
		return ""
	}
	some := least(blocks.Blocks)
	return fmt.Sprintf("%s; left behind: blocks %s%d, allocated addresses %s%d, affinities %s%d", who, some, owned, some, used, least(blocks.Affinities), affinities)
}

// droppedText names the owners that drop traffic to the given borrowed addresses, according to the
// topology or host views, and counts the addresses. It returns "" if none does, or if that is
// unknown.
func (st *Remedies) droppedText(which func(*state.Borrow) bool) string {
	predicted := st.FirstMissing(state.RouteReads) == nil
	var owners blocks.Names
	pods, others := 0, 0
	for _, b := range st.Borrows {
		if !which(b) {
			continue
		}
		answer, proven := st.HostAnswer(b)
		if proven && answer.Outcome != hosts.Drops && answer.Outcome != hosts.Unclear {
			continue
		}
		if proven && answer.Outcome == hosts.Drops || predicted && st.Predict(b).Outcome == affinity.Dropped {
			if owners = append(owners, b.Owner); b.Workload != nil {
				pods++
			} else {
				others++
			}
		}
	}
	if len(owners) == 0 {
		return ""
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	to := phrase.Plural(pods, "pod")
	if others > 0 {
		to = phrase.Plural(pods+others, "address")
	}
	return fmt.Sprintf("%s %s the traffic to %s", owners, phrase.One(len(owners), "drops", "drop"), to)
}

// RootOfSelector returns the root of a pool with a selector that cannot be parsed, so that nodes
// get no blocks of it.
func (st *Remedies) RootOfSelector(p *state.Pool) string {
	if !p.Automatic {
		return ""
	}
	return st.known("selector/" + strings.ToLower(p.Family().String()))
}

// RootOfLimit returns the root of a node that is at the block limit.
func (st *Remedies) RootOfLimit(h *state.NodeState) string { return st.known("block-limit/" + h.Name) }
