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
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

// WatchOptions control how the agents of a watched cluster are queried.
type WatchOptions struct {
	Options
	// Interval is the longest time between two queries of an agent; zero means
	// [DefaultInterval].
	Interval time.Duration
	// Reader returns the reader of responses for a snapshot.
	Reader func(s *blocks.Snapshot) Reader
}

// DefaultInterval leaves time for two more tries before an agent's last view expires.
const DefaultInterval = 3 * time.Minute

// pace holds the intervals and limits of a watch of agents. Tests shorten them.
type pace struct {
	tick      time.Duration // between two looks for due agents
	reader    time.Duration // before readers use changed objects
	list      time.Duration // between two lists of the agents' pods
	relist    time.Duration // the minimum, after an agent stopped responding
	first     time.Duration // for the first responses of all agents, before a snapshot is made without them
	again     time.Duration // for all agents that are queried again to confirm findings
	refresh   time.Duration // before unchanged views are renewed in a changed snapshot
	renew     time.Duration // the same, in an unchanged snapshot
	ordinary  int           // concurrent queries
	failing   int           // concurrent queries of agents that failed the last time
	maxAnswer int64
}

// Responses are more limited than for a report, because the views of all nodes are kept.
// Failing agents are queried separately: dead agents, which use up their timeout, do not
// delay others.
var defaultPace = pace{
	tick: time.Second, reader: 5 * time.Second, list: time.Minute, relist: 20 * time.Second, first: 20 * time.Second,
	again: 20 * time.Second, refresh: 10 * time.Second, renew: 2 * time.Minute,
	ordinary: 16, failing: 4, maxAnswer: 4 << 20,
}

// Watched keeps a snapshot of a cluster current: a [cluster.Watch], or one that is joined with
// another datastore.
type Watched interface {
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Signal()
	Snapshot() *blocks.Snapshot
	Reread(ctx context.Context, prev *blocks.Snapshot, rs []blocks.Resource, nodes []string) (*blocks.Snapshot, error)
	Restarts() map[blocks.Resource]uint64
	// Pods returns access to the cluster's pods.
	Pods() *cluster.Pods
}

// Watch is a watch of a cluster whose snapshots include the host views of agents. Agents are
// queried in turn, and their newest views kept for ten minutes.
type Watch struct {
	Watched
	pods *cluster.Pods
	opts WatchOptions
	turn pace

	views struct {
		sync.Mutex
		agents map[string]*askedAgent // by node
		listed []agent
		listAt time.Time
		relist bool
		gaps   []blocks.HostGap // of nodes without a usable agent
		nodes  []blocks.Node    // the nodes for which agents were chosen
		began  time.Time        // when agents were first chosen
		whole  bool             // each agent was queried once, or its time is over
		round  *agentRound
		// dirty is true if a view differs from hosts. hosts was combined at assembled, for
		// the objects of joined. last is base with hosts.
		dirty         bool
		hosts         blocks.HostReading
		assembled     time.Time
		joined        *blocks.Snapshot
		base, last    *blocks.Snapshot
		asked, failed uint64
	}
}

// askedAgent is an agent with the results of its queries.
type askedAgent struct {
	agent
	next                           time.Time // time of the next query
	left, asking, failing, settled bool      // an earlier agent, no longer usable
	print                          uint64    // hash of its view
	view                           *blocks.HostView
	gaps                           []blocks.HostGap // of its view, or because it expired
	trouble                        string           // why the last query failed
}

// agentRound is the context for reading responses, valid for a while.
type agentRound struct {
	s    *blocks.Snapshot
	at   time.Time
	read Reader
	own  map[string][]netip.Prefix
	pods podsByNode
}

// NewWatch adds agents to a watch, which must not be running yet.
func NewWatch(w Watched, opts WatchOptions) *Watch {
	opts.Interval, opts.Timeout = cmp.Or(opts.Interval, DefaultInterval), cmp.Or(opts.Timeout, DefaultTimeout)
	out := &Watch{Watched: w, pods: w.Pods(), opts: opts, turn: defaultPace}
	out.views.agents = map[string]*askedAgent{}
	return out
}

// Run watches and queries agents until ctx ends, and then returns nil.
func (w *Watch) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Watched.Run(ctx) })
	group.Go(func() error {
		for ; ctx.Err() == nil; request.Pause(ctx, w.turn.tick, nil) {
			if s := w.Watched.Snapshot(); s != nil {
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
					request.Pause(ctx, jitter(w.turn.tick), nil)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// serverNow returns the API server's time.
func (w *Watch) serverNow() time.Time { return w.pods.ServerTime(time.Now()) }

// list lists the agents' pods when due, and chooses each node's agent.
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
		gaps = nil // unknown agents may exist
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
			delete(v.agents, node) // a view stays until it expires, because the agent may only be restarting
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

// changedViews marks the views as changed. They must be locked.
func (w *Watch) changedViews() {
	w.views.dirty = true
	w.Signal()
}

// prepare renews the context for reading responses, and ends the wait for the first ones.
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

// take returns the agent that has waited longest for its turn; nil if no agent is due. failing
// selects the agents whose last query failed, else the others.
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

// ask queries an agent for a view that is newer than its node's time in since, and stores
// the result.
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
	case len(read.Views) > 0 && read.Views[0].Future(now): // it would take precedence over later, correct views
		trouble = fmt.Sprintf("its host view is %s in the future: the node's clock is ahead of the API server's", read.Views[0].TakenAt.Sub(now).Round(time.Minute))
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
		a.next = time.Now().Add(jitter(w.opts.Interval / 3)) // it may only be restarting
	}
	if trouble != a.trouble {
		a.trouble = trouble
		w.changedViews()
	}
}

// jitter returns a duration between three quarters of d and d, so that agents do not stay in step.
func jitter(d time.Duration) time.Duration { return wait.Jitter(d*3/4, 1./3) }
