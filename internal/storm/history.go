package storm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// EtcdHistory follows every write to a cluster in etcd, complete and in order, even while
// the API server is down. A revision equals the resourceVersion of an object in the API
// server.
type EtcdHistory struct {
	etcd *clientv3.Client

	mu       sync.Mutex
	seen     int64 // all writes up to this revision were processed
	arrived  *sync.Cond
	failed   error
	blocks   map[string]*storedBlock   // by object name
	addrs    map[netip.Addr][]Moment   // the allocations of each address, oldest first
	objects  map[string][]Change       // by etcd key
	onMoment func(netip.Addr, *Moment) // called with mu held
	wrong    []string

	secondary secondaryHistory
}

// Moment is a change of an address's allocation. If Allocated is set, an empty Handle
// means an allocation without a handle.
type Moment struct {
	Revision  int64
	At        time.Time
	Block     string
	Allocated bool
	Handle    string
	Node      string // in the allocation's attributes
	Sequence  uint64 // of the block
	Manager   string // the writer, from the block's managed fields
}

func (m Moment) String() string {
	what := "freed"
	if m.Allocated {
		what = fmt.Sprintf("allocated to %s on %s", short(m.Handle), m.Node)
	}
	return fmt.Sprintf("%s revision %d: %s by %s in %s (sequence %d)", m.At.Format(clock), m.Revision, what, m.Manager, m.Block, m.Sequence)
}

const clock = "15:04:05.000"

// short returns the beginning of a handle, which suffices to identify it.
func short(handle string) string {
	prefix, id, ok := strings.Cut(handle, ".")
	if ok && len(id) > 10 {
		return prefix + "." + id[:10]
	}
	return handle
}

// Change is a write of an object.
type Change struct {
	Revision int64
	At       time.Time
	What     string
}

// Follow starts a history with the current content of etcd. It ends with the context.
func Follow(ctx context.Context, c *testcluster.Cluster) (*EtcdHistory, error) {
	ch := &EtcdHistory{
		etcd: c.Etcd, blocks: map[string]*storedBlock{}, addrs: map[netip.Addr][]Moment{}, objects: map[string][]Change{},
	}
	ch.arrived = sync.NewCond(&ch.mu)
	now, err := c.Etcd.Get(ctx, blockPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("beginning a history: %w", err)
	}
	ch.mu.Lock()
	for _, kv := range now.Kvs {
		ch.block(kv.ModRevision, string(kv.Key), kv.Value)
	}
	ch.seen = now.Header.Revision
	ch.mu.Unlock()
	watch := c.Etcd.Watch(clientv3.WithRequireLeader(ctx), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
	go ch.follow(ctx, watch)
	return ch, nil
}

const (
	blockPrefix    = "/registry/crd.projectcalico.org/ipamblocks/"
	affinityPrefix = "/registry/crd.projectcalico.org/blockaffinities/"
)

func (ch *EtcdHistory) follow(ctx context.Context, watch clientv3.WatchChan) {
	for response := range watch {
		ch.mu.Lock()
		if err := response.Err(); err != nil {
			ch.failed = fmt.Errorf("following etcd: %w", err)
		}
		for _, e := range response.Events {
			ch.event(e)
			ch.seen = max(ch.seen, e.Kv.ModRevision)
		}
		if response.IsProgressNotify() {
			ch.seen = max(ch.seen, response.Header.Revision)
		}
		ch.arrived.Broadcast()
		ch.mu.Unlock()
	}
	ch.mu.Lock()
	if ch.failed == nil && ctx.Err() != nil {
		ch.failed = ctx.Err()
	}
	ch.arrived.Broadcast()
	ch.mu.Unlock()
}

// Revision returns etcd's newest revision. Every completed operation happened at this
// revision or earlier.
func (ch *EtcdHistory) Revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	response, err := ch.etcd.Get(ctx, "/registry/none", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("asking etcd for its revision: %w", err)
	}
	return response.Header.Revision, nil
}

// Await waits until the history has processed all writes up to a revision.
func (ch *EtcdHistory) Await(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		poll := time.NewTicker(50 * time.Millisecond)
		defer poll.Stop()
		for ctx.Err() == nil {
			// The answer contains a revision up to which the watch is complete, even if
			// no write happened at it.
			_ = ch.etcd.RequestProgress(clientv3.WithRequireLeader(ctx))
			ch.arrived.Broadcast()
			select {
			case <-ctx.Done():
				ch.arrived.Broadcast()
			case <-poll.C:
			}
		}
	}()
	ch.mu.Lock()
	for ch.seen < revision && ch.failed == nil && ctx.Err() == nil {
		ch.arrived.Wait()
	}
	seen, err := ch.seen, ch.failed
	ch.mu.Unlock()
	cancel()
	<-asking
	if seen >= revision {
		return nil
	}
	if err == nil {
		err = context.DeadlineExceeded
	}
	return fmt.Errorf("waiting for revision %d, at %d: %w", revision, seen, err)
}

// at returns the allocation of an address at a revision. The caller holds mu.
func (ch *EtcdHistory) at(addr netip.Addr, revision int64) Moment {
	moments := ch.addrs[addr]
	i, _ := slices.BinarySearchFunc(moments, revision+1, func(m Moment, r int64) int { return int(m.Revision - r) })
	if i == 0 {
		return Moment{}
	}
	return moments[i-1]
}

// history formats the last changes of an address and of the given objects. The caller
// holds mu.
func (ch *EtcdHistory) history(addr netip.Addr, keys ...string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "  %s:\n", addr)
	moments := ch.addrs[addr]
	for _, m := range moments[max(0, len(moments)-8):] {
		fmt.Fprintf(&out, "    %s\n", m)
	}
	if n := len(moments); n > 0 {
		block := moments[n-1].Block
		keys = append(keys, blockPrefix+block)
		for key := range ch.objects {
			if strings.HasPrefix(key, affinityPrefix) && strings.HasSuffix(key, "-"+block) {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		changes := ch.objects[key]
		fmt.Fprintf(&out, "  %s:\n", strings.TrimPrefix(key, "/registry/"))
		for _, c := range changes[max(0, len(changes)-12):] {
			fmt.Fprintf(&out, "    %s revision %d: %s\n", c.At.Format(clock), c.Revision, c.What)
		}
	}
	return out.String()
}
