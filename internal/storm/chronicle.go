package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Chronicle follows every write to a cluster from etcd itself: in the order in
// which they happened, none left out, whether the API server lives or not. A
// revision is what the API server calls an object's resourceVersion.
type Chronicle struct {
	etcd *clientv3.Client

	mu       sync.Mutex
	seen     int64 // everything up to this revision was taken in
	arrived  *sync.Cond
	failed   error
	blocks   map[string]*storedBlock   // by object name
	addrs    map[netip.Addr][]Moment   // an address's allocations, oldest first
	objects  map[string][]Change       // by etcd key
	onMoment func(netip.Addr, *Moment) // called with mu held
	wrong    []string
}

// Moment is a change of what an address is allocated to. A zero Handle with
// Allocated is an allocation without a handle.
type Moment struct {
	Revision  int64
	At        time.Time
	Block     string
	Allocated bool
	Handle    string
	Node      string // that the allocation names
	Sequence  uint64 // the block's
	Manager   string // who wrote it, as the block's managed fields tell
}

func (m Moment) String() string {
	what := "freed"
	if m.Allocated {
		what = fmt.Sprintf("allocated to %s on %s", short(m.Handle), m.Node)
	}
	return fmt.Sprintf("%s revision %d: %s by %s in %s (sequence %d)", m.At.Format(clock), m.Revision, what, m.Manager, m.Block, m.Sequence)
}

const clock = "15:04:05.000"

// short is the beginning of a handle, which is enough to tell them apart.
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

// Follow begins a chronicle with what the cluster stores now. It ends with the
// context.
func Follow(ctx context.Context, c *testcluster.Cluster) (*Chronicle, error) {
	ch := &Chronicle{
		etcd: c.Etcd, blocks: map[string]*storedBlock{}, addrs: map[netip.Addr][]Moment{}, objects: map[string][]Change{},
	}
	ch.arrived = sync.NewCond(&ch.mu)
	now, err := c.Etcd.Get(ctx, blockPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("beginning a chronicle: %w", err)
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

func (ch *Chronicle) follow(ctx context.Context, watch clientv3.WatchChan) {
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

// Revision is the newest revision of etcd: everything that has ended by now
// happened at this revision or before.
func (ch *Chronicle) Revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	response, err := ch.etcd.Get(ctx, "/registry/none", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("asking etcd for its revision: %w", err)
	}
	return response.Header.Revision, nil
}

// Await waits until the chronicle has taken in everything up to a revision.
func (ch *Chronicle) Await(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		poll := time.NewTicker(50 * time.Millisecond)
		defer poll.Stop()
		for ctx.Err() == nil {
			// The answer tells a revision up to which nothing is missing, though
			// nothing may have happened at it.
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

func (ch *Chronicle) event(e *clientv3.Event) {
	key, revision := string(e.Kv.Key), e.Kv.ModRevision
	deleted := e.Type == mvccpb.DELETE
	switch {
	case strings.HasPrefix(key, blockPrefix):
		if deleted {
			ch.block(revision, key, nil)
		} else {
			ch.block(revision, key, e.Kv.Value)
		}
	case strings.HasPrefix(key, affinityPrefix):
		what := "deleted"
		if !deleted {
			what = affinityText(e.Kv.Value)
		}
		ch.note(key, revision, what)
	case strings.HasPrefix(key, "/registry/pods/"), strings.HasPrefix(key, "/registry/minions/"),
		strings.HasPrefix(key, "/registry/crd.projectcalico.org/ipamhandles/"):
		what := "updated"
		switch {
		case deleted:
			what = "deleted"
		case e.IsCreate():
			what = "created"
		}
		ch.note(key, revision, what)
	}
}

func (ch *Chronicle) note(key string, revision int64, what string) {
	ch.objects[key] = append(ch.objects[key], Change{revision, time.Now(), what})
}

func affinityText(value []byte) string {
	var a struct {
		Metadata struct {
			ManagedFields []managedFields `json:"managedFields"`
		} `json:"metadata"`
		Spec struct {
			State   string `json:"state"`
			Deleted any    `json:"deleted"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(value, &a); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("state %q deleted %v, state written by %s", a.Spec.State, a.Spec.Deleted, manager(a.Metadata.ManagedFields, "f:state"))
}

// block takes in a version of a block; nil for its end.
func (ch *Chronicle) block(revision int64, key string, value []byte) {
	name := strings.TrimPrefix(key, blockPrefix)
	old := ch.blocks[name]
	var b *storedBlock
	writer, what := "its deletion", "deleted"
	if value != nil {
		b = &storedBlock{}
		if err := json.Unmarshal(value, b); err != nil {
			ch.wrong = append(ch.wrong, fmt.Sprintf("block %s at revision %d cannot be read: %v", name, revision, err))
			return
		}
		writer = manager(b.Metadata.ManagedFields, "f:allocations")
		owner := "nobody"
		if b.Spec.Affinity != nil {
			owner = *b.Spec.Affinity
		}
		what = fmt.Sprintf("of %s, deleted %v, allocations written by %s", owner, b.Spec.Deleted, writer)
		ch.blocks[name] = b
	} else {
		delete(ch.blocks, name)
	}
	ch.note(key, revision, what)
	was, is := old.uses(), b.uses()
	var sequence uint64
	if b != nil {
		sequence = b.Spec.Sequence
	}
	for addr := range was {
		if _, still := is[addr]; !still {
			ch.moment(addr, Moment{Revision: revision, Block: name, Manager: writer, Sequence: sequence})
		}
	}
	for addr, u := range is {
		if before, had := was[addr]; !had || before != u {
			ch.moment(addr, Moment{Revision: revision, Block: name, Manager: writer, Sequence: sequence, Allocated: true, Handle: u.handle, Node: u.node})
		}
	}
}

func (ch *Chronicle) moment(addr netip.Addr, m Moment) {
	m.At = time.Now()
	if old := ch.addrs[addr]; len(old) > 0 && m.Allocated {
		if last := old[len(old)-1]; last.Allocated && last.Block != m.Block {
			ch.wrong = append(ch.wrong, fmt.Sprintf("%s is allocated in two blocks: %s; %s", addr, last, m))
		}
	}
	ch.addrs[addr] = append(ch.addrs[addr], m)
	if ch.onMoment != nil {
		ch.onMoment(addr, &m)
	}
}

// at returns what an address was allocated to at a revision. The caller holds mu.
func (ch *Chronicle) at(addr netip.Addr, revision int64) Moment {
	moments := ch.addrs[addr]
	i, _ := slices.BinarySearchFunc(moments, revision+1, func(m Moment, r int64) int { return int(m.Revision - r) })
	if i == 0 {
		return Moment{}
	}
	return moments[i-1]
}

// history tells what is known of an address and of the objects named, the last
// lines of each. The caller holds mu.
func (ch *Chronicle) history(addr netip.Addr, keys ...string) string {
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
