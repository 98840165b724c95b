package statedsl

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// peer parses a BGPPeer.
func (p *parser) peer(w words) {
	p.snap.BGPPeers = append(p.snap.BGPPeers, blocks.BGPPeer{
		Meta: p.meta(w.at(0), w), Node: w.get("node"), NodeSelector: strings.ReplaceAll(w.get("nodes"), "+", " "),
		PeerIP: w.get("ip"), ASNumber: uint32(w.number("as", 0)), PeerSelector: strings.ReplaceAll(w.get("reflectors"), "+", " "),
		LocalWorkloads: w.has("workloads"), LocalAS: uint32(w.number("ownas", 0)), AllowedLocalAS: w.number("localas", 0),
		ManualReverse: w.has("oneway"), Filters: w.list("filters"),
	})
}

// filter parses a BGPFilter.
func (p *parser) filter(w words) error {
	f := blocks.BGPFilter{Meta: p.meta(w.at(0), w)}
	for _, way := range []struct {
		word   string
		v4, v6 *[]blocks.BGPFilterRule
	}{{"export", &f.ExportV4, &f.ExportV6}, {"import", &f.ImportV4, &f.ImportV6}} {
		for _, text := range w.opts[way.word] {
			r, err := filterRule(text)
			if err != nil {
				return err
			}
			if !r.CIDR.IsValid() || r.CIDR.Addr().Is4() {
				*way.v4 = append(*way.v4, r)
			}
			if !r.CIDR.IsValid() || !r.CIDR.Addr().Is4() {
				*way.v6 = append(*way.v6, r)
			}
		}
	}
	p.snap.BGPFilters = append(p.snap.BGPFilters, f)
	return nil
}

func filterRule(text string) (blocks.BGPFilterRule, error) {
	r := blocks.BGPFilterRule{MinLength: -1, MaxLength: -1}
	parts := strings.Split(text, ",")
	r.Action = apiv3.BGPFilterAction(parts[0])
	for _, part := range parts[1:] {
		key, value, isOption := strings.Cut(part, "=")
		low, high, isRange := strings.Cut(part, "-")
		cidr, err := netip.ParsePrefix(part)
		switch {
		case isOption && key == "source":
			r.Source = apiv3.BGPFilterMatchSource(value)
		case isOption && key == "if":
			r.Interface = value
		case isOption:
			return r, fmt.Errorf("unknown option %q of a rule", key)
		case err == nil:
			r.CIDR = cidr
		case isRange:
			if n, err := strconv.Atoi(low); err == nil {
				r.MinLength = n
			}
			if n, err := strconv.Atoi(high); err == nil {
				r.MaxLength = n
			}
		default:
			r.Operator = apiv3.BGPFilterMatchOperator(part)
		}
	}
	return r, nil
}
