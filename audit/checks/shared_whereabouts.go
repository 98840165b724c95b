package checks

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// whereaboutsReads are the reads that verdicts on allocations of secondary networks need.
var whereaboutsReads = []blocks.Resource{blocks.WhereaboutsPools, blocks.Pods}

// poolLook shows a pool of Whereabouts. Calico's pools have the same plural, so the command names
// the API group.
func poolLook(namespace, name string) string {
	return remedies.Shell("kubectl get ippools.whereabouts.cni.cncf.io %s -n %s -o yaml", name, namespace)
}

// networkSubject returns an address of a network as a subject, with the network's name, because
// other networks may use the same address.
func networkSubject(a netip.Addr, network, node string) state.Subject {
	s := state.IPSubject(a, node)
	s.Name = network
	return s
}

func poolSubject(p *whereabouts.Pool) state.Subject {
	return state.Subject{Kind: state.KindWhereaboutsPool, Name: p.FullName()}
}

func reservationSubject(r *blocks.WhereaboutsReservation) state.Subject {
	return state.Subject{Kind: state.KindWhereaboutsReservation, Name: r.Key().String()}
}

// reservationPools lists the pools that may record the address of a reservation.
func reservationPools(v *whereabouts.Verdicts, r *blocks.WhereaboutsReservation) (out []string) {
	for network, a := range r.Addresses() {
		out = append(out, whereabouts.FullNames(v.PoolsAt(r.Namespace, network, a))...)
	}
	return out
}

// servingPools lists the pools that may have assigned an address of a network.
func servingPools(v *whereabouts.Verdicts, network string, a netip.Addr) []string {
	return whereabouts.FullNames(slices.DeleteFunc(slices.Clone(v.SecondaryPools), func(p *whereabouts.Pool) bool {
		return !p.Range.Masked().Contains(a) || p.Network.Known && p.Network.Name != network
	}))
}

// secondaryEvidence returns the pool's record of an allocation as evidence.
func secondaryEvidence(a *whereabouts.Allocation, more ...any) []state.Evidence {
	return state.Evidences(append([]any{"pool", a.Pool.FullName(), "range", a.Pool.RangeText, "pod", podText(a.WhereaboutsOwner),
		"interface", a.Interface, "container", a.ContainerID}, more...)...)
}

func podText(o blocks.WhereaboutsOwner) string {
	if o.Pod == (blocks.Key{}) {
		return "none is recorded"
	}
	return o.Pod.String()
}

// provenOrNot returns the first remedy if it is proven that nothing uses an address, else the
// second one, which asks for the proof.
func provenOrNot(ways []remedies.Remedy, proven bool) []remedies.Remedy {
	if proven {
		return ways[:1]
	}
	return ways[1:2]
}

// releaseSecondary returns the remedies for addresses that pods left behind: with proof, and
// without.
func releaseSecondary(flag string) []remedies.Remedy {
	const title, effect = "release the unused addresses in secondary networks", "the addresses can be assigned again"
	return []remedies.Remedy{
		remedies.Repair(title, flag, effect, "none: each address is released only if host evidence shows that it is unused"),
		remedies.ByHand(title+", with host views of the nodes (--host-views) or without host evidence (--without-host-evidence)", effect,
			"without host evidence, a container that outlived its pod shares its address with the next pod", "calico-audit repair "+flag),
	}
}

// eachOfStatus adds a finding for each allocation with the given status.
func eachOfStatus(st *state.State, f *audit.Findings, status whereabouts.Status, finding func(*whereabouts.Allocation) audit.Finding) {
	if name, unread := st.UnreadPod(); unread {
		f.Inconclusive("not evaluated where only pods can show the owner: pod %s could not be read", name)
	}
	v := whereabouts.Of(st)
	for _, a := range v.WithStatus(status) {
		x := finding(a)
		x.Subject, x.Absence, x.Severity, x.Pools = a.Subject(), true, f.Check.Severities[0], []string{a.Pool.FullName()}
		if x.Evidence == nil {
			x.Evidence = secondaryEvidence(a)
		}
		if x.Remedies = strandedRemedies[2:]; v.ReleaseBar(a).Code == "" {
			x.Remedies = provenOrNot(strandedRemedies, v.Unused(a.Addr, a.WhereaboutsOwner, v.Machines(a), a.Pool.Assigned.Std()))
		}
		if x.Fix = audit.FixOf(x.Remedies); x.Remedies[0].Manual {
			x.Fix = audit.Look(poolLook(a.Pool.Namespace, a.Pool.Name))
		}
		f.Add(x)
	}
}
