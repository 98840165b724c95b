package state

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// CollectorOff says why Calico's own collector does not work; empty if it does, or if
// no object configures it and its defaults hold.
func CollectorOff(c *blocks.ControllersConfig) string {
	switch {
	case !c.Present:
		return ""
	case !c.NodeController:
		return "controllers.node is not configured, so that nothing collects leaked addresses and empty blocks"
	case !c.LeakGraceSet:
		return "leakGracePeriod is not set, which turns the collection of leaked addresses and empty blocks off"
	case c.LeakGrace == 0:
		return "leakGracePeriod is 0, which turns the collection of leaked addresses and empty blocks off"
	}
	return ""
}

// RejectedSettings says why Calico rejects settings; empty if it does not.
func RejectedSettings(c blocks.IPAMConfig) string {
	switch {
	case !c.StrictAffinity && !c.AutoAllocateBlocks:
		return "without strict affinity, automatic blocks must be on; as it is, pods of nodes without a free address in a block of their own get none"
	case c.MaxBlocksPerHost > 0 && !c.StrictAffinity:
		return fmt.Sprintf("maxBlocksPerHost (%d) needs strict affinity", c.MaxBlocksPerHost)
	}
	return ""
}

// LimitText says what the block limit of a node is, and where that stands.
func LimitText(st *State) string {
	if st.IPAM.MaxBlocksPerHost > 0 {
		return fmt.Sprintf("%d (maxBlocksPerHost)", st.IPAM.MaxBlocksPerHost)
	}
	return fmt.Sprintf("%d (Calico's default)", blocks.DefaultMaxBlocks)
}
