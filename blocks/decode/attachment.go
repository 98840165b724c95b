package decode

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/multus"
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
	keeps:     parse.Object("", 0, keep.Meta(keep.Network, false), parse.Object("spec", 0, parse.Value("config", 0, keep.Attachment))),
}, descriptor[blocks.NetworkAttachment]{
	json: (*Decoder).networkAttachment,
	in:   func(s *blocks.Snapshot) *[]blocks.NetworkAttachment { return &s.NetworkAttachments },
})

// networkAttachment decodes a NetworkAttachmentDefinition.
func (d *Decoder) networkAttachment(r *parse.Reader, n *blocks.NetworkAttachment) bool {
	d.object(r, &n.Meta, metaHooks{noWritten: true}, func(key []byte) {
		if string(key) != "config" || r.Null() {
			return
		}
		s, _ := r.Bytes()
		c, other, err := multus.IPAMOf(s)
		n.LocalIPAM = multus.LocalIPAM(s)
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
func (d *Decoder) attached(r *parse.Reader, n *blocks.NetworkAttachment, c *multus.Whereabouts) {
	n.Whereabouts, n.NetworkName, n.Sliced = true, c.NetworkName, c.SliceSize != ""
	n.Overlapping = c.Overlapping == nil || *c.Overlapping
	ranges := c.IPRanges
	if c.Range != "" {
		ranges = append([]multus.Bounds{c.Bounds}, ranges...)
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
			r.Fault(parse.NotA("CIDR", text))
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
				r.Fault(parse.NotA("CIDR", x))
			}
		}
		n.Ranges = append(n.Ranges, a)
	}
}
