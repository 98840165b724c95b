package planner

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/audit/state/releasable"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// asker finds the evidence that vanished pods no longer use their addresses. Evidence from one node
// serves many addresses, so it is found once.
type asker struct {
	*repair.Proposals
	*whereabouts.Verdicts
	known map[evidenceKey]releasable.Verdict
}

// evidenceKey identifies the evidence of nodes, apart from the address.
type evidenceKey struct {
	node  string // "" for all nodes
	since time.Time
	pod   string // set if it may be a virtual machine's
}

func newAsker(p *repair.Proposals) *asker {
	return &asker{p, whereabouts.Of(p.State), map[evidenceKey]releasable.Verdict{}}
}

// evidenceFor reports whether evidence shows an address unused on each node that its pod may have
// run on. The pod got the address before time since.
func (q *asker) evidenceFor(a netip.Addr, o blocks.WhereaboutsOwner, nodes []string, since blocks.Time) releasable.Verdict {
	if host, used := q.ShownInUse(a, o, since.Std()); used {
		return releasable.ByHost(q.Verdicts.State, consents(q.Request), host, false, "")
	}
	about := evidenceKey{since: since.Std()}
	if len(nodes) == 1 {
		about.node = nodes[0]
	}
	if strings.HasPrefix(o.Pod.Name, "virt-launcher-") {
		about.pod = o.Pod.String()
	}
	e, known := q.known[about]
	if !known {
		e = q.ask(o, nodes, about.since)
		q.known[about] = e
	}
	return e
}

// everyNode names the evidence that all nodes were asked because the pod's node is unknown. Its
// value is the number of nodes.
const everyNode = "nodes that it may have run on"

// ask asks each node, and returns the first objection, if any.
func (q *asker) ask(o blocks.WhereaboutsOwner, nodes []string, since time.Time) releasable.Verdict {
	st := q.Verdicts.State
	var off []string
	views, let := 0, 0
	var last releasable.Verdict
	for _, node := range nodes {
		host := q.HostEvidence(node, o, since)
		isOff, why := st.MachineOff(node)
		last = releasable.ByHost(st, consents(q.Request), host, isOff, why)
		switch {
		case last.Code != "":
			if len(nodes) > 1 {
				last.Reason = "its pod may have run on any node. On " + node + ": " + last.Reason
			}
			return last
		case last.Off != "":
			off = append(off, last.Off)
		case host.Verdict == hosts.ShowsFree:
			views++
		default:
			let++
		}
	}
	switch {
	case len(nodes) == 1:
		return last
	case len(nodes) == 0 && !q.Request.WithoutHostEvidence:
		return releasable.Verdict{Bar: state.Because(releasable.NoEvidence, "no node that its pod may have run on was read")}
	}
	var says blocks.Names
	for _, x := range []struct {
		n    int
		what string
	}{{views, "by a complete host view that does not show it"}, {len(off), "off"}, {let, "exempted by --without-host-evidence"}} {
		if x.n > 0 {
			says = append(says, phrase.Plural(x.n, "node")+" "+x.what)
		}
	}
	return releasable.Verdict{Evidence: "its pod may have run on any node: " + says.String(), Consent: let > 0 || len(nodes) == 0, Off: strings.Join(repair.Tidy(off), ", ")}
}

func places(pools []*whereabouts.Pool, a netip.Addr) (out []repair.SecondaryAddress) {
	for _, p := range pools {
		out = append(out, repair.SecondaryAddress{Pool: p.FullName(), Offset: p.Offset(a)})
	}
	return out
}

// addSecondaryRefs adds the objects that decide about a secondary network's address: the pools and
// the reservation that may record it, its pod, the pods that name it, and its node.
func addSecondaryRefs(r *repair.Refs, s *repair.Step, pools []*whereabouts.Pool, a netip.Addr) {
	for _, p := range pools {
		r.Namespaced(blocks.WhereaboutsPools, p.FullName())
		for _, n := range p.Attachments {
			r.Namespaced(blocks.NetworkAttachments, n.Key().String())
		}
	}
	r.Namespaced(blocks.Pods, s.Guard(repair.GuardPod))
	r.Namespaced(blocks.WhereaboutsReservations, s.Guard(repair.GuardReservation))
	for _, w := range r.State.Users(a) {
		r.Pod(w.Namespace, w.Name)
	}
	r.Node(s.Target.Node)
}

// addMachines adds the nodes that do not answer for their machines. A machine counts as off only
// while its node is not Ready.
func addMachines(r *repair.Refs, nodes []string) {
	for _, n := range nodes {
		if r.State.MachineMayRun(n) {
			r.One(blocks.Nodes, n)
		}
	}
}

// recordedInPool returns a pool's record of an address; nil if there is none.
func recordedInPool(st *state.State, pool string, a netip.Addr) *blocks.WhereaboutsAllocation {
	p := repair.SecondaryPoolNamed(st, pool)
	if p == nil {
		return nil
	}
	return repair.Find(p.Allocations, func(x *blocks.WhereaboutsAllocation) bool { return x.Addr == a })
}

// loneNamed returns a reservation that no pool explains; nil if a pool explains it or it does not
// exist.
func loneNamed(v *whereabouts.Verdicts, name string) *whereabouts.LoneReservation {
	all := v.Lone()
	return repair.Find(all, func(l *whereabouts.LoneReservation) bool { return l.Key().String() == name })
}

