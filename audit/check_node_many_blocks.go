package audit

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "node/many-blocks",
		Title:    "a host holds several blocks of one pool",
		Severity: "info, or warning if the pool has no free block",
		Why: "In a pool without blocks left, what one node holds beyond its need is what others lack. " +
			"A node claims a further block when its first is full, and keeps it after its pods have gone.",
		Confirm: "calicoctl ipam show --show-blocks",
		Misread: "Several blocks are normal for a node that runs more pods than one block holds.",
		Fix: "Release the blocks that the evidence calls releasable. For a block with few addresses in use, restart the pods that hold them " +
			"(with the node cordoned, or they may get addresses of the same block again), and release it once it is empty.",
		Never: "Never release a block that holds allocations: all its addresses would then be borrowed from nobody.",
		Needs: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
		Run: func(st *State, f *Findings) {
			for _, h := range st.Hosts {
				byPool := map[*Pool][]*Block{}
				for _, b := range h.Blocks {
					byPool[b.Pool] = append(byPool[b.Pool], b)
				}
				for _, p := range st.Pools {
					if bs := byPool[p]; len(bs) > 1 {
						f.Add(manyBlocks(h, p, bs))
					}
				}
			}
		},
	})
}

func manyBlocks(h *Host, p *Pool, bs []*Block) Finding {
	sev, scarce := Info, ""
	if p.ServesWorkloads() && p.Slots.Allocatable.IsZero() {
		sev, scarce = Warning, ", which has none left"
	}
	var releasable, held, used []string
	for _, b := range bs {
		switch {
		case b.Used > 0:
			used = append(used, fmt.Sprintf("%s (%s)", b.CIDR, inUseText(b)))
		case b.Release.OK:
			releasable = append(releasable, b.CIDR.String())
		default:
			held = append(held, fmt.Sprintf("%s: %s", b.CIDR, b.Release.Held))
		}
	}
	could := list(releasable)
	switch {
	case could == "" && len(held) == 0:
		could = "none: all hold addresses in use"
	case could == "":
		could = "none now"
	}
	fix := Fix{"look", fmt.Sprintf("calico-audit report -o wide --check block/empty --node %s", h.Name)}
	if len(releasable) == 0 && len(held) == 0 {
		b := slices.MinFunc(bs, func(x, y *Block) int { return x.Used - y.Used })
		fix = Fix{"manual", fmt.Sprintf("if blocks are scarce: cordon %s and restart the pods on %s, its emptiest block (%s); it can be released once it is empty", h.Name, b.CIDR, inUseText(b))}
	}
	return Finding{
		Severity: sev, Subject: nodeSubject(h.Name), Pools: poolsOf(p),
		Message: fmt.Sprintf("%s holds %s of pool %s%s; releasable: %s", h.Name, plural(len(bs), "block"), p.Name, scarce, could),
		Evidence: Evidences("pool", p.Name, "blocks", list(cidrs(bs)), "releasable", could,
			"empty but held", listBy("; ", held), "in use", list(used)),
		Fix: fix,
	}
}
