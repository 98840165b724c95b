package moves

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
	"github.com/calico-audit/calico-audit/repair"
)

// Evict moves one pod within its PodDisruptionBudgets and waits for its replacement. The pod leaves
// a block that is being emptied, or another node's block if a node has a free address of its own
// for it.
var Evict = &repair.StepKind{
	Kind:       repair.EvictPod,
	Requires:   state.ReleaseReads,
	RestsOnAll: func(*repair.Step) bool { return true },
	Plain:      true,
	Exact:      []string{repair.GuardPod, repair.GuardPodUID, repair.GuardController, repair.GuardBlock, repair.GuardConsolidation, repair.GuardForNode},
	Rights:     []repair.Right{repair.May(blocks.Pods, "get"), repair.May(repair.Evictions, "create"), repair.May(blocks.Budgets, "list"), repair.LeaseRight},
	Propose: func(p *repair.Proposals) {
		if c := Consolidating(p); c != nil && p.Request.Consolidate {
			for _, m := range c.Moves {
				evict(p, m, AboutAll(c, state.IPSubject(m.Addr, m.Pod.Node)), Joins(c),
					fmt.Sprintf("pod %s keeps %s from being given to %s", m.Pod.FullName(), c.CIDR, c.For))
			}
			return
		}
		if p.Request.Rehome {
			rehome(p)
		}
	},
	Idle: nothingToRehome,
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		namespace, name, _ := strings.Cut(s.Guard(repair.GuardPod), "/")
		r.Pod(namespace, name)
		r.Node(s.Target.Node)
		r.Block(repair.PrefixOf(state.Subject{CIDR: s.Guard(repair.GuardBlock)}))
		consolidationRefs(r, s)
	},
	Due: mayEvict,
	Act: func(ctx context.Context, w repair.Workloads, _ *state.State, s *repair.Step) error {
		namespace, name, _ := strings.Cut(s.Guard(repair.GuardPod), "/")
		return w.Evict(ctx, namespace, name, s.Guard(repair.GuardPodUID))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if w := PodOf(st, s); w != nil {
			return fmt.Errorf("pod %s is still there", w.FullName())
		}
		return nil
	},
	Settled: replacedPod,
	Undo: func(*repair.Begun) repair.Move {
		return repair.Nothing(repair.NotNeeded, "an eviction cannot be undone: the pod's controller has created another pod")
	},
	// The pod and its address disappear.
	Pretend: func(x *repair.Pretence, s *repair.Step) {
		frees := x.Free
		if x.IPAM.Cooldown > 0 {
			frees = x.Cool
		}
		i := slices.IndexFunc(x.Workloads, func(w *blocks.Workload) bool { return w.UID() == s.Guard(repair.GuardPodUID) })
		if i < 0 {
			return
		}
		for a := range x.Workloads[i].Addresses { // of both families
			for name, b := range x.BlockByName {
				if b.CIDR.Contains(a) {
					frees(name, a)
				}
			}
		}
		x.Workloads = slices.Delete(x.Workloads, i, i+1)
	},
}

// stillHas reports whether the address of a deleted pod is still recorded for it. Its node may
// remove the network before or after the pod is deleted.
func stillHas(st *state.State, s *repair.Step) bool {
	addr, err := netip.ParseAddr(s.Target.IP)
	b := repair.BlockAt(st, s.Guard(repair.GuardBlock))
	if err != nil || b == nil {
		return false
	}
	i, ok := b.Ordinal(addr)
	if !ok || b.Ordinals[i] == blocks.Free {
		return false
	}
	attr := b.At(i)
	return attr != nil && attr.Namespace+"/"+attr.Pod == s.Guard(repair.GuardPod) && len(st.Users(addr)) == 0
}

// PodOf returns the pod that a step evicts, or nil if it does not exist or another pod
// has its name.
func PodOf(st *state.State, s *repair.Step) *blocks.Workload {
	namespace, name, _ := strings.Cut(s.Guard(repair.GuardPod), "/")
	if w := st.Pod(namespace, name); w != nil && w.UID() == s.Guard(repair.GuardPodUID) {
		return w
	}
	return nil
}

