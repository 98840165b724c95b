package multus

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
)

// config is the part of an attachment's CNI configuration that an audit reads. It
// describes one plugin or a list of them; in a list, the first counts (Whereabouts
// pkg/config, LoadIPAMConfiguration).
type config struct {
	Type    string       `json:"type,omitempty"`
	IPAM    *Whereabouts `json:"ipam,omitempty"`
	Plugins []config     `json:"plugins,omitempty"`
}

// Whereabouts is the part of Whereabouts' configuration that an audit reads
// (pkg/types, IPAMConfig).
type Whereabouts struct {
	Type        string `json:"type"`
	NetworkName string `json:"network_name,omitempty"`
	SliceSize   string `json:"node_slice_size,omitempty"`
	Overlapping *bool  `json:"enable_overlapping_ranges,omitempty"`
	Bounds
	IPRanges []Bounds `json:"ipRanges,omitempty"`
}

// Bounds are a range of addresses, and what is excluded of it.
type Bounds struct {
	Range   string   `json:"range,omitempty"`
	Start   string   `json:"range_start,omitempty"`
	End     string   `json:"range_end,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// IPAMOf returns Whereabouts' part of an attachment's configuration; nil if it has none.
// other reports whether the addresses come from another IPAM.
func IPAMOf(text []byte) (c *Whereabouts, other bool, err error) {
	if !strings.Contains(string(text), "whereabouts") {
		return nil, strings.Contains(string(text), `"ipam"`), nil // the rest does not matter, even if it is invalid
	}
	var all config
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, false, err
	}
	first, rest := all, all.Plugins
	if all.Type == "" && len(rest) > 0 {
		first, rest = rest[0], rest[1:]
	}
	if first.IPAM != nil && first.IPAM.Type == "whereabouts" {
		return first.IPAM, false, nil
	}
	later := slices.ContainsFunc(rest, func(p config) bool { return p.IPAM != nil && p.IPAM.Type == "whereabouts" })
	return nil, first.IPAM != nil && !later, nil
}

// LocalIPAM returns "host-local" or "static" if it assigns addresses on a network that nodes share:
// host-local's records are files of each node, and static has none. A bridge is each node's own.
func LocalIPAM(text []byte) string {
	var all config
	if json.Unmarshal(text, &all) != nil {
		return ""
	}
	if all.Type == "" && len(all.Plugins) > 0 {
		all = all.Plugins[0]
	}
	if all.IPAM == nil || !slices.Contains([]string{"host-local", "static"}, all.IPAM.Type) || !slices.Contains([]string{"macvlan", "ipvlan", "ovs", "sriov"}, all.Type) {
		return ""
	}
	return all.IPAM.Type
}

// AnonymizeConfig anonymizes the names in a network's configuration.
func AnonymizeConfig(n *alias.Aliases, s string) string {
	c, other, err := IPAMOf([]byte(s))
	switch {
	case err != nil:
		return alias.Bad + " whereabouts"
	case LocalIPAM([]byte(s)) != "":
		return `{"type":"macvlan","ipam":{"type":"` + LocalIPAM([]byte(s)) + `"}}`
	case other:
		return `{"ipam":{"type":"other"}}`
	case c == nil:
		return "{}"
	}
	n.SeparateNetwork(c.NetworkName)
	c.NetworkName = n.Name(alias.Network, c.NetworkName)
	c.SliceSize = alias.Kept(c.SliceSize, strings.Trim(c.SliceSize, "/0123456789") == "")
	c.keepAddresses()
	for i := range c.IPRanges {
		c.IPRanges[i].keepAddresses()
	}
	out, _ := json.Marshal(config{Type: "macvlan", IPAM: c}) // strings always marshal
	return string(out)
}

// keepAddresses keeps only the addresses and CIDRs of a range.
func (c *Bounds) keepAddresses() {
	first, cidr, bounded := strings.Cut(c.Range, "-")
	if !bounded {
		first, cidr = "0.0.0.0", first
	}
	c.Range = alias.Kept(c.Range, c.Range == "" || isAddressText(first) && isNetwork(cidr))
	c.Start, c.End = alias.Kept(c.Start, c.Start == "" || isAddressText(c.Start)), alias.Kept(c.End, c.End == "" || isAddressText(c.End))
	for i, e := range c.Exclude {
		c.Exclude[i] = alias.Kept(e, isAddressText(e) || isNetwork(e))
	}
}

func isAddressText(s string) bool { _, ok := blocks.ParseAddr(s); return ok }

func isNetwork(s string) bool { _, ok := blocks.ParseNetwork(s); return ok }
