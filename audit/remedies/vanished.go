package remedies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/releasable"
	"github.com/calico-audit/calico-audit/blocks"
)

// maxNamed is how many nodes a command names.
const maxNamed = 3

func (x *leftBehind) released() int { return len(x.own) + len(x.nameless) + len(x.beside) }

func (x *leftBehind) retain(b state.Bar) {
	if x.bar.Code == "" {
		x.bar = b
	}
}

// findLeftBehind returns the objects left by vanished nodes, by node name.
func (st *Remedies) findLeftBehind() map[string]*leftBehind {
	out := map[string]*leftBehind{}
	of := func(node string) *leftBehind {
		if out[node] == nil {
			out[node] = &leftBehind{}
		}
		return out[node]
	}
	released, ifOff := map[*state.Block]int{}, map[string]*state.State{}
	keep := func(x *leftBehind, to *[]state.AllocationRef, v releasable.Verdict, a state.AllocationRef) {
		if v.Code == "" {
			*to, released[a.Block] = append(*to, a), released[a.Block]+1
			return
		}
		x.stays++
		x.retain(v.Bar)
	}
	st.EachAllocation(func(a state.AllocationRef, node string) {
		host := a.Block.Owner.Node()
		switch {
		case len(a.Block.Faults) > 0 || a.Attributes() == nil:
		case st.Vanished(node):
			if ifOff[node] == nil {
				ifOff[node] = st.WithTerminated([]string{node})
			}
			if off := ifOff[node]; !off.Classify(a).Owned {
				keep(of(node), &of(node).own, releasable.Of(off, releasable.Consents{}, a), a)
			}
		case !st.Vanished(host) || st.Classify(a).Owned:
		case node == "":
			keep(of(host), &of(host).nameless, releasable.Of(st.State, releasable.Consents{WithoutHostEvidence: true}, a), a)
		default:
			keep(of(host), &of(host).beside, releasable.Of(st.State, releasable.Consents{}, a), a)
		}
	})
	for _, b := range st.IPBlocks {
		if host := b.Owner.Node(); st.Vanished(host) {
			st.leaveBlock(of(host), b, released[b])
		}
	}
	for i := range st.Affinities {
		a := &st.Affinities[i]
		if host := a.Owner.Node(); !a.SoftDeleted && st.Vanished(host) {
			b := st.BlockOf(a.CIDR)
			if c := affinity.Classify(a, state.BareOrNil(b)); c == affinity.NoBlock || c == affinity.NotOwner {
				if bar := cmp.Or(st.ReadBar(state.DeleteAffinityReads), st.affinityBar(a, b)); bar.Code == "" {
					of(host).affinities++
				} else {
					of(host).retain(bar)
				}
			}
		}
	}
	return out
}

// AffinityRemedies returns the remedies for an affinity that no block confirms. b is the block of
// its CIDR, or nil.
func (st *Remedies) AffinityRemedies(a *blocks.Affinity, b *state.Block) []Remedy {
	return []Remedy{DeleteAffinity.Unless(st.affinityBar(a, b))}
}

// affinityBar explains why a plan does not delete an affinity. If several objects describe the same
// affinity, a plan deletes none of them.
func (st *Remedies) affinityBar(a *blocks.Affinity, b *state.Block) state.Bar {
	if slices.ContainsFunc(st.AffinitiesOf(a.CIDR), func(o *blocks.Affinity) bool { return o.Owner == a.Owner && o.Name != a.Name && !o.SoftDeleted }) {
		return state.Because(state.RetainConflict, "several objects describe it")
	}
	return st.DeleteAffinityBar(a, b)
}

// leaveBlock decides whether a block can be deleted once some of its addresses are released.
func (st *Remedies) leaveBlock(x *leftBehind, b *state.Block, released int) {
	x.blocks = append(x.blocks, b)
	var v state.Releasability
	switch unread := st.ReadBar(state.ReleaseReads); {
	case unread.Code != "":
		v.Bar = unread
	case b.Used == 0:
		v = b.Releasability
	case b.Used == released:
		v = st.IfEmptied(b)
		if who := st.UnrecordedUser(b.CIDR); who != "" {
			v = state.Releasability{Bar: state.Because(state.RetainInUse, "%s, although the block does not record it", who)}
		}
		if uses := st.Views.ContradictFree(b.Block); len(uses) > 0 {
			v = state.Releasability{Bar: state.Because(state.RetainHostView, "%s is in use in %s, although the block does not record it", uses[0].Addr, uses[0])}
		}
	default:
		if v = st.Disownable(b); v.OK {
			x.affinities++
			return
		}
	}
	if x.retain(v.Bar); v.OK {
		x.freed = append(x.freed, b)
	}
}

