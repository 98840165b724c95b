package capacity

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Holdings lists all blocks with their free addresses, and all affinities.
func (a *Allocator) Holdings() string {
	var lines []string
	for _, b := range a.blocks {
		lines = append(lines, fmt.Sprintf("block %v of %q, free %v, deleted %v", b.cidr, b.owner, b.free, b.softDeleted))
	}
	for owner, affinities := range a.affinities {
		for _, c := range affinities {
			lines = append(lines, fmt.Sprintf("affinity of %q to %v, confirmed %v, deleted %v", owner, c.cidr, c.confirmed, c.softDeleted))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Age makes every block older than a minute.
func (a *Allocator) Age() {
	for _, b := range a.blocks {
		b.claimed = time.Time{}
		a.changed(b)
	}
}

// Owned returns the owner of each block.
func (a *Allocator) Owned() map[netip.Prefix]string {
	out := map[netip.Prefix]string{}
	for cidr, b := range a.blocks {
		out[cidr] = b.owner.String()
	}
	return out
}