func evict(p *repair.Proposals, m remedies.Move, c repair.Concern, joined []repair.Guard, why string) {
	if !p.Wants(c.Target) {
		return
	}
	w, controller, by := m.Pod, "", "nothing, so it is gone for good"
	if w.Controller != nil {
		controller, by = w.Controller.UID, w.Controller.Kind+" "+w.Controller.Name
	} else {
		why += "; it has no controller: once evicted, it is gone for good"
	}
	block := ""
	if b := p.State.CoveringBlock(m.Addr); b != nil {
		block = b.CIDR.String()
	}
	p.Add(c, repair.Step{
		Because: why,
		Evidence: state.Evidences("pod", w.FullName(), "node", w.Node, "address", m.Addr, "made again by", by,
			"lost with it", repair.OnlyIf(w.HasScratch, "the data in its emptyDir volumes")),
		Guards: append(repair.Guards(repair.GuardPod, w.FullName(), repair.GuardPodUID, w.UID(), repair.GuardController, repair.OrAbsent(controller), repair.GuardBlock, repair.OrAbsent(block)),
			joined...),
	}, w.Meta)
}

// rehome proposes evictions of pods that borrow although their node has free addresses.
func rehome(p *repair.Proposals) {
	c := everyBorrower(p)
	for _, m := range rehomes(p, true) {
		c.Target = state.IPSubject(m.Addr, m.Pod.Node)
		b := p.State.CoveringBlock(m.Addr)
		gets := "gets an address of its own node's blocks"
		if m.Elsewhere {
			gets = "starts on another node, as " + m.Pod.Node + " has no free address left for it"
		}
		why := fmt.Sprintf("pod %s borrows %s from %s", m.Pod.FullName(), m.Addr, b.Owner.Node())
		if m.Pod.Controller != nil {
			why += "; its replacement " + gets
		}
		evict(p, m, c, repair.Guards(repair.GuardConsolidation, remedies.Rehoming), why)
	}
}

// everyBorrower returns the concern of a rehoming step. All steps have the same nodes, so
// that no filter removes some of them.
func everyBorrower(p *repair.Proposals) (c repair.Concern) {
	now, _ := remedies.Of(p.State).Rehomes()
	for _, m := range now {
		if b := p.State.CoveringBlock(m.Addr); b != nil {
			c.Pools, c.Nodes = append(c.Pools, state.PoolsOf(b.Pool)...), append(c.Nodes, m.Pod.Node, b.Owner.Node())
		}
	}
	c.Pools, c.Nodes = repair.Tidy(c.Pools), repair.Tidy(c.Nodes)
	return c
}

// rehomes returns the pods to rehome. If say is set, the others are refused.
func rehomes(p *repair.Proposals, say bool) []remedies.Move {
	if !p.Request.Rehome {
		return nil
	}
	refuse := func(c repair.Concern, r repair.Reason) {
		if say && p.Wants(c.Target) {
			p.Bars(c, r)
		}
	}
	if len(remedies.Of(p.State).Begun()) > 0 {
		if say {
			p.Bars(repair.Concern{Target: state.ClusterSubject(p.State)}, repair.Because(repair.RefusedNotYet, "a block is being emptied: that comes first (--consolidate)"))
		}
		return nil
	}
	consents := remedies.Consents{CordonFull: p.Request.CordonFull, EvictSingletons: p.Request.EvictSingletons}
	whole := p.State.WholeBar(state.ReleaseReads, p.Only == "") // a pod that anyone may write stops no run
	var out []remedies.Move
	moves := map[*blocks.Workload]bool{}
	now, later := remedies.Of(p.State).Rehomes()
	for _, m := range slices.Concat(now, later) {
		b := p.State.CoveringBlock(m.Addr)
		if b == nil {
			continue
		}
		c := repair.Concern{Target: state.IPSubject(m.Addr, m.Pod.Node), Pools: state.PoolsOf(b.Pool), Nodes: []string{m.Pod.Node, b.Owner.Node()}}
		if p.Request.Beside(p.State, c.Target, c.Pools, c.Nodes) {
			continue
		}
		bar := remedies.Of(p.State).RehomeBar(m, consents)
		switch {
		case moves[m.Pod]: // it gives up its address of the other family, too
		case bar.Code != "":
			refuse(c, repair.Because(retainCodes[bar.Code], "%s", bar.Reason))
		case whole.Code != "":
			refuse(c, repair.Because(repair.RefusedNotRead, "%s", whole.Reason))
		case p.State.Cluster.Live && !p.State.BudgetsKnown: // reports read no budgets, so they offer it all the same
			refuse(c, repair.Because(repair.RefusedNotRead, "PodDisruptionBudgets were not read, so it is unknown whether pod %s may be evicted", m.Pod.FullName()))
		default:
			out, moves[m.Pod] = append(out, m), true
		}
	}
	return out
}

