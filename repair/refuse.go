package repair

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// NewestKnown is the newest Calico release whose IPAM objects this version understands.
// v3.33 and newer let released addresses cool down: an ordinal without an owner but with
// a release time must not be freed early, and a released ordinal must pass through that
// state. The changes of later releases are unknown. So blocks, affinities and handles of
// newer clusters are not changed unless the operator consents.
const NewestKnown = "v3.32"

const newestMajor, newestMinor = 3, 32

// barred returns the reason why no step of the kind may be done in this cluster. The code
// is empty if steps are allowed.
func (p *Proposals) barred() Reason {
	if p.State.Info.Locked {
		return Reason{RefusedLocked, "the datastore is locked (\"calicoctl datastore migrate lock\" was run): IPAM must stand still until it is unlocked"}
	}
	if why := NewerThanKnown(p.State); why != "" && !p.Kind.Plain && !p.Request.AllowNewer {
		return Reason{RefusedVersion, why}
	}
	return Reason{}
}

// NewerThanKnown explains why the cluster's Calico may be newer than [NewestKnown], or
// returns "".
func NewerThanKnown(st *state.State) string {
	v := st.Cluster.CalicoVersion
	switch {
	case v == "" && !st.Cluster.Live:
		return "" // files without ClusterInformation; the version is read when the plan is applied
	case v == "":
		return "ClusterInformation does not say which Calico release runs, and releases newer than " + NewestKnown + " may mean something else by their objects"
	case !blocks.CalicoAtLeast(v, 0, 0):
		return fmt.Sprintf("this cluster runs Calico %q, which is not a release, and may be newer than %s, the newest whose objects are known", v, NewestKnown)
	case blocks.CalicoAtLeast(v, newestMajor, newestMinor+1):
		return fmt.Sprintf("this cluster runs Calico %s, and the newest whose objects are known is %s: use a newer calico-audit, or let it pass (--allow-newer-calico)", v, NewestKnown)
	}
	return ""
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
