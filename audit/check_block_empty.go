package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

var blockEmpty = Check{
	ID:       "block/empty",
	Title:    "a block holds no allocation",
	Severity: "info, or warning when its pool has no free block",
	Why: "Where blocks are scarce, another node could use it; an empty block keeps its addresses for its owner. " +
		"The evidence says whether it could be released now and, if not, why it is held.",
	Confirm: "calicoctl ipam show --show-blocks",
	Misread: "A block that shows no allocation may be an instant from its first: a node claims the block, then the address. Its age matters.",
	Fix: "Calico's own collector releases empty blocks of nodes that hold others, after a grace period of 15 minutes; " +
		"see that it runs (config/gc-disabled). calico-audit repair --empty-blocks plans the release of those that may go, and carries it out. A node's last block should stay.",
	Never: "Never delete the IPAMBlock object by hand: its affinity stays behind, and the node goes on dropping the block's traffic.",
	Needs: []blocks.Resource{blocks.Blocks, blocks.Pools, blocks.Reservations},
	Uses:  ReleaseNeeds,
	Run: func(st *State, f *Findings) {
		for _, b := range st.IPBlocks {
			if b.Used > 0 {
				continue
			}
			sev := Info
			if b.Pool != nil && b.Pool.ServesWorkloads() && b.Pool.Slots.Allocatable.IsZero() {
				sev = Warning
			}
			verdict, fix := "releasable", repairFix("--empty-blocks")
			if !b.Release.OK {
				verdict, fix = "held: "+b.Release.Held, Fix{"look", "calico-audit checks block/empty"}
			}
			f.Add(Finding{
				Severity: sev, Subject: BlockSubject(b), Pools: poolsOf(b.Pool), Nodes: []string{b.Owner.Node()},
				Message: fmt.Sprintf("block %s of %s holds no allocation; %s", b.CIDR, OwnerText(b.Owner), verdict),
				Evidence: Evidences("owner", OwnerText(b.Owner), "pool", poolName(b.Pool), "verdict", verdict,
					"empty since at least", FormatTime(b.Release.EmptySince)),
				Fix: fix,
			})
		}
	},
}