// retainCodes maps the reasons not to evict a borrowing pod to refusal codes.
var retainCodes = map[state.RetainReason]repair.RefusalCode{
	state.RetainNotRead: repair.RefusedNotRead, state.RetainSpecial: repair.RefusedSpecial, remedies.RetainNowhere: repair.RefusedNowhere, remedies.RetainConsent: repair.RefusedConsent,
}

// mayEvict returns when a pod may be evicted, or why it must not be. No replacement may
// start on a node without an address for it, and no other pod of the controller may be
// missing.
func mayEvict(a *repair.Turn, s *repair.Step) (due time.Time, _ repair.Reason) {
	if due, r := AfterReservation(a, s); r.Code != "" || !due.IsZero() {
		return due, r
	}
	if r := WouldBorrow(a, s); r.Code != "" {
		return time.Time{}, r
	}
	return othersReady(a, s)
}

// WouldBorrow returns a reason if a replacement of the evicted pod could start on a node without an
// address of its own, or could start nowhere else.
func WouldBorrow(a *repair.Turn, s *repair.Step) repair.Reason {
	addr, err := netip.ParseAddr(s.Target.IP)
	if err != nil {
		return repair.Because(repair.RefusedCorrupt, "the step's target has no address, but ip %q", s.Target.IP)
	}
	if w := PodOf(a.State, s); w != nil {
		if why := remedies.Of(a.State).NowhereFor(w, addr); why != "" {
			return repair.Because(repair.RefusedNowhere, "%s", why)
		}
	}
	full := remedies.Of(a.State).Full
	if s.Group() != remedies.Rehoming {
		begun := remedies.Of(a.State).Begun()
		i := slices.IndexFunc(begun, func(c *remedies.Consolidation) bool { return c.Name() == s.Group() })
		if i < 0 {
			return repair.Because(repair.RefusedConflict, "the consolidation for which the pod moves is no longer in progress")
		}
		full = func() blocks.Names {
			return slices.DeleteFunc(slices.Clone(begun[i].Cordon), func(name string) bool { return name == begun[i].Precaution })
		}
	}
	if names := full(); len(names) > 0 {
		return repair.Because(repair.RefusedNowhere, "a replacement may start on %s, which would have no address of its own left", names)
	}
	return repair.Reason{}
}

// othersReady waits while another pod of the controller is not ready or is terminating. After the
// timeout it returns a reason not to evict, because one of the controller's pods is already
// missing, whatever the cause.
func othersReady(a *repair.Turn, s *repair.Step) (due time.Time, _ repair.Reason) {
	missing := missingBeside(a.State, s)
	if missing == nil {
		return time.Time{}, repair.Reason{}
	}
	what := fmt.Sprintf("pod %s of the same %s is not ready", missing.FullName(), missing.Controller.Kind)
	if a.Left(s) <= 0 {
		return time.Time{}, repair.Because(repair.RefusedConflict, "%s, after %s: no other pod of it may be missing at the same time", what, a.EvictTimeout)
	}
	return a.State.Cluster.TakenAt.Add(EvictPoll), repair.Reason{Why: what}
}

