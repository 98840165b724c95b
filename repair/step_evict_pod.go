package repair

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// evictPod has one pod start again elsewhere, within its PodDisruptionBudgets, and waits
// for its replacement: out of a block that is emptied, or out of another node's block
// when its own node has addresses by now.
var evictPod = &StepKind{
	kind: EvictPod, flag: "--consolidate",
	asked: func(r Request) bool { return r.Consolidate || r.Rehome },
	needs: state.ReleaseReads,
	whole: func(*Step) bool { return true },
	plain: true,
	exact: []string{GuardPod, GuardPodUID, GuardController, GuardBlock, GuardConsolidation, GuardInNeed},
	propose: func(p *proposals) {
		if c := p.consolidating(); c != nil && p.req.Consolidate {
			for _, m := range c.Moves {
				p.evict(m, p.aboutAll(c, state.IPSubject(m.Addr, m.Pod.Node)), joins(c),
					fmt.Sprintf("pod %s keeps %s from being given to %s", m.Pod.FullName(), c.CIDR, c.For))
			}
			return
		}
		if p.req.Rehome {
			p.rehome()
		}
	},
	refs: func(r *refs, s *Step) {
		namespace, name, _ := strings.Cut(s.Guard(GuardPod), "/")
		r.pod(namespace, name)
		r.node(s.Target.Node)
		r.block(prefixOf(state.Subject{CIDR: s.Guard(GuardBlock)}))
		consolidationRefs(r, s)
	},
	ready: (*Turn).mayEvict,
	act: func(ctx context.Context, w Workloads, _ *state.State, s *Step) error {
		namespace, name, _ := strings.Cut(s.Guard(GuardPod), "/")
		return w.Evict(ctx, namespace, name, s.Guard(GuardPodUID))
	},
	verify: func(st *state.State, s *Step) error {
		if w := PodOf(st, s); w != nil {
			return fmt.Errorf("pod %s is still there", w.FullName())
		}
		return nil
	},
	settled: replacedPod,
	undo: func(*Begun) Move {
		return nothing(NotNeeded, "an eviction cannot be undone: the pod's controller has made another pod")
	},
	pretend: func(x *pretence, s *Step) { x.evict(s) },
}

// stillHas reports whether the address of a pod that is gone is recorded for it still: its
// node takes its network down before or after.
func stillHas(st *state.State, s *Step) bool {
	addr, err := netip.ParseAddr(s.Target.IP)
	b := blockAt(st, s.Guard(GuardBlock))
	if err != nil || b == nil {
		return false
	}
	i, ok := b.Ordinal(addr)
	if !ok || b.Ordinals[i] == blocks.Free {
		return false
	}
	attr := b.At(i)
	return attr != nil && attr.Namespace+"/"+attr.Pod == s.Guard(GuardPod) && len(st.Users(addr)) == 0
}

// PodOf returns the pod that a step evicts; nil if it is gone, or another has its name.
func PodOf(st *state.State, s *Step) *blocks.Workload {
	namespace, name, _ := strings.Cut(s.Guard(GuardPod), "/")
	if w := st.Pod(namespace, name); w != nil && w.UID == s.Guard(GuardPodUID) {
		return w
	}
	return nil
}

func (p *proposals) evict(m remedies.Move, c concern, joined []Guard, why string) {
	if !p.wants(c.target) {
		return
	}
	w, controller, by := m.Pod, "", "nothing, so that it is gone for good"
	if w.Controller != nil {
		controller, by = w.Controller.UID, w.Controller.Kind+" "+w.Controller.Name
	} else {
		why += "; evicted it is gone for good: it has no controller, and nothing makes it again"
	}
	block := ""
	if b := blockWith(p.st, m.Addr); b != nil {
		block = b.CIDR.String()
	}
	p.add(c, Step{
		Because: why,
		Evidence: state.Evidences("pod", w.FullName(), "node", w.Node, "address", m.Addr.String(), "made again by", by,
			"lost with it", onlyIf(w.HasScratch, "what its emptyDir volumes hold")),
		Guards: append(guards(GuardPod, w.FullName(), GuardPodUID, w.UID, GuardController, orAbsent(controller), GuardBlock, orAbsent(block)),
			joined...),
	}, w.Meta)
}

// blockWith returns the block that an address lies in; nil if there is none.
func blockWith(st *state.State, addr netip.Addr) *state.Block {
	i := slices.IndexFunc(st.IPBlocks, func(b *state.Block) bool { return b.CIDR.Contains(addr) })
	if i < 0 {
		return nil
	}
	return st.IPBlocks[i]
}

