package decode

import (
	"slices"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var bgpFilters = describe(Kind{
	Resource: blocks.BGPFilters, Names: []string{apiv3.KindBGPFilter}, Optional: true,
	Absent: func(s *blocks.Snapshot) string {
		if slices.ContainsFunc(s.BGPPeers, func(p blocks.BGPPeer) bool { return len(p.Filters) > 0 }) {
			return "the files hold no BGPFilter, but a BGPPeer names one"
		}
		return ""
	},
	keeps: keep.CalicoObject(keep.Filter,
		parse.List("exportV4", 0, filterRuleMask), parse.List("importV4", 0, filterRuleMask),
		parse.List("exportV6", 0, filterRuleMask), parse.List("importV6", 0, filterRuleMask)),
}, descriptor[blocks.BGPFilter]{
	json: (*Decoder).bgpFilter,
	in:   func(s *blocks.Snapshot) *[]blocks.BGPFilter { return &s.BGPFilters },
})

var filterRuleMask = parse.Object("", 0,
	parse.Value("cidr", 0, keep.Addresses), parse.Value("matchOperator", 0, keep.Word), parse.Value("source", 0, keep.Word),
	parse.Value("interface", 0, keep.Word), parse.Value("action", 0, keep.Word),
	parse.Object("prefixLength", 0, parse.Value("min", 0, keep.Number), parse.Value("max", 0, keep.Number)))

func (d *Decoder) bgpFilter(r *parse.Reader, f *blocks.BGPFilter) bool {
	d.object(r, &f.Meta, metaHooks{}, r.Known(parse.Members{
		"exportV4": func() { f.ExportV4 = d.filterRules(r) }, "importV4": func() { f.ImportV4 = d.filterRules(r) },
		"exportV6": func() { f.ExportV6 = d.filterRules(r) }, "importV6": func() { f.ImportV6 = d.filterRules(r) },
	}), nil)
	return d.whole(r, &f.Meta, "")
}

func (d *Decoder) filterRules(r *parse.Reader) []blocks.BGPFilterRule {
	var rules []blocks.BGPFilterRule
	r.Array(func(int) {
		rule := blocks.BGPFilterRule{MinLength: -1, MaxLength: -1}
		r.Fields(parse.Members{
			"cidr": func() {
				if !r.Null() {
					rule.CIDR, _ = d.cidr(r)
				}
			},
			"matchOperator": (*string)(&rule.Operator), "source": (*string)(&rule.Source), "interface": &rule.Interface, "action": (*string)(&rule.Action),
			"prefixLength": func() {
				r.Fields(parse.Members{
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
func prefixLength(r *parse.Reader) int {
	if r.Null() {
		return -1
	}
	n, _ := r.Int32()
	return int(n)
}