// leftReservation returns an error if a reservation that should be deleted still blocks its
// address. If its pod has the address again, it returns an error if the reservation is missing or
// belongs to another pod.
func leftReservation(st *state.State, name, uid, pod string) error {
	v := whereabouts.Of(st)
	if a := recordedUnder(v, name, pod); a != nil && uid != "" {
		switch r := repair.ReservationNamed(st, name); {
		case r == nil:
			return repair.LeftBehind(blocks.WhereaboutsReservations, name, "is missing, and pool %s records its address for pod %s", a.Pool.FullName(), pod)
		case r.Pod.String() != pod:
			return repair.LeftBehind(blocks.WhereaboutsReservations, name, repair.BothHave, r.Pod, a.Pool.FullName(), pod)
		}
	}
	l := loneNamed(v, name)
	if l == nil || l.UID() != uid || l.Pod != nil || l.User != nil {
		return nil
	}
	return repair.LeftBehind(blocks.WhereaboutsReservations, name, "is left, and no pool records its address")
}

// reservationAgain explains why a deleted reservation must not be recreated; zero if it may be.
func reservationAgain(v *whereabouts.Verdicts, c *repair.Change, n whereabouts.Network, a netip.Addr) repair.Move {
	pod := c.Was().Spec.PodRef
	if r := repair.ReservationNamed(v.State, c.Name); r != nil && r.Pod.String() != pod {
		return repair.Cannot(repair.SkipCode(repair.RefusedInUse), "the address has since been reserved for pod %s", r.Pod)
	}
	return usedSince(v, n, a, pod)
}

// reservedAt returns the places that may record the address of a reservation, by its name.
func reservedAt(v *whereabouts.Verdicts, name string) (out []repair.SecondaryAddress) {
	r := repair.ReservationOf(name)
	for network, a := range r.Addresses() {
		out = append(out, places(v.PoolsAt(r.Namespace, network, a), a)...)
	}
	return out
}

// recordedUnder returns the allocation through which a pod has the address of a reservation; nil if
// there is none.
func recordedUnder(v *whereabouts.Verdicts, name, pod string) *whereabouts.Allocation {
	r := repair.ReservationOf(name)
	for network, addr := range r.Addresses() {
		pools := v.PoolsAt(r.Namespace, network, addr)
		for _, a := range v.Recorded(addr) {
			if a.WhereaboutsOwner.Pod.String() == pod && slices.Contains(pools, a.Pool) {
				return a
			}
		}
	}
	return nil
}

// reserveAgain recreates the reservation that a run deleted before it was interrupted, if the pod
// has got, or may still get, the address again through it.
func reserveAgain(b *repair.Begun) repair.Move {
	c := b.Log.First(blocks.WhereaboutsReservations)
	if c == nil || c.Before == nil || repair.ReservationNamed(b.State, c.Name) != nil {
		return repair.Move{}
	}
	v, pod := whereabouts.Of(b.State), c.Was().Spec.PodRef
	reserve := func(ctx context.Context) error {
		return b.Writer.ReserveWhereabouts(ctx, c.Before, reservedAt(v, c.Name))
	}
	// The change was sent shortly after its recorded time.
	due := b.Log.Changes[len(b.Log.Changes)-1].At.Add(2 * repair.WhereaboutsRequest)
	namespace, name, named := strings.Cut(pod, "/")
	switch {
	case !named:
	case recordedUnder(v, c.Name, pod) != nil:
		return repair.ToWrite(reserve, "restoring the reservation, because its pod has the address again")
	case b.State.Pod(namespace, name) != nil && b.State.Cluster.TakenAt.Before(due):
		return repair.ToWrite(reserve, "waiting to see whether its pod, which exists again, gets the address that the deleted reservation held")
	}
	return repair.Move{}
}

// usedSince explains that a pod other than but now has an address of a network; zero if there is
// none.
func usedSince(v *whereabouts.Verdicts, n whereabouts.Network, a netip.Addr, but string) repair.Move {
	for _, w := range v.UsersOn(n, a) {
		if !w.Finished() && w.FullName() != but {
			return repair.Cannot(repair.SkipCode(repair.RefusedInUse), "pod %s now names %s", w.FullName(), a)
		}
	}
	for _, x := range v.RecordedOn(n, a) {
		if x.WhereaboutsOwner.Pod.String() != but {
			return repair.Cannot(repair.SkipCode(repair.RefusedInUse), "pool %s now records %s for pod %s", x.Pool.FullName(), a, cmp.Or(x.WhereaboutsOwner.Pod.String(), "none"))
		}
	}
	return repair.Move{}
}

// setSecondary replaces a pool's record of an address in a hypothetical state; nil removes it.
func setSecondary(x *repair.Pretence, pool string, a netip.Addr, now *blocks.WhereaboutsAllocation) {
	for i := range x.WhereaboutsPools {
		p := &x.WhereaboutsPools[i]
		if p.Key().String() != pool {
			continue
		}
		p.Allocations = slices.DeleteFunc(slices.Clone(p.Allocations), func(x blocks.WhereaboutsAllocation) bool { return x.Addr == a })
		if now != nil {
			p.Allocations = append(p.Allocations, *now)
			slices.SortFunc(p.Allocations, func(a, b blocks.WhereaboutsAllocation) int { return a.Addr.Compare(b.Addr) })
		}
	}
}

func dropReservation(x *repair.Pretence, name, uid string) {
	x.WhereaboutsReservations = slices.DeleteFunc(x.WhereaboutsReservations, func(r blocks.WhereaboutsReservation) bool {
		return r.Key().String() == name && r.UID() == uid
	})
}
