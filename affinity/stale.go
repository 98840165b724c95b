package affinity

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// Stale describes the effects of an affinity that does not own its block on the block's
// traffic.
type Stale struct {
	// Drops reports whether the affinity's node drops traffic to the whole block. If it is unknown
	// who programs the pool's routes, Drops is true, because the node drops it in every version
	// that may still be running.
	Drops bool
	// Attracts reports whether the node also announces the block, so that traffic of other
	// nodes and routers may go there.
	Attracts bool
	// Text describes the effects, as a clause without a full stop.
	Text string
}

// Stale returns the effects of an affinity to a block of another owner or of none; b is nil if the
// block does not exist. BIRD has a blackhole for every affinity of its node that is not pending,
// regardless of the block's owner, except for single addresses (confd
// pkg/backends/calico/client.go, updateCache, and the bird_aggr template). Its kernel filter keeps
// blackholes of VXLAN pools out of the kernel. BIRD announces the blocks of confirmed affinities.
// The template neither accepts nor rejects blocks of affinities in pendingDeletion, so they pass
// like every prefix within a pool. Felix uses the block's own record of its owner and ignores
// affinities.
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
	who := choose(r.s.Felix.ProgramClusterRoutes == "Enabled") // BIRD's kernel filter accepts prefixes outside all pools
	if p != nil {
		who, _ = r.programmer(p)
	}
	var owner blocks.Owner
	if b != nil {
		owner = b.Owner
	}
	switch {
	case who == byFelix && s.Attracts:
		s.Attracts = false
		s.Text = fmt.Sprintf("nothing is dropped: Felix programs this pool's routes and follows the block, which names %s; where BIRD runs, %s announces the block and forwards its traffic", owner, node)
	case who == byFelix:
		s.Text = fmt.Sprintf("nothing is dropped: Felix programs this pool's routes and follows the block, which names %s", owner)
	case s.Attracts:
		s.Drops = true
		s.Text = fmt.Sprintf("BIRD on %s drops traffic to the block, and announces the block to its peers, so that traffic of others may end there, too", node)
	default:
		s.Drops = true
		s.Text = fmt.Sprintf("BIRD on %s drops traffic to the block; it does not announce the block, so only traffic through %s is lost", node, node)
	}
	if who == byEither {
		s.Text += " (unless Felix programs this pool's routes, which is not known)"
	}
	return s
}

// announcesBlock reports whether the affinity's node announces the block to BGP peers, if
// it has any.
func (r *Routing) announcesBlock(a *blocks.Affinity, p *blocks.Pool) bool {
	if p != nil && p.DisableBGPExport {
		return false
	}
	// The block of a confirmed affinity is accepted before pools are considered.
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
