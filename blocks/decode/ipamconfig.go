package decode

import (
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

var ipamConfigs = describe(Kind{
	Resource: blocks.IPAMConfigs, Names: []string{"IPAMConfig", "IPAMConfiguration"}, nativePlural: "ipamconfigurations",
	keeps: calicoObject(roleDefault,
		value("strictAffinity", 0, roleNumber), value("autoAllocateBlocks", 0, roleNumber), value("maxBlocksPerHost", 0, roleNumber),
		value("ipCooldownSeconds", 0, roleNumber)),
}, column[blocks.IPAMConfig]{
	json: (*Decoder).ipamConfig,
	put:  func(s *blocks.Snapshot, c blocks.IPAMConfig) { s.IPAM = c }, otherwise: blocks.DefaultIPAMConfig(),
})

// ipamConfig reads Calico's IPAM configuration: an IPAMConfig of the older API
// group, or an IPAMConfiguration of the newer, whose API server fills in
// autoAllocateBlocks where it is absent.
func (d *Decoder) ipamConfig(r *JSONReader, c *blocks.IPAMConfig) bool {
	c.Present, c.AutoAllocateBlocks = true, d.Native
	seconds := 0
	ok := d.config(r, &c.Meta, Members{
		"strictAffinity": &c.StrictAffinity, "maxBlocksPerHost": &c.MaxBlocksPerHost, "ipCooldownSeconds": &seconds,
		"autoAllocateBlocks": func() {
			if !r.Null() {
				c.AutoAllocateBlocks, _ = r.Boolean()
			}
		},
	})
	c.Cooldown = time.Duration(seconds) * time.Second
	return ok
}
