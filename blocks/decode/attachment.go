package decode

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// NetworkAttachmentDefinitions are asked for only where Whereabouts is: of other IPAMs'
// networks an audit reads nothing.
var networkAttachments = describe(Kind{
	Resource: blocks.NetworkAttachments, Names: []string{"NetworkAttachmentDefinition"}, Foreign: "k8s.cni.cncf.io/v1", Beside: versionWhereabouts,
	Optional: true, Namespaced: true,
	keeps: object("", 0, metaMask(roleNetwork, false), object("spec", 0, value("config", 0, roleAttachment))),
}, column[blocks.NetworkAttachment]{
	json: (*Decoder).networkAttachment,
	in:   func(s *blocks.Snapshot) *[]blocks.NetworkAttachment { return &s.NetworkAttachments },
})

// attachmentConfig is what an audit reads of the CNI configuration of an attachment: of one
// plugin, or of the first of several (Whereabouts pkg/config, LoadIPAMConfiguration).
type attachmentConfig struct {
	Type    string             `json:"type,omitempty"`
	IPAM    *whereaboutsConfig `json:"ipam,omitempty"`
	Plugins []attachmentConfig `json:"plugins,omitempty"`
}

// whereaboutsConfig is what an audit reads of Whereabouts' configuration (pkg/types,
// IPAMConfig).
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

// ipamOf returns the configuration of Whereabouts in that of an attachment; nil if its
// addresses come from elsewhere.
func ipamOf(config []byte) (*whereaboutsConfig, error) {
	if !strings.Contains(string(config), "whereabouts") {
		return nil, nil // whatever else it is
	}
	var c attachmentConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, err
	}
	if c.Type == "" && len(c.Plugins) > 0 {
		c = c.Plugins[0]
	}
	if c.IPAM == nil || c.IPAM.Type != "whereabouts" {
		return nil, nil
	}
	return c.IPAM, nil
}

// networkAttachment reads a NetworkAttachmentDefinition.
func (d *Decoder) networkAttachment(r *JSONReader, n *blocks.NetworkAttachment) bool {
	d.object(r, &n.Meta, metaHooks{noWritten: true}, func(key []byte) {
		if string(key) != "config" || r.Null() {
			return
		}
		s, _ := r.str()
		c, err := ipamOf(s)
		switch {
		case err != nil:
			r.Fault("is not the configuration of a network: " + err.Error())
		case c != nil:
			d.attached(r, n, c)
		}
	}, nil)
	n.Namespace = d.inNamespace
	return d.whole(r, &n.Meta, "")
}

// attached takes over Whereabouts' configuration, as that reads it (pkg/config,
// LoadIPAMConfig): a range may begin with the first address, as in
// 10.0.0.5-10.0.0.20/24, of which the last counts, too.
func (d *Decoder) attached(r *JSONReader, n *blocks.NetworkAttachment, c *whereaboutsConfig) {
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
		p, ok := ParseNetwork(text)
		if !ok {
			r.Fault(NotA("CIDR", text))
			continue
		}
		a.CIDR = p.Masked()
		if a.First, _ = ParseAddr(one.Start); bounded {
			a.First, _ = ParseAddr(first)
			a.Last = p.Addr()
		} else if one.End != "" {
			a.Last, _ = ParseAddr(one.End)
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

// attachment replaces the names in the configuration of a network.
func (n *Anonymizer) attachment(s string) string {
	c, err := ipamOf([]byte(s))
	if err != nil {
		return bad + " whereabouts"
	}
	if c == nil {
		return "{}"
	}
	c.NetworkName = n.name(someNetwork, c.NetworkName)
	out, _ := json.Marshal(attachmentConfig{Type: "macvlan", IPAM: c}) // texts always can be
	return string(out)
}

// podRef replaces the names in a pod's name with its namespace.
func (n *Anonymizer) podRef(s string) string {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		return bad
	}
	return n.name(someNamespace, namespace) + "/" + n.name(somePod, name)
}

// networkOf replaces the name of a network before what a function accepts, of which the
// name of a pool or reservation of Whereabouts' is made.
func (n *Anonymizer) networkOf(s string, is func(string) bool) string {
	if is(s) {
		return s
	}
	for i := range len(s) {
		if s[i] == '-' && is(s[i+1:]) {
			return n.name(someNetwork, s[:i]) + s[i:]
		}
	}
	return n.name(someNetwork, s)
}

// isRangeName and isAddressName report whether a text is what Whereabouts makes a name of.
func isRangeName(s string) bool {
	i := strings.LastIndexByte(s, '-')
	return i > 0 && isAddressName(s[:i]) && isNetwork(strings.ReplaceAll(s[:i], "-", ":")+"/"+s[i+1:])
}

func isNetwork(s string) bool { _, ok := ParseNetwork(s); return ok }

func isAddressName(s string) bool {
	_, err := netip.ParseAddr(strings.ReplaceAll(s, "-", ":"))
	return err == nil
}
