package affinity

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// Stale is what an affinity that does not own its block does to the traffic of
// those who do.
type Stale struct {
	// Drops reports whether the affinity's node drops traffic to the whole block.
	// Where it is not known who programs the pool's routes, it is true, because it
	// is so in every version that may still be running.
	Drops bool
	// Attracts reports whether its node announces the block as well, so that traffic
	// of other nodes and routers may go there.
	Attracts bool
	// Text says so, in a clause without a full stop.
	Text string
}

// Stale says what an affinity does whose block (nil if there is none) belongs to
// another, or to none.
//
// BIRD has a blackhole for every affinity of its node that is not pending,
// no matter who owns the block, except for single addresses (confd
// pkg/backends/calico/client.go, updateCache, and the bird_aggr template); its
// kernel filter keeps those of VXLAN pools out of the kernel. It announces the
// block of a confirmed affinity; one that is pendingDeletion is neither accepted
// nor rejected there, and passes as every prefix within a pool does. Felix goes
// by the block's own record of its owner and heeds no affinity.
func (r *Routing) Stale(a *blocks.Affinity, b *blocks.Block, p *blocks.Pool) Stale {
	node := a.Owner.Node()
	switch {
	case node == "":
		return Stale{Text: a.Owner.String() + " is not a node, and no route follows from its affinity"}
	case r.noNode(node):
		return Stale{Text: "its host no longer exists, and no route follows from it"}
	case a.Effective() == blocks.Pending:
		return Stale{Text: "it is pending, and no route follows from it yet"}
	case a.CIDR.IsSingleIP():
		return Stale{Text: "no blackhole is made for a single address"}
	}
	s := Stale{Attracts: r.announcesBlock(a, p)}
	who := choose(r.s.Felix.ProgramClusterRoutes == "Enabled") // BIRD's kernel filter passes what lies in no pool
	if p != nil {
		who, _ = r.programmer(p)
	}
	owner := "nobody"
	if b != nil && b.Owner != (blocks.Owner{}) {
		owner = b.Owner.String()
		if n := b.Owner.Node(); n != "" {
			owner = n
		}
	}
	switch {
	case who == byFelix && s.Attracts:
		s.Attracts = false
		s.Text = fmt.Sprintf("nothing is dropped: Felix programs this pool's routes and goes by the block, which names %s; where BIRD runs, %s announces the block, and hands on what comes", owner, node)
	case who == byFelix:
		s.Text = fmt.Sprintf("nothing is dropped: Felix programs this pool's routes and goes by the block, which names %s", owner)
	case s.Attracts:
		s.Drops = true
		s.Text = fmt.Sprintf("BIRD on %s drops traffic to the block, and announces the block to its peers, so that traffic of others may end there, too", node)
	default:
		s.Drops = true
		s.Text = fmt.Sprintf("BIRD on %s drops traffic to the block; it does not announce the block, so only what comes by %s is lost", node, node)
	}
	if who == byEither {
		s.Text += " (unless Felix programs this pool's routes, which is not known)"
	}
	return s
}

// announcesBlock reports whether the affinity's node announces the block to BGP
// peers, if it has any.
func (r *Routing) announcesBlock(a *blocks.Affinity, p *blocks.Pool) bool {
	if p != nil && p.DisableBGPExport {
		return false
	}
	// A confirmed affinity's block is accepted before pools are looked at.
	if p == nil && a.Effective() != blocks.Confirmed {
		return false
	}
	if _, missing := r.unread(blocks.BGPConfigs, blocks.BGPPeers, blocks.Nodes); missing {
		return true
	}
	ss := r.sessions[blocks.FamilyOf(a.CIDR.Addr())]()
	sp := ss.speakers[a.Owner.Node()]
	return sp == nil || ss.hasSession(sp) || len(r.s.Unreadable(blocks.BGPPeers)) > 0
}
