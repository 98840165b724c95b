package state

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// RejectedSettings explains why Calico rejects settings; empty if it accepts them.
func RejectedSettings(c blocks.IPAMConfig) string {
	switch {
	case !c.StrictAffinity && !c.AutoAllocateBlocks:
		return "without strict affinity, automatic blocks must be on; as it is, pods of nodes without a free address in a block of their own get none"
	case c.MaxBlocksPerHost > 0 && !c.StrictAffinity:
		return fmt.Sprintf("maxBlocksPerHost (%d) needs strict affinity", c.MaxBlocksPerHost)
	}
	return ""
}

// Migrating reports whether Calico's objects are moving to the other API group, or both groups
// serve blocks. Any lock of the datastore is then the migration's.
func (st *State) Migrating() bool { return len(st.Migrations) > 0 || st.Cluster.OtherGroup != "" }
