package agents

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
)

// WatchOptions say how the agents of a cluster that is watched are asked.
type WatchOptions struct {
	Options
	// Interval is from one question to an agent to the next, at most; zero means
	// [DefaultInterval].
	Interval time.Duration
	// Reader returns what reads the agents' answers, for a snapshot.
	Reader func(s *blocks.Snapshot) Reader
}

// DefaultInterval leaves an agent two more tries before its last view has reached
// the age at which it proves nothing.
const DefaultInterval = 3 * time.Minute

// pace is how long a watch of agents waits for what, and what it allows itself.
// Tests shorten it.
type pace struct {
	tick      time.Duration // from one look at whose turn it is to the next
	reader    time.Duration // until changed objects are heeded in reading views
	list      time.Duration // from one list of the agents' pods to the next
	relist    time.Duration // the least, after an agent stopped answering
	first     time.Duration // for all agents' first answers, until a snapshot does without
	again     time.Duration // for all that are asked again to confirm something
	refresh   time.Duration // until views that show the same are newer in snapshots that differ
	renew     time.Duration // the same, in snapshots that do not
	ordinary  int           // agents that are asked at once
	failing   int           // and of those that did not answer the last time
	maxAnswer int64
}

// The views of all nodes are kept, so that agents may answer less than to a report. Those
// that fail are asked apart: agents that are dead, and take their whole timeout, delay no
// other.
var defaultPace = pace{
	tick: time.Second, reader: 5 * time.Second, list: time.Minute, relist: 20 * time.Second, first: 20 * time.Second,
	again: 20 * time.Second, refresh: 10 * time.Second, renew: 2 * time.Minute,
	ordinary: 16, failing: 4, maxAnswer: 4 << 20,
}

// Watch is a [cluster.Watch] whose snapshots hold what the nodes' agents say, too. Each agent
// is asked in turn, and its newest view kept for ten minutes.
type Watch struct {
	*cluster.Watch
	pods *cluster.Pods
	opts WatchOptions
	turn pace

	views struct {
		sync.Mutex
		agents map[string]*askedAgent // by node
		listed []agent
		listAt time.Time
		relist bool
		gaps   []blocks.HostGap // of nodes without an agent that could be asked
		nodes  []blocks.Node    // that they were found for
		began  time.Time        // when the first agents were found
		whole  bool             // each was asked once, or had its time
		round  *agentRound
		// dirty is true if a view shows something else than in hosts, which was put
		// together at a time and for the objects of joined; last is base with hosts.
		dirty         bool
		hosts         blocks.HostReading
		assembled     time.Time
		joined        *blocks.Snapshot
		base, last    *blocks.Snapshot
		asked, failed uint64
	}
}

// askedAgent is an agent with what came of asking it.
type askedAgent struct {
	agent
	next                           time.Time // when it is its turn
	left, asking, failing, settled bool      // left: there is none any more that could be asked
	print                          uint64    // of what its view shows
	view                           *blocks.HostView
	gaps                           []blocks.HostGap // of its view, or that it has become too old
	trouble                        string           // why it gave none the last time
}

// agentRound is what answers are read by for a while.
type agentRound struct {
	s    *blocks.Snapshot
	at   time.Time
	read Reader
	own  map[string][]netip.Prefix
	pods podsByNode
}

// NewWatch adds the agents to a watch that does not run yet.
func NewWatch(w *cluster.Watch, opts WatchOptions) *Watch {
	opts.Interval, opts.Timeout = cmp.Or(opts.Interval, DefaultInterval), cmp.Or(opts.Timeout, DefaultTimeout)
	out := &Watch{Watch: w, pods: w.Pods(), opts: opts, turn: defaultPace}
	out.views.agents = map[string]*askedAgent{}
	return out
}

