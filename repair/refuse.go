package repair

import "github.com/calico-audit/calico-audit/audit/state"

// barred returns the reason why no step of the kind may be done in this cluster. The code
// is empty if steps are allowed.
func (p *Proposals) barred() Reason {
	if p.State.Info.Locked {
		return Reason{RefusedLocked, "the datastore is locked (\"calicoctl datastore migrate lock\" was run): IPAM must not change until the datastore is unlocked"}
	}
	if why := p.State.Cluster.NewerThanKnown(); why != "" && !p.Kind.Plain && !p.Request.AllowNewer {
		return Reason{RefusedVersion, why}
	}
	return Reason{}
}

// unread refuses a whole kind if a read that it requires is missing, and reports whether
// it did.
func (p *Proposals) unread() bool {
	b := p.State.ReadBar(p.Kind.Requires)
	if b.Code == "" && p.Kind.AllPods {
		b = p.State.PodBar()
	}
	if b.Code != "" {
		p.Refuse(Concern{Target: state.ClusterSubject(p.State)}, RefusedNotRead, "no %s is planned, because %s", p.Kind.Kind, b.Reason)
	}
	return b.Code != ""
}
