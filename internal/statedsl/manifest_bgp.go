package statedsl

import "github.com/calico-audit/calico-audit/blocks"

func (m *manifest) peer(p *blocks.BGPPeer) {
	spec := map[string]any{"filters": p.Filters}
	set(spec, "node", p.Node)
	set(spec, "nodeSelector", p.NodeSelector)
	set(spec, "peerIP", p.PeerIP)
	set(spec, "peerSelector", p.PeerSelector)
	for key, n := range map[string]int64{"asNumber": int64(p.ASNumber), "localASNumber": int64(p.LocalAS), "numAllowedLocalASNumbers": int64(p.AllowedLocalAS)} {
		if n != 0 {
			spec[key] = n
		}
	}
	if p.LocalWorkloads {
		spec["localWorkloadSelector"] = "all()"
	}
	if p.ManualReverse {
		spec["reversePeering"] = "Manual"
	}
	m.calico("BGPPeer", metadata(p.Meta), spec)
}

func rules(all []blocks.BGPFilterRule) []any {
	out := []any{}
	for _, r := range all {
		rule, length := map[string]any{}, map[string]any{}
		if r.CIDR.IsValid() {
			rule["cidr"] = r.CIDR.String()
		}
		set(rule, "matchOperator", string(r.Operator))
		set(rule, "source", string(r.Source))
		set(rule, "interface", r.Interface)
		set(rule, "action", string(r.Action))
		if r.MinLength >= 0 {
			length["min"] = r.MinLength
		}
		if r.MaxLength >= 0 {
			length["max"] = r.MaxLength
		}
		if len(length) > 0 {
			rule["prefixLength"] = length
		}
		out = append(out, rule)
	}
	return out
}
