package cluster

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// served is the result of discovering Calico's API groups.
type served struct {
	group  string // the group to read
	reason string // why that group
	// other is the second group that serves blocks; empty if there is none. otherLocked is
	// true if its datastore is locked.
	other       string
	otherLocked bool
	// inconclusive explains why it is unknown which of both groups Calico uses; else empty.
	inconclusive string
	// plurals are the resources that each API group serves. Nil means that the group exists
	// but could not be queried; it then counts as serving all, and the list requests
	// decide.
	plurals map[string]map[string]bool
	// neither is true if neither of Calico's groups is served.
	neither bool
	// streams is true if long lists should be read in one response.
	streams bool
}

// has reports whether a kind's resource can be listed.
func (s *served) has(k *decode.Kind) bool {
	if _, there := s.plurals[k.Beside]; k.Beside != "" && !there {
		return false
	}
	plurals, there := s.plurals[k.Version(s.group)]
	return k.Core || there && (plurals == nil || plurals[k.Plural(s.group)])
}

// absence returns the gap for a missing CRD. Optional kinds have no gap: if they are not
// served, no objects exist.
func (s *served) absence(k *decode.Kind) *decode.Objects {
	none := decode.NewObjects(k)
	if k.Optional {
		return none
	}
	reason := "not served: the cluster has no CRD " + k.Plural(s.group) + " of " + s.group
	if s.neither {
		reason = "not served: the cluster has no CRDs of Calico, neither of " + decode.GroupCRD + " nor of " + decode.GroupNative
	}
	none.Gaps = []blocks.Gap{{Resource: k.Resource, Reason: reason}}
	return none
}

// groupState is the datastore state in an API group's ClusterInformation.
type groupState struct{ present, locked bool }

// inUse reports whether Calico's components may write to the group. They create a
// ClusterInformation when they start, and pause while it is locked.
func (g groupState) inUse() bool { return g.present && !g.locked }
