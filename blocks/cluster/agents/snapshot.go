package agents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/blocks"
)

// Snapshot is [cluster.Watch.Snapshot] with host views. It returns nil until each agent has been
// queried once or has timed out. While the views do not change, it returns the same snapshot for a
// while.
func (w *Watch) Snapshot() *blocks.Snapshot {
	s := w.Watched.Snapshot()
	v := &w.views
	v.Lock()
	defer v.Unlock()
	if s == nil || !v.whole {
		return nil
	}
	age := time.Since(v.assembled)
	switch {
	case v.last == nil || v.dirty || age >= w.turn.renew || age >= w.turn.refresh && !s.SameObjects(v.joined):
		v.hosts, v.joined, v.assembled, v.dirty = w.assemble(nil), s, time.Now(), false
	case s == v.base:
		return v.last
	}
	whole := *s
	whole.Hosts = v.hosts
	v.base, v.last = s, &whole
	return v.last
}

// assemble combines the views, which must be locked. It drops expired views. A view is
// marked as earlier unless it is newer than its node's time in before.
func (w *Watch) assemble(before map[string]time.Time) blocks.HostReading {
	v := &w.views
	now := w.serverNow()
	out := blocks.HostReading{Until: now, Gaps: slices.Clone(v.gaps), Views: make([]blocks.HostView, 0, len(v.agents))}
	for node, a := range v.agents {
		switch {
		case a.view == nil:
			out.Gaps = append(out.Gaps, a.gaps...)
		case a.view.Expired(now):
			a.gaps = []blocks.HostGap{{Node: node, Source: a.source(), Reason: fmt.Sprintf("its last host view was taken at %s, more than 10 minutes before %s", a.view.TakenAt.UTC().Format(time.RFC3339), now.Format(time.RFC3339))}}
			a.view = nil
			out.Gaps = append(out.Gaps, a.gaps...)
		default:
			view := *a.view
			view.Earlier = !view.TakenAt.After(before[node])
			out.Views, out.Gaps = append(out.Views, view), append(out.Gaps, a.gaps...)
		}
		if a.trouble != "" && !a.left {
			out.Gaps = append(out.Gaps, blocks.HostGap{Node: node, Source: a.source(), Reason: a.trouble})
		}
	}
	return blocks.JoinHostReadings(out)
}

// Reread is [cluster.Watch.Reread], and queries the agents of the given nodes again. For other
// nodes, and for agents that do not respond, it uses the last view, which confirms nothing: see
// [blocks.HostView.Earlier].
func (w *Watch) Reread(ctx context.Context, prev *blocks.Snapshot, rs []blocks.Resource, nodes []string) (*blocks.Snapshot, error) {
	s, err := w.Watched.Reread(ctx, prev, rs, nil)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, w.turn.again)
	defer cancel()
	round := w.newRound(s)
	before, again := map[string]time.Time{}, []*askedAgent{}
	w.views.Lock()
	for node, a := range w.views.agents {
		if a.view != nil {
			before[node] = a.view.TakenAt
		}
		if !a.left && slices.Contains(nodes, node) {
			again = append(again, a)
		}
	}
	w.views.Unlock()
	var group errgroup.Group
	group.SetLimit(w.turn.ordinary)
	for _, a := range again {
		group.Go(func() error {
			w.ask(bounded, a, round, before)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w.views.Lock()
	defer w.views.Unlock()
	s.Hosts = w.assemble(before)
	return s, nil
}

// Counts are statistics of agent queries.
type Counts struct {
	// Asked counts the queries, Failed those without a view.
	Asked, Failed uint64
	// Views is the number of nodes with a view of the last ten minutes; the oldest was
	// taken at Oldest. Missing is the number of other nodes that are Ready and run Linux,
	// so that an agent could respond.
	Views, Missing int
	Oldest         time.Time
}

// Counts returns the current statistics.
func (w *Watch) Counts() Counts {
	v := &w.views
	v.Lock()
	defer v.Unlock()
	out := Counts{Asked: v.asked, Failed: v.failed}
	now := w.serverNow()
	fresh := func(a *askedAgent) bool {
		return a != nil && a.view != nil && !a.view.Expired(now) && !a.view.Future(now)
	}
	for _, a := range v.agents {
		if fresh(a) {
			if out.Views++; out.Oldest.IsZero() || a.view.TakenAt.Before(out.Oldest) {
				out.Oldest = a.view.TakenAt
			}
		}
	}
	for i := range v.nodes {
		if n := &v.nodes[i]; n.Ready && !n.Windows && !fresh(v.agents[n.Name]) {
			out.Missing++
		}
	}
	return out
}
