package decode

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// NetworkAttachmentDefinitions are only listed where Whereabouts is served: audits ignore
// networks with another IPAM.
var networkAttachments = describe(Kind{
	Resource: blocks.NetworkAttachments, Names: []string{"NetworkAttachmentDefinition"}, Foreign: "k8s.cni.cncf.io/v1", Beside: versionWhereabouts,
	Optional: true, Namespaced: true,
	Absent: besideWhereabouts("the files hold objects of Whereabouts but no NetworkAttachmentDefinition"),
	// Anyone who may write attachments can cause a gap. It is tolerated because every pod
	// that names an address on an unreadable attachment counts as its holder.
	tolerates: func(string) bool { return true },
	keeps:     parse.Object("", 0, metaMask(classNetwork, false), parse.Object("spec", 0, parse.Value("config", 0, classAttachment))),
}, descriptor[blocks.NetworkAttachment]{
	json: (*Decoder).networkAttachment,
	in:   func(s *blocks.Snapshot) *[]blocks.NetworkAttachment { return &s.NetworkAttachments },
})

// attachmentConfig is the part of an attachment's CNI configuration that an audit reads. It
// describes one plugin or a list of them; in a list, the first counts (Whereabouts
// pkg/config, LoadIPAMConfiguration).
type attachmentConfig struct {
	Type    string             `json:"type,omitempty"`
	IPAM    *whereaboutsConfig `json:"ipam,omitempty"`
	Plugins []attachmentConfig `json:"plugins,omitempty"`
}

// whereaboutsConfig is the part of Whereabouts' configuration that an audit reads
// (pkg/types, IPAMConfig).
type whereaboutsConfig struct {
	Type        string `json:"type"`
	NetworkName string `json:"network_name,omitempty"`
	SliceSize   string `json:"node_slice_size,omitempty"`
	Overlapping *bool  `json:"enable_overlapping_ranges,omitempty"`
	rangeConfig
	IPRanges []rangeConfig `json:"ipRanges,omitempty"`
}

type rangeConfig struct {
	Range   string   `json:"range,omitempty"`
	Start   string   `json:"range_start,omitempty"`
	End     string   `json:"range_end,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// ipamOf returns Whereabouts' part of an attachment's configuration; nil if it has none.
// other reports whether the addresses come from another IPAM.
func ipamOf(config []byte) (c *whereaboutsConfig, other bool, err error) {
	if !strings.Contains(string(config), "whereabouts") {
		return nil, strings.Contains(string(config), `"ipam"`), nil // the rest does not matter, even if it is invalid
	}
	var all attachmentConfig
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, false, err
	}
	first, rest := all, all.Plugins
	if all.Type == "" && len(rest) > 0 {
		first, rest = rest[0], rest[1:]
	}
	if first.IPAM != nil && first.IPAM.Type == "whereabouts" {
		return first.IPAM, false, nil
	}
	later := slices.ContainsFunc(rest, func(p attachmentConfig) bool { return p.IPAM != nil && p.IPAM.Type == "whereabouts" })
	return nil, first.IPAM != nil && !later, nil
}

// localIPAM returns "host-local" or "static" if it assigns addresses on a network that nodes share:
// host-local's records are files of each node, and static has none. A bridge is each node's own.
func localIPAM(config []byte) string {
	var all attachmentConfig
	if json.Unmarshal(config, &all) != nil {
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

// networkAttachment decodes a NetworkAttachmentDefinition.
func (d *Decoder) networkAttachment(r *parse.Reader, n *blocks.NetworkAttachment) bool {
	d.object(r, &n.Meta, metaHooks{noWritten: true}, func(key []byte) {
		if string(key) != "config" || r.Null() {
			return
		}
		s, _ := r.Bytes()
		c, other, err := ipamOf(s)
		n.LocalIPAM = localIPAM(s)
		switch n.OtherIPAM = other; {
		case err != nil:
			r.Fault("is not the configuration of a network: " + err.Error())
		case c != nil:
			d.attached(r, n, c)
		}
	}, nil)
	n.Namespace = d.inNamespace
	return d.whole(r, &n.Meta, "")
}

// attached copies Whereabouts' configuration, and parses ranges as Whereabouts does
// (pkg/config, LoadIPAMConfig): a range may start with its first address, as in
// 10.0.0.5-10.0.0.20/24, and then ends with the CIDR's address, 10.0.0.20.
func (d *Decoder) attached(r *parse.Reader, n *blocks.NetworkAttachment, c *whereaboutsConfig) {
	n.Whereabouts, n.NetworkName, n.Sliced = true, c.NetworkName, c.SliceSize != ""
	n.Overlapping = c.Overlapping == nil || *c.Overlapping
	ranges := c.IPRanges
	if c.Range != "" {
		ranges = append([]rangeConfig{c.rangeConfig}, ranges...)
	}
	for _, one := range ranges {
		var a blocks.AttachedRange
		text := one.Range
		first, rest, bounded := strings.Cut(text, "-")
		if bounded {
			text = rest
		}
		p, ok := blocks.ParseNetwork(text)
		if !ok {
			r.Fault(NotA("CIDR", text))
			continue
		}
		a.CIDR = p.Masked()
		if a.First, _ = blocks.ParseAddr(one.Start); bounded {
			a.First, _ = blocks.ParseAddr(first)
			a.Last = p.Addr()
		} else if one.End != "" {
			a.Last, _ = blocks.ParseAddr(one.End)
		}
		for _, x := range one.Exclude {
			if e, ok := parseReserved(x); ok {
				a.Exclude = append(a.Exclude, e)
			} else {
				r.Fault(NotA("CIDR", x))
			}
		}
		n.Ranges = append(n.Ranges, a)
	}
}

// attachment anonymizes the names in a network's configuration.
func attachment(n *alias.Aliases, s string) string {
	c, other, err := ipamOf([]byte(s))
	switch {
	case err != nil:
		return alias.Bad + " whereabouts"
	case localIPAM([]byte(s)) != "":
		return `{"type":"macvlan","ipam":{"type":"` + localIPAM([]byte(s)) + `"}}`
	case other:
		return `{"ipam":{"type":"other"}}`
	case c == nil:
		return "{}"
	}
	n.SeparateNetwork(c.NetworkName)
	c.NetworkName = n.Name(alias.Network, c.NetworkName)
	c.SliceSize = kept(c.SliceSize, strings.Trim(c.SliceSize, "/0123456789") == "")
	c.keepAddresses()
	for i := range c.IPRanges {
		c.IPRanges[i].keepAddresses()
	}
	out, _ := json.Marshal(attachmentConfig{Type: "macvlan", IPAM: c}) // strings always marshal
	return string(out)
}

// keepAddresses keeps only the addresses and CIDRs of a range.
func (c *rangeConfig) keepAddresses() {
	first, cidr, bounded := strings.Cut(c.Range, "-")
	if !bounded {
		first, cidr = "0.0.0.0", first
	}
	c.Range = kept(c.Range, c.Range == "" || isAddressText(first) && isNetwork(cidr))
	c.Start, c.End = kept(c.Start, c.Start == "" || isAddressText(c.Start)), kept(c.End, c.End == "" || isAddressText(c.End))
	for i, e := range c.Exclude {
		c.Exclude[i] = kept(e, isAddressText(e) || isNetwork(e))
	}
}

func isAddressText(s string) bool { _, ok := blocks.ParseAddr(s); return ok }

func isNetwork(s string) bool { _, ok := blocks.ParseNetwork(s); return ok }
