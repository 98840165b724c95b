package affinity

import (
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

func newRules(s *blocks.Snapshot) rules {
	r := rules{byName: map[string]*blocks.BGPFilter{}, unreadable: map[string]string{}}
	for i := range s.BGPFilters {
		r.byName[s.BGPFilters[i].Name] = &s.BGPFilters[i]
	}
	if g, missing := s.Missing(blocks.BGPFilters); missing {
		r.gap = g.String()
	}
	for _, g := range s.Unreadable(blocks.BGPFilters) {
		r.unreadable[g.Name] = g.String()
	}
	return r
}

// outcome is the effect of a session's filters on a route. Several effects are possible if
// a rule depends on an unknown fact.
type outcome struct {
	accept, reject, none bool
	// filter is the deciding filter. If that is unknown, doubt explains why.
	filter, doubt string
}

// evaluate applies the filters of a session, in order, to the route to one address. learned
// is true for a route from a BGP peer, false for a route to the node's own workload.
func (r *rules) evaluate(names []string, a netip.Addr, export, learned bool) outcome {
	var o outcome
	for _, name := range names {
		why, bad := r.unreadable[name]
		if !bad && r.byName[name] == nil && r.gap != "" {
			why, bad = r.gap, true
		}
		if bad {
			return outcome{accept: true, reject: true, none: true, filter: name, doubt: why}
		}
		f := r.byName[name]
		if f == nil {
			continue // confd omits filters that do not exist
		}
		for _, rule := range f.Rules(blocks.FamilyOf(a), export) {
			m, doubt := matches(rule, a, learned)
			if m == no {
				continue
			}
			o.filter = name
			if m == perhaps {
				o.doubt = doubt
			}
			switch rule.Action {
			case apiv3.Accept:
				o.accept = true
			case apiv3.Reject:
				o.reject = true
			default:
				return outcome{accept: true, reject: true, none: true, filter: name, doubt: "it has an action that Calico does not know"}
			}
			if m == yes {
				return o
			}
		}
	}
	o.none = true
	return o
}

// matches reports whether a rule matches the route to one address (confd
// pkg/resource/template/template_funcs.go, filterStatement). If that is unknown, it
// explains why.
func matches(rule blocks.BGPFilterRule, a netip.Addr, learned bool) (answer, string) {
	m, doubt := matchesCIDR(rule, a)
	switch {
	case m == no:
		return no, ""
	case rule.Source == apiv3.BGPFilterSourceRemotePeers && !learned:
		return no, ""
	case rule.Source != "" && rule.Source != apiv3.BGPFilterSourceRemotePeers:
		return perhaps, "it has a source that Calico does not know"
	case rule.Interface != "":
		return perhaps, "it has a rule about interfaces"
	}
	return m, doubt
}

func matchesCIDR(rule blocks.BGPFilterRule, a netip.Addr) (answer, string) {
	if !rule.CIDR.IsValid() {
		return yes, ""
	}
	if rule.CIDR.Addr().Is4() != a.Is4() {
		return perhaps, "it has a CIDR of the other family"
	}
	bounded := rule.MinLength >= 0 || rule.MaxLength >= 0
	in := rule.CIDR.Contains(a)
	if bounded {
		low, high := max(rule.CIDR.Bits(), rule.MinLength), a.BitLen()
		if rule.MaxLength >= 0 {
			high = min(high, rule.MaxLength)
		}
		if low > high {
			return perhaps, "its upper bound for the length of prefixes is below its lower bound"
		}
		in = in && high == a.BitLen()
	}
	same := rule.CIDR.Bits() == a.BitLen() && rule.CIDR.Addr() == a
	switch op := rule.Operator; {
	case op == apiv3.In:
		return truth(in), ""
	case op == apiv3.NotIn:
		return truth(!in), ""
	case bounded:
		return perhaps, "it compares for equality and bounds the length of prefixes"
	case op == apiv3.Equal:
		return truth(same), ""
	case op == apiv3.NotEqual:
		return truth(!same), ""
	}
	return perhaps, "it has an operator that Calico does not know"
}

func truth(b bool) answer {
	if b {
		return yes
	}
	return no
}