// rehome proposes to evict pods that borrow, where their node has addresses by now.
func (p *proposals) rehome() {
	for _, m := range p.rehomes(true) {
		b := blockWith(p.st, m.Addr)
		gets := "it gets an address of its own node's"
		if m.Elsewhere {
			gets = "it comes to another node, which has addresses of its own: " + m.Pod.Node + " has none (whether a nodeSelector or an affinity keeps it there is not looked at)"
		}
		why := fmt.Sprintf("pod %s uses %s of a block of %s", m.Pod.FullName(), m.Addr, b.Owner.Node())
		if m.Pod.Controller != nil {
			why += "; started again " + gets
		}
		p.evict(m, p.everyBorrower(state.IPSubject(m.Addr, m.Pod.Node)), guards(GuardConsolidation, remedies.Rehoming), why)
	}
}

// everyBorrower is what a step of the rehoming concerns: all have the same nodes, so that
// no filter takes some of them away.
func (p *proposals) everyBorrower(target state.Subject) concern {
	c := concern{target: target}
	now, _ := remedies.Of(p.st).Rehomes()
	for _, m := range now {
		if b := blockWith(p.st, m.Addr); b != nil {
			c.pools, c.nodes = append(c.pools, poolNames(b.Pool)...), append(c.nodes, m.Pod.Node, b.Owner.Node())
		}
	}
	return c
}

// rehomes returns the pods that are to be rehomed; with say, the others are refused.
func (p *proposals) rehomes(say bool) []remedies.Move {
	if !p.req.Rehome {
		return nil
	}
	refuse := func(c concern, r reason) {
		if say && p.wants(c.target) {
			p.bars(c, r)
		}
	}
	if len(remedies.Of(p.st).Begun()) > 0 {
		if say {
			p.bars(concern{target: state.ClusterSubject(p.st)}, because(RefusedConflict, "a block is being emptied: that comes first (--consolidate)"))
		}
		return nil
	}
	full := remedies.Of(p.st).Full()
	name, unread := p.st.UnreadPod()
	var out []remedies.Move
	now, later := remedies.Of(p.st).Rehomes()
	for i, m := range slices.Concat(now, later) {
		b := blockWith(p.st, m.Addr)
		if b == nil {
			continue
		}
		c := p.everyBorrower(state.IPSubject(m.Addr, m.Pod.Node))
		if p.req.beside(p.st, c.target, poolNames(b.Pool), []string{m.Pod.Node, b.Owner.Node()}) {
			continue
		}
		why := remedies.Of(p.st).EvictionBar(m.Pod)
		switch {
		case unread:
			refuse(c, because(RefusedNotRead, "pod %s could not be read", name))
		case why != "":
			refuse(c, because(RefusedSpecial, "pod %s %s", m.Pod.FullName(), why))
		case i >= len(now):
			refuse(c, because(RefusedConflict, "%s", m.Stays))
		case p.st.Cluster.Live && !p.st.BudgetsKnown:
			refuse(c, because(RefusedNotRead, "PodDisruptionBudgets were not read, so that nothing says whether pod %s may be evicted", m.Pod.FullName()))
		case remedies.Of(p.st).Unguarded(m.Pod) && !p.req.EvictSingletons:
			refuse(c, because(RefusedConsent, "%s: consent with --evict-singletons", unguardedText([]remedies.Move{m})))
		case len(full) > 0 && !p.req.CordonFull:
			refuse(c, because(RefusedConsent, "the scheduler may put it where no address is left for it, so that it borrows again or waits: consent with --cordon-full, to cordon %s meanwhile", phrase.List(full)))
		default:
			out = append(out, m)
		}
	}
	return out
}

// mayEvict says from when on a pod may be evicted, or why it must not be: only if no
// replacement can come to a node that has no address for it, and none of the controller's
// other pods is missing.
func (a *Turn) mayEvict(s *Step) (due time.Time, _ reason) {
	if due, r := a.afterReservation(s); r.code != "" || !due.IsZero() {
		return due, r
	}
	if r := a.wouldBorrow(s); r.code != "" {
		return time.Time{}, r
	}
	return a.othersReady(s)
}