// cleanUp is the remedy for objects that vanished nodes left behind. It first releases the
// ownerless addresses, once the operator has confirmed that no machine uses them. The confirmation
// covers only addresses without a node; for nodes that exist, host views are the evidence. For many
// nodes, the commands use filter flags that select all of them instead of names.
func (st *Remedies) cleanUp(nodes blocks.Names, filter string) Remedy {
	these, terminated := filter, filter+" --terminated all"
	if len(nodes) <= maxNamed {
		these = Shell(" --node %s", strings.Join(nodes, ","))
	}
	r := CleanUpNode.with(these)
	r.Title = "clean up after deleted nodes (" + nodes.String() + ")"
	var off, nameless, beside, first, risk []string
	var bar state.Bar
	y, owned, stay := Yield{}, 0, 0
	for _, n := range nodes {
		left := st.leftBehind()[n]
		if left == nil {
			continue
		}
		if len(left.own) > 0 {
			off = append(off, n)
		}
		for _, a := range left.nameless {
			nameless = append(nameless, a.Addr().String())
		}
		for _, a := range left.beside {
			if cidr := a.Block.CIDR.String(); !slices.Contains(beside, cidr) {
				beside = append(beside, cidr)
			}
		}
		y.Addresses, y.Blocks, y.Affinities = y.Addresses+left.released(), y.Blocks+len(left.freed), y.Affinities+left.affinities
		if owned, stay = owned+len(left.blocks), stay+left.stays; bar.Code == "" {
			bar = left.bar
		}
	}
	r.Yield = &y
	var whose []string
	if len(beside) > 0 {
		whose = append(whose, "other nodes")
	}
	if len(nameless) > 0 {
		whose = append(whose, "no node")
	}
	if len(whose) > 0 {
		r.Title += fmt.Sprintf(", with the leaked addresses in blocks there that name %s", strings.Join(whose, " or "))
	}
	if len(off) > 0 {
		// "all" would also declare existing nodes off if they are not ready.
		unready := slices.ContainsFunc(st.NodeStates, func(h *state.NodeState) bool { return h.Node != nil && !h.Node.Ready })
		if len(off) <= maxNamed || unready {
			names := strings.Join(off, ",")
			terminated = Shell(" --node %s --terminated %s", names, names)
		}
		r.Title += ", once their machines are known to be off"
		first, risk = append(first, repairCommand("--leaked-ips"+terminated)), append(risk, terminatedRisk)
	}
	if len(nameless) > 0 {
		first, risk = append(first, Shell(repairCommand("--leaked-ips --ip %s --without-host-evidence"), strings.Join(nameless, ","))), append(risk, unprovenRisk)
	}
	if len(beside) > 0 {
		first = append(first, Shell(repairCommand("--leaked-ips --block %s"), strings.Join(beside, ",")))
	}
	switch {
	case y == Yield{}:
		return r.Unless(bar)
	case y.Blocks == 0 && y.Affinities == 0: // the addresses are in blocks that stay
		r.Commands, r.Effect, r.Risk = nil, "", "none"
	default:
		r.Effect = cleanUpEffect(y, owned)
	}
	if len(first) > 0 {
		r.Manual = len(off)+len(nameless) > 0
		r.Commands = append(first, r.Commands...)
		r.Effect = strings.TrimSuffix(fmt.Sprintf("leaked addresses released: %d; %s", y.Addresses, r.Effect), "; ")
		if len(risk) > 0 {
			r.Risk = strings.Join(risk, "; ")
		}
	}
	if stay > 0 {
		r.Effect += fmt.Sprintf("; addresses that stay: %d (repair lists them)", stay)
	}
	return r
}

// cleanUpEffect counts the nodes' blocks that can be claimed again, and the other affinities that
// are deleted.
func cleanUpEffect(y Yield, owned int) string {
	var out []string
	if owned > 0 {
		out = append(out, fmt.Sprintf("blocks to claim: %d of %d", y.Blocks, owned))
	}
	if y.Affinities > 0 {
		out = append(out, fmt.Sprintf("affinities deleted: %d", y.Affinities))
	}
	return strings.Join(out, "; ")
}

// freedOf returns the node's blocks that cleaning up after it frees.
func (st *Remedies) freedOf(node string) (out []*state.Block) {
	if left := st.leftBehind()[node]; left != nil {
		for _, b := range left.freed {
			if b.Owner.Kind == blocks.HostOwner {
				out = append(out, b)
			}
		}
	}
	return out
}
