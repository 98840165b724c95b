package source

import (
	"math"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// This file reads the objects that say which nodes and routers exchange routes.

// bgpConfig reads the BGPConfiguration.
func (d *decoder) bgpConfig(r *jsonReader) {
	c := blocks.DefaultBGPConfig()
	c.Present = true
	if d.configObject(r, blocks.BGPConfigs, &c.Meta, func(key []byte) {
		switch string(key) {
		case "nodeToNodeMeshEnabled":
			if v, set := r.boolean(); set {
				c.Mesh = v
			}
		case "asNumber":
			if n, set := asNumber(r); set {
				c.ASNumber = n
			}
		}
	}) {
		d.out.bgp = append(d.out.bgp, c)
	}
}

// bgpPeer reads a BGPPeer.
func (d *decoder) bgpPeer(r *jsonReader) {
	var p blocks.BGPPeer
	r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &p.Meta, metaHooks{})
		case "spec":
			r.object(func(key []byte) {
				switch string(key) {
				case "node":
					p.Node = d.text(r)
				case "nodeSelector":
					p.NodeSelector = d.text(r)
				case "peerIP":
					p.PeerIP = d.text(r)
				case "peerSelector":
					p.PeerSelector = d.text(r)
				case "asNumber":
					p.ASNumber, _ = asNumber(r)
				case "numAllowedLocalASNumbers":
					n, _ := r.int32()
					p.AllowedLocalAS = int(n)
				case "localASNumber":
					p.LocalAS, _ = asNumber(r)
				case "localWorkloadSelector":
					p.LocalWorkloads = d.text(r) != ""
				case "reversePeering":
					p.ManualReverse = d.text(r) == "Manual"
				case "filters":
					r.array(func(int) { p.Filters = append(p.Filters, d.text(r)) })
				}
			})
		}
	})
	if r.err != nil {
		return
	}
	checkName(r, &p.Meta)
	if len(r.faults) > 0 {
		d.gap(blocks.BGPPeers, &p.Meta, r.faults[0])
		return
	}
	d.out.peers = append(d.out.peers, p)
}

// bgpFilter reads a BGPFilter.
func (d *decoder) bgpFilter(r *jsonReader) {
	var f blocks.BGPFilter
	r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &f.Meta, metaHooks{})
		case "spec":
			r.object(func(key []byte) {
				switch string(key) {
				case "exportV4":
					f.ExportV4 = d.filterRules(r)
				case "importV4":
					f.ImportV4 = d.filterRules(r)
				case "exportV6":
					f.ExportV6 = d.filterRules(r)
				case "importV6":
					f.ImportV6 = d.filterRules(r)
				}
			})
		}
	})
	if r.err != nil {
		return
	}
	checkName(r, &f.Meta)
	if len(r.faults) > 0 {
		d.gap(blocks.BGPFilters, &f.Meta, r.faults[0])
		return
	}
	d.out.filters = append(d.out.filters, f)
}

func (d *decoder) filterRules(r *jsonReader) []blocks.BGPFilterRule {
	var rules []blocks.BGPFilterRule
	r.array(func(int) {
		rule := blocks.BGPFilterRule{MinLength: -1, MaxLength: -1}
		r.object(func(key []byte) {
			switch string(key) {
			case "cidr":
				if !r.null() {
					rule.CIDR, _ = d.cidr(r)
				}
			case "matchOperator":
				rule.Operator = d.text(r)
			case "source":
				rule.Source = d.text(r)
			case "interface":
				rule.Interface = d.text(r)
			case "action":
				rule.Action = d.text(r)
			case "prefixLength":
				r.object(func(key []byte) {
					switch string(key) {
					case "min":
						rule.MinLength = prefixLength(r)
					case "max":
						rule.MaxLength = prefixLength(r)
					}
				})
			}
		})
		rules = append(rules, rule)
	})
	return rules
}

// prefixLength reads a bound of a prefix length; -1 if there is none.
func prefixLength(r *jsonReader) int {
	if r.null() {
		return -1
	}
	n, _ := r.int32()
	return int(n)
}

// asNumber reads an AS number: an integer, or a text in plain or dotted notation
// (api/pkg/lib/numorstring/asnumber.go).
func asNumber(r *jsonReader) (uint32, bool) {
	if r.peek() == '"' {
		s, ok := r.str()
		if !ok {
			return 0, false
		}
		n, ok := parseASNumber(string(s))
		if !ok {
			r.fault(notA("AS number", s))
		}
		return n, ok
	}
	n, ok := r.uint()
	if ok && n > math.MaxUint32 {
		r.fault("is " + strconv.FormatUint(n, 10) + ", not an AS number")
		return 0, false
	}
	return uint32(n), ok
}

func parseASNumber(s string) (uint32, bool) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return uint32(n), true
	}
	high, low, found := strings.Cut(s, ".")
	h, err1 := strconv.ParseUint(high, 10, 16)
	l, err2 := strconv.ParseUint(low, 10, 16)
	if !found || err1 != nil || err2 != nil {
		return 0, false
	}
	return uint32(h<<16 | l), true
}
