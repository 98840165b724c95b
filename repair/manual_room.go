package repair

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// addRoom says what keeps nodes from getting a block even when the plan is applied.
func (m *manuals) addRoom() {
	var items []Manual
	for _, s := range m.short {
		if !m.concerns([]string{s.pool.Name}, s.nodes) {
			continue
		}
		items = append(items, Manual{
			Target:  state.PoolSubject(s.pool),
			Action:  fmt.Sprintf("make room: add a pool that selects %s (smaller blocks, such as /28 instead of /26, make more of them), or empty a block as below", state.List(s.nodes)),
			Because: s.text() + ", even when this plan is applied: pods that restart before that borrow again",
			Risk:    "a new pool needs the routes, firewall rules and NAT that the others have; addresses in use do not change",
			Command: "calico-audit explain " + state.Arg(s.pool.Name),
		})
	}
	for _, h := range m.after.NodeStates {
		for _, n := range h.BlockStatus {
			if n.Unused > 0 || !suffers(n) || !barredOtherwise(n.Cause) || !m.concerns(poolsOf(n), []string{h.Name}) {
				continue
			}
			items = append(items, Manual{
				Target: state.NodeSubject(h.Name), Action: mends[n.Cause],
				Because: fmt.Sprintf("%s claims no %s block, however many are free: %s", h.Name, n.Family, n.Detail),
				Risk:    "it holds for the whole cluster, at once", Command: "calico-audit explain " + state.Arg(h.Name),
			})
		}
	}
	m.group(items...)
}

func poolsOf(n *state.NodeBlockStatus) []string {
	var out []string
	for _, p := range n.Pools {
		out = append(out, p.Name)
	}
	return out
}

// mends says what to do about what keeps a node from claiming a block.
var mends = map[state.Cause]string{
	state.CauseSelector: "mend the pool's selector",
	state.CauseNoPool:   "let an enabled pool select the node",
	state.CauseNoAuto:   "turn autoAllocateBlocks on, or give the node a block by hand",
	state.CauseLimit:    "raise maxBlocksPerHost, or move pods to other nodes",
}

// cordon keeps pods away from nodes that would borrow for them.
func (m *manuals) cordon() {
	var items []Manual
	for _, h := range m.st.NodeStates {
		if h.Node == nil || h.Node.Unschedulable || !m.concerns(nil, []string{h.Name}) {
			continue
		}
		i := slices.IndexFunc(h.BlockStatus, func(n *state.NodeBlockStatus) bool {
			return suffers(n) && n.RequiresBlocks() && !barredOtherwise(n.Cause) && m.concerns(poolsOf(n), nil)
		})
		if i < 0 {
			continue
		}
		m.cordoned = append(m.cordoned, h.Name)
		items = append(items, Manual{
			Target: state.NodeSubject(h.Name), Action: "cordon it, until a block is there for it",
			Because: fmt.Sprintf("%s cannot claim a block now (%s): each pod that starts there meanwhile %s", h.Name, h.BlockStatus[i].Cause, outcomeOf(h.BlockStatus[i])),
			Risk:    "no pod but those of DaemonSets starts on it meanwhile; those that run go on",
			Command: "kubectl cordon " + state.Arg(h.Name),
		})
	}
	m.group(items...)
}

func outcomeOf(n *state.NodeBlockStatus) string {
	if n.CannotAllocate() {
		return "gets no address"
	}
	return "borrows again"
}

// pinned is a block that few addresses keep from being released.
type pinned struct {
	block *state.Block
	host  *state.NodeState
	// room is how many addresses of the host's other blocks are unused.
	room int
}

// maxPinned is up to how many addresses in use a block is worth emptying by hand.
const maxPinned = 16

// pins returns the blocks of a pool that could be emptied: of each node that holds
// several, the one with the fewest addresses in use; the least work first.
func pins(st *state.State, pool *state.Pool) []pinned {
	var out []pinned
	for _, h := range st.NodeStates {
		var best *state.Block
		count, room := 0, 0
		for _, b := range h.Blocks {
			if b.Pool != pool || !b.Usable() {
				continue
			}
			count++
			room += st.Unused(b)
			if b.Used > 0 && st.EmptiesByRestarts(b) && (best == nil || b.Used < best.Used) {
				best = b
			}
		}
		if best != nil && best.Used <= maxPinned && (count > 1 || h.Node == nil) {
			out = append(out, pinned{best, h, room - st.Unused(best)})
		}
	}
	slices.SortStableFunc(out, func(a, b pinned) int { return cmp.Compare(a.block.Used, b.block.Used) })
	return out
}

