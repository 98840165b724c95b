package decode

import (
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var ipamConfigs = describe(Kind{
	Resource: blocks.IPAMConfigs, Names: []string{libapiv3.KindIPAMConfig, apiv3.KindIPAMConfiguration}, nativePlural: "ipamconfigurations", always: []string{"autoAllocateBlocks", "strictAffinity"},
	Absent: always("no IPAMConfig in the files: strict affinity, automatic blocks and the limit of blocks are not known"),
	keeps: keep.CalicoObject(keep.Default,
		parse.Value("strictAffinity", 0, keep.Number), parse.Value("autoAllocateBlocks", 0, keep.Number), parse.Value("maxBlocksPerHost", 0, keep.Number),
		parse.Value("ipCooldownSeconds", 0, keep.Number)),
}, descriptor[blocks.IPAMConfig]{
	json: (*Decoder).ipamConfig,
	put:  func(s *blocks.Snapshot, c blocks.IPAMConfig) { s.IPAM = c }, otherwise: blocks.DefaultIPAMConfig(),
	others: func(s *blocks.Snapshot) *[]blocks.IPAMConfig { return &s.IgnoredIPAM },
})

// ipamConfig decodes Calico's IPAM configuration: an IPAMConfig of the older API group or
// an IPAMConfiguration of the newer. The API server of the newer group defaults
// autoAllocateBlocks if it is absent.
func (d *Decoder) ipamConfig(r *parse.Reader, c *blocks.IPAMConfig) bool {
	c.Present, c.AutoAllocateBlocks = true, d.Native
	seconds := 0
	ok := d.config(r, &c.Meta, parse.Members{
		"strictAffinity": &c.StrictAffinity, "maxBlocksPerHost": &c.MaxBlocksPerHost, "ipCooldownSeconds": &seconds,
		"autoAllocateBlocks": func() {
			if !r.Null() {
				c.AutoAllocateBlocks, _ = r.Boolean()
			}
		},
	}, nil)
	c.Cooldown = time.Duration(seconds) * time.Second
	return ok
}