// wouldBorrow refuses while a replacement of the pod that a step evicts may come to a node
// without an address of its own.
func (a *Turn) wouldBorrow(s *Step) reason {
	full := remedies.Of(a.State).Full
	if s.Group() != remedies.Rehoming {
		begun := remedies.Of(a.State).Begun()
		i := slices.IndexFunc(begun, func(c *remedies.Consolidation) bool { return c.Name() == s.Group() })
		if i < 0 {
			return because(RefusedConflict, "what the pod was to move for is not under way any more")
		}
		full = func() []string { return begun[i].Cordon }
	}
	if names := full(); len(names) > 0 {
		return because(RefusedConflict, "a replacement may come to %s, which has no address of its own: it is to be cordoned first, by a new plan", phrase.List(names))
	}
	return reason{}
}

// othersReady waits while another pod of the controller is not ready or ends, and then
// says that the pod must not be evicted: whatever made that one fail, another run or an
// earlier one of this plan perhaps, one pod of it is missing already.
func (a *Turn) othersReady(s *Step) (due time.Time, _ reason) {
	missing := missingBeside(a.State, s)
	if missing == nil {
		return time.Time{}, reason{}
	}
	now := a.State.Cluster.TakenAt
	if _, waits := a.Waits[s.ID]; !waits {
		a.Waits[s.ID] = now
	}
	what := fmt.Sprintf("pod %s of the same %s is not ready", missing.FullName(), missing.Controller.Kind)
	if limit := a.EvictTimeout; !now.Before(a.Waits[s.ID].Add(limit)) {
		return time.Time{}, because(RefusedConflict, "%s, after %s: another must not be missing beside it", what, limit)
	}
	return now.Add(EvictPoll), reason{why: what}
}

// missingBeside returns a pod, other than the one that a step evicts, of the same
// controller that is not ready or ends; nil if there is none. One that has waited for an
// address of the node in need does not count where a PodDisruptionBudget says how many may
// be missing: it is what the block is freed for.
func missingBeside(st *state.State, s *Step) *blocks.Workload {
	controller := s.Guard(GuardController)
	for i := range st.Workloads {
		w := &st.Workloads[i]
		if w.Controller == nil || w.Controller.UID != controller || w.UID == s.Guard(GuardPodUID) || !w.Live() || w.Ready && w.Deleting.IsZero() {
			continue
		}
		covered := slices.ContainsFunc(st.Budgets, func(b blocks.DisruptionBudget) bool { return b.Covers(w) })
		if w.Deleting.IsZero() && w.Waiting() && w.Node == s.Guard(GuardInNeed) && covered {
			continue
		}
		return w
	}
	return nil
}

// replacedPod reports whether an evicted pod is gone and its controller has as many pods
// as before, and as many ready, with every new one; a DaemonSet one that is ready on the
// same node, whatever becomes of the others. It is an error if a new pod of it borrows its address: so would the
// next.
func replacedPod(before, now *state.State, s *Step) (done bool, waits string, err error) {
	if w := PodOf(now, s); w != nil {
		return false, "the pod ends", nil
	}
	if stillHas(now, s) {
		return false, "its address is not released yet", nil
	}
	controller := s.Guard(GuardController)
	if controller == Absent {
		return true, "", nil
	}
	had, has := remedies.Of(before).PodsOf(controller), remedies.Of(now).PodsOf(controller)
	if was := PodOf(before, s); was != nil && was.Controller != nil && was.Controller.Kind == "DaemonSet" {
		elsewhere := func(w *blocks.Workload) bool { return w.Node != was.Node }
		had, has = slices.DeleteFunc(had, elsewhere), slices.DeleteFunc(has, elsewhere)
	}
	ready := func(ws []*blocks.Workload) (n int) {
		for _, w := range ws {
			if w.Ready {
				n++
			}
		}
		return n
	}
	waits, done = "its replacement is not there yet", len(has) >= len(had) && ready(has) >= ready(had)
	for _, w := range has {
		if slices.ContainsFunc(had, func(o *blocks.Workload) bool { return o.UID == w.UID }) {
			continue
		}
		for _, b := range now.Borrows {
			if b.Workload == w {
				return false, "", fmt.Errorf("its replacement %s borrows %s of %s on %s", w.FullName(), b.Addr, b.Owner, b.User)
			}
		}
		if !w.Ready {
			done = false
			waits = fmt.Sprintf("its replacement %s is not ready yet (%s)", w.FullName(), phrase.OrNone(w.Phase))
			if w.Waiting() {
				waits = fmt.Sprintf("its replacement %s waits for an address on %s", w.FullName(), w.Node)
			}
		}
	}
	return done, waits, nil
}
