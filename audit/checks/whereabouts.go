package checks

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// whereaboutsReads are what the verdicts on allocations of secondary networks rest on.
var whereaboutsReads = []blocks.Resource{blocks.WhereaboutsPools, blocks.Pods}

// poolLook shows a pool of Whereabouts, whose plural is Calico's, too.
func poolLook(namespace, name string) string {
	return "kubectl get ippools.whereabouts.cni.cncf.io " + phrase.Arg(name) + " -n " + phrase.Arg(namespace) + " -o yaml"
}

// secondarySubject is an address of a secondary network as a subject.
func secondarySubject(a *whereabouts.Allocation) state.Subject {
	node := a.Pool.Node
	if a.Pod != nil {
		node = a.Pod.Node
	}
	return state.IPSubject(a.Addr, node)
}

func poolSubject(p *whereabouts.Pool) state.Subject {
	return state.Subject{Kind: state.KindWhereaboutsPool, Name: p.FullName()}
}

func reservationSubject(r *blocks.WhereaboutsReservation) state.Subject {
	return state.Subject{Kind: state.KindWhereaboutsReservation, Name: r.Key().String()}
}

// secondaryEvidence is what a pool records of an allocation.
func secondaryEvidence(a *whereabouts.Allocation, more ...string) []state.Evidence {
	return state.Evidences(append([]string{"pool", a.Pool.FullName(), "range", a.Pool.RangeText, "pod", podText(a.WhereaboutsOwner),
		"interface", a.Interface, "container", a.ContainerID}, more...)...)
}

func podText(o blocks.WhereaboutsOwner) string {
	if o.Pod == (blocks.Key{}) {
		return "none is recorded"
	}
	return o.Pod.String()
}

// eachOfStatus adds a finding for each allocation of a status.
func eachOfStatus(st *state.State, f *audit.Findings, status whereabouts.Status, make func(*whereabouts.Allocation) audit.Finding) {
	if name, unread := st.UnreadPod(); unread {
		f.Inconclusive("not evaluated where only pods could tell: pod %s could not be read", name)
	}
	for _, a := range whereabouts.Of(st).Allocations {
		if a.Status == status {
			x := make(a)
			x.Subject, x.Absence, x.Severity = secondarySubject(a), true, f.Check.Severities[0]
			if x.Evidence == nil {
				x.Evidence = secondaryEvidence(a)
			}
			x.Fix = audit.Look(poolLook(a.Pool.Namespace, a.Pool.Name))
			f.Add(x)
		}
	}
}