// empty says how to empty as many blocks as nodes lack.
func (m *manuals) empty() {
	for _, s := range m.short {
		if !m.concerns([]string{s.pool.Name}, nil) {
			continue
		}
		candidates := pins(m.after, s.pool)
		for _, c := range candidates[:min(len(candidates), len(s.nodes))] {
			m.emptyBlock(c)
		}
	}
}

func (m *manuals) emptyBlock(c pinned) {
	b, target := c.block, state.BlockSubject(c.block)
	name := "emptying-" + b.Name
	m.group(Manual{
		Target: target, Action: "reserve it, so that no new pod takes an address of it",
		Because: fmt.Sprintf("%s in use %s it from being released; %s", state.Plural(b.Used, "address"), one(b.Used, "keeps", "keep"), othersText(c)),
		Risk:    "its free addresses are used by nobody until the reservation is deleted",
		Command: fmt.Sprintf(`echo '{"apiVersion":"projectcalico.org/v3","kind":"IPReservation","metadata":{"name":%q},"spec":{"reservedCIDRs":[%q]}}' | calicoctl create -f -`, name, b.CIDR.String()),
	})
	if c.host.Node != nil && c.room < b.Used && !c.host.Node.Unschedulable && !slices.Contains(m.cordoned, c.host.Name) {
		m.cordoned = append(m.cordoned, c.host.Name)
		m.group(Manual{
			Target: state.NodeSubject(c.host.Name), Action: "cordon it, until its pods have started elsewhere",
			Because: fmt.Sprintf("its other blocks have room for %s only: pods that start there again would borrow", state.Plural(c.room, "address")),
			Risk:    "no pod but those of DaemonSets starts on it meanwhile; those that run go on",
			Command: "kubectl cordon " + state.Arg(c.host.Name),
		})
	}
	var items []Manual
	for i, o := range b.Ordinals {
		if o == blocks.Free {
			continue
		}
		items = append(items, m.vacate(b, i))
	}
	m.group(items...)
	m.group(Manual{
		Target: target, Action: fmt.Sprintf("when it has been empty for %s, release it with a new plan, and delete the reservation", m.st.Grace),
		Because: "releasing it frees a block for the nodes that lack one",
		Command: "calico-audit repair --empty-blocks --node " + state.Arg(b.Owner.Node()) + "; calicoctl delete ipreservation " + name,
	})
}

func othersText(c pinned) string {
	if c.host.Node == nil {
		return c.host.Name + " is no node"
	}
	return c.host.Name + " holds other blocks of the pool"
}

// vacate says how one address of a block comes to be given back.
func (m *manuals) vacate(b *state.Block, ordinal int) Manual {
	addr, attr := b.Address(ordinal), b.At(ordinal)
	if attr == nil {
		return Manual{Target: state.IPSubject(addr, ""), Action: "find out what uses it", Because: "it keeps block " + b.CIDR.String()}
	}
	because := fmt.Sprintf("its address %s keeps block %s", addr, b.CIDR)
	if w := m.st.LiveUser(addr, attr); w != nil {
		m.restarted[addr] = true
		return restartPod(w, state.IPSubject(addr, w.Node), because)
	}
	x := Manual{Target: state.IPSubject(addr, attr.Node), Action: "find out what uses it", Because: because, Command: "calico-audit explain " + addr.String()}
	if !m.st.Classify(state.AllocationRef{Block: b, Ordinal: ordinal}).Owned {
		x.Action, x.Command = "release it as a leaked address", "calico-audit repair --leaked-ips --node "+state.Arg(strings.TrimSpace(attr.Node))
	}
	return x
}

// restartPod is the step of starting a pod again.
func restartPod(w *blocks.Workload, target state.Subject, because string) Manual {
	return Manual{
		Target: target, Action: "restart pod " + w.FullName(), Because: because,
		Risk:    "the pod ends, and whoever owns it starts another: see first that it has an owner, that other replicas serve meanwhile, and what its PodDisruptionBudget allows (deleting a pod does not ask it)",
		Command: fmt.Sprintf("kubectl -n %s delete pod %s", state.Arg(w.Namespace), state.Arg(w.Name)),
	}
}