// Run watches and asks until ctx ends, and returns nil then.
func (w *Watch) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Watch.Run(ctx) })
	group.Go(func() error {
		for ; ctx.Err() == nil; pause(ctx, w.turn.tick) {
			if s := w.Watch.Snapshot(); s != nil {
				w.list(ctx, s)
				w.prepare(s)
			}
		}
		return nil
	})
	for i := range w.turn.ordinary + w.turn.failing {
		failing := i >= w.turn.ordinary
		group.Go(func() error {
			for ctx.Err() == nil {
				if a, round := w.take(failing); a != nil {
					w.ask(ctx, a, round, nil)
				} else {
					pause(ctx, jitter(w.turn.tick))
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// serverNow is the API server's time.
func (w *Watch) serverNow() time.Time { return w.pods.ServerTime(time.Now()) }

// list lists the agents' pods when it is time to, and finds each node's agent.
func (w *Watch) list(ctx context.Context, s *blocks.Snapshot) {
	v := &w.views
	v.Lock()
	age := time.Since(v.listAt)
	listed, due := v.listed, age >= w.turn.list || v.relist && age >= w.turn.relist
	same := len(s.Nodes) == len(v.nodes) && (len(s.Nodes) == 0 || &s.Nodes[0] == &v.nodes[0])
	v.Unlock()
	if same && !due {
		return
	}
	var unread []blocks.HostGap
	if due {
		switch found, err := list(ctx, w.pods, w.opts.Options); {
		case ctx.Err() != nil:
			return
		case err != nil:
			unread = []blocks.HostGap{{Reason: unlisted(err)}}
		default:
			listed = found
		}
	}
	byNode, order, gaps := chooseAgents(s, listed, w.opts.Options)
	if len(listed) == 0 && unread != nil {
		gaps = nil // they are not known, and may be there
	}
	gaps = append(gaps, unread...)
	v.Lock()
	defer v.Unlock()
	now := time.Now()
	if v.nodes = s.Nodes; due {
		v.listed, v.listAt, v.relist = listed, now, false
	}
	if v.began.IsZero() {
		v.began = now
	}
	if !slices.Equal(gaps, v.gaps) {
		v.gaps = gaps
		w.changedViews()
	}
	for node, a := range v.agents {
		_, there := slices.BinarySearch(order, node)
		if a.left = !there; a.left && a.view == nil {
			delete(v.agents, node) // what it said stays for its time: an agent may only be restarted
		}
	}
	for _, node := range order {
		a := v.agents[node]
		if a == nil {
			a = &askedAgent{next: now, failing: !byNode[node].ready}
			v.agents[node] = a
		}
		a.agent = *byNode[node]
	}
}

// changedViews notes, under the lock, that the views show something new.
func (w *Watch) changedViews() {
	w.views.dirty = true
	w.Signal()
}

// prepare has answers read by what is known now, and ends the wait for the first ones.
func (w *Watch) prepare(s *blocks.Snapshot) {
	v := &w.views
	v.Lock()
	now := time.Now()
	round := v.round
	waiting := false
	for _, a := range v.agents {
		waiting = waiting || !a.settled
	}
	if !v.whole && (!waiting || now.Sub(v.began) >= w.turn.first) {
		v.whole = true
		w.Signal()
	}
	v.Unlock()
	if round != nil && (now.Sub(round.at) < w.turn.reader || s.SameObjects(round.s)) {
		return
	}
	round = w.newRound(s)
	v.Lock()
	v.round = round
	v.Unlock()
}

func (w *Watch) newRound(s *blocks.Snapshot) *agentRound {
	return &agentRound{s: s, at: time.Now(), read: w.opts.Reader(s), own: ownBlocks(s), pods: podsOf(s)}
}

// take returns the agent that waits longest for its turn, of those that answered the last
// time or of those that did not; nil if no agent's turn has come.
func (w *Watch) take(failing bool) (*askedAgent, *agentRound) {
	v := &w.views
	v.Lock()
	defer v.Unlock()
	var first *askedAgent
	for _, a := range v.agents {
		if !a.left && !a.asking && a.failing == failing && (first == nil || a.next.Before(first.next)) {
			first = a
		}
	}
	if first == nil || v.round == nil || first.next.After(time.Now()) {
		return nil, nil
	}
	first.asking = true
	return first, v.round
}

// ask asks an agent for a view that is newer than its node's time, and keeps what comes of
// it.
func (w *Watch) ask(ctx context.Context, a *askedAgent, round *agentRound, since map[string]time.Time) {
	v := &w.views
	v.Lock()
	who := a.agent
	v.Unlock()
	text, err := who.ask(ctx, w.pods, w.opts.Options, round.own[who.node], since[who.node], w.turn.maxAnswer)
	var read blocks.HostReading
	var print uint64
	if err == nil {
		if read = round.read(who.source(), who.node, text, w.opts.TLS != nil); len(read.Views) > 0 {
			print = round.pods.compact(&read.Views[0])
		}
	}
	v.Lock()
	defer v.Unlock()
	if a.asking = false; ctx.Err() != nil {
		return
	}
	v.asked++
	now := w.serverNow()
	was, trouble := a.failing, ""
	switch {
	case err != nil:
		trouble = agentReason(err, ctx, w.opts.Timeout)
	case len(read.Views) == 0 && len(read.Gaps) > 0:
		trouble = read.Gaps[0].Reason
	case len(read.Views) > 0 && read.Views[0].Future(now): // it would stand before the right ones that come later
		trouble = fmt.Sprintf("its host view is of the future, by %s: the node's clock is ahead of the API server's", read.Views[0].TakenAt.Sub(now).Round(time.Minute))
	case len(read.Views) > 0 && (a.view == nil || a.view.Future(now) || !read.Views[0].TakenAt.Before(a.view.TakenAt)):
		if print != a.print || a.view == nil || !slices.Equal(a.gaps, read.Gaps) {
			w.changedViews()
		}
		a.view, a.print, a.gaps = &read.Views[0], print, read.Gaps
	}
	a.failing, a.settled = trouble != "", true
	if a.next = time.Now().Add(jitter(w.opts.Interval)); a.failing {
		v.failed++
		v.relist = v.relist || !was
		a.next = time.Now().Add(jitter(w.opts.Interval / 3)) // it may only be restarted
	}
	if trouble != a.trouble {
		a.trouble = trouble
		w.changedViews()
	}
}

// jitter returns a duration between three quarters of d and d, so that not all agents are
// asked at once for ever.
func jitter(d time.Duration) time.Duration { return wait.Jitter(d*3/4, 1./3) }

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
