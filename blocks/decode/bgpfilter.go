package decode

import (
	"slices"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

var bgpFilters = describe(Kind{
	Resource: blocks.BGPFilters, Names: []string{apiv3.KindBGPFilter}, Optional: true,
	Absent: func(s *blocks.Snapshot) string {
		if slices.ContainsFunc(s.BGPPeers, func(p blocks.BGPPeer) bool { return len(p.Filters) > 0 }) {
			return "the files hold no BGPFilter, but a BGPPeer names one"
		}
		return ""
	},
	keeps: calicoObject(classFilter,
		listOf("exportV4", 0, filterRuleMask), listOf("importV4", 0, filterRuleMask),
		listOf("exportV6", 0, filterRuleMask), listOf("importV6", 0, filterRuleMask)),
}, descriptor[blocks.BGPFilter]{
	json: (*Decoder).bgpFilter,
	in:   func(s *blocks.Snapshot) *[]blocks.BGPFilter { return &s.BGPFilters },
})

var filterRuleMask = object("", 0,
	value("cidr", 0, classAddresses), value("matchOperator", 0, classWord), value("source", 0, classWord),
	value("interface", 0, classWord), value("action", 0, classWord),
	object("prefixLength", 0, value("min", 0, classNumber), value("max", 0, classNumber)))

func (d *Decoder) bgpFilter(r *JSONReader, f *blocks.BGPFilter) bool {
	d.object(r, &f.Meta, metaHooks{}, r.members(Members{
		"exportV4": func() { f.ExportV4 = d.filterRules(r) }, "importV4": func() { f.ImportV4 = d.filterRules(r) },
		"exportV6": func() { f.ExportV6 = d.filterRules(r) }, "importV6": func() { f.ImportV6 = d.filterRules(r) },
	}), nil)
	return d.whole(r, &f.Meta, "")
}

func (d *Decoder) filterRules(r *JSONReader) []blocks.BGPFilterRule {
	var rules []blocks.BGPFilterRule
	r.Array(func(int) {
		rule := blocks.BGPFilterRule{MinLength: -1, MaxLength: -1}
		r.Fields(Members{
			"cidr": func() {
				if !r.Null() {
					rule.CIDR, _ = d.cidr(r)
				}
			},
			"matchOperator": (*string)(&rule.Operator), "source": (*string)(&rule.Source), "interface": &rule.Interface, "action": (*string)(&rule.Action),
			"prefixLength": func() {
				r.Fields(Members{
					"min": func() { rule.MinLength = prefixLength(r) },
					"max": func() { rule.MaxLength = prefixLength(r) },
				})
			},
		})
		rules = append(rules, rule)
	})
	return rules
}

// prefixLength decodes a bound of a prefix length; -1 for null.
func prefixLength(r *JSONReader) int {
	if r.Null() {
		return -1
	}
	n, _ := r.Int32()
	return int(n)
}