// missingBeside returns another pod of the same controller that is not ready or is terminating, or
// nil. It ignores a pod that waits for an address on the node in need, because the block is freed
// for that pod. It does so only if a PodDisruptionBudget limits how many pods may be missing.
func missingBeside(st *state.State, s *repair.Step) *blocks.Workload {
	controller := s.Guard(repair.GuardController)
	for _, w := range st.Workloads {
		if w.Controller == nil || w.Controller.UID != controller || w.UID() == s.Guard(repair.GuardPodUID) || !w.Live() || w.Ready && w.Deleting.IsZero() {
			continue
		}
		covered := slices.ContainsFunc(st.Budgets, func(b blocks.DisruptionBudget) bool { return b.Covers(w) })
		if w.Deleting.IsZero() && w.Waiting() && w.Node == s.Guard(repair.GuardForNode) && covered {
			continue
		}
		return w
	}
	return nil
}

// replacedPod reports whether an evicted pod has ended and its controller has as many
// pods, and as many ready ones, as before, with every new pod ready. A DaemonSet must
// have a ready pod on the same node; its other pods do not matter. If a new pod of the
// controller borrows its address, replacedPod returns an error, because the next one
// would, too.
func replacedPod(before, now *state.State, s *repair.Step) (done bool, waits string, err error) {
	if w := PodOf(now, s); w != nil {
		return false, "the pod ends", nil
	}
	if stillHas(now, s) {
		return false, "its address is not released yet", nil
	}
	controller := s.Guard(repair.GuardController)
	if controller == repair.Absent {
		return true, "", nil
	}
	had, has := remedies.Of(before).PodsOf(controller), remedies.Of(now).PodsOf(controller)
	if was := PodOf(before, s); was != nil && was.OfDaemonSet() {
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
	waits, done = "its replacement does not exist yet", len(has) >= len(had) && ready(has) >= ready(had)
	if len(had) > 0 {
		waits = fmt.Sprintf("%s %s has not created its replacement yet (its events say why, such as a quota or an admission policy)", had[0].Controller.Kind, had[0].Controller.Name)
	}
	for _, w := range has {
		if slices.ContainsFunc(had, func(o *blocks.Workload) bool { return o.UID() == w.UID() }) {
			continue
		}
		for _, b := range now.Borrows {
			if b.Workload == w {
				return false, "", fmt.Errorf("its replacement %s borrows %s of %s on %s", w.FullName(), b.Addr, b.Owner, b.User)
			}
		}
		if !w.Ready {
			done = false
			switch waits = fmt.Sprintf("its replacement %s is not ready yet (%s)", w.FullName(), phrase.OrNone(w.Phase)); {
			case w.Node == "":
				waits = fmt.Sprintf("its replacement %s waits for a node", w.FullName())
			case w.Waiting():
				waits = fmt.Sprintf("its replacement %s waits for an address on %s", w.FullName(), w.Node)
			}
		}
	}
	return done, waits, nil
}

// nothingToRehome explains why no borrowing pod is evicted.
func nothingToRehome(st *state.State) string {
	vms, tunnels := 0, 0
	for _, b := range st.Borrows {
		switch {
		case b.Tunnel:
			tunnels++
		case b.VM || b.Workload != nil && b.Workload.Extras().VM != "":
			vms++
		}
	}
	switch {
	case len(st.Borrows) == 0:
		return "no pod borrows its address"
	case vms+tunnels == len(st.Borrows):
		return fmt.Sprintf("the borrowed addresses belong to virtual machines (%s), which keep them wherever they run, and tunnels (%s), which no eviction moves", phrase.Plural(vms, "address"), phrase.Plural(tunnels, "address"))
	}
	return "no pod that borrows was seen to run"
}
