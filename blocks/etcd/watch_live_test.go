package etcd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// client returns a client of an etcd at an endpoint. more changes its connection.
func client(t *testing.T, e *testcluster.Etcd, endpoint string, more func(*apiconfig.EtcdConfig)) *Client {
	t.Helper()
	config := Config{apiconfig.NewCalicoAPIConfig()}
	config.Spec.DatastoreType = apiconfig.EtcdV3
	config.Spec.EtcdEndpoints, config.Spec.EtcdCACertFile, config.Spec.EtcdCertFile, config.Spec.EtcdKeyFile = endpoint, e.CAFile, e.CertFile, e.KeyFile
	if more != nil {
		more(&config.Spec.EtcdConfig)
	}
	c, err := New(config, Options{})
	must(t, err)
	return c
}

// TestReadTwice: an object that is read again both by its name and with its whole kind exists once.
func TestReadTwice(t *testing.T) {
	e := testcluster.StartEtcd(t)
	kv := resource(t, apiv3.KindIPPool, "", "pods", &apiv3.IPPool{ObjectMeta: meta("", "pods"), Spec: apiv3.IPPoolSpec{CIDR: "10.0.0.0/24"}})
	_, err := e.Client.Put(t.Context(), string(kv.Key), string(kv.Value))
	must(t, err)
	n, err := client(t, e, e.Endpoint, nil).Refresh(t.Context(), newReading(nil), []blocks.Ref{{Resource: blocks.Pools, Name: "pods"}, {Resource: blocks.Pools}})
	must(t, err)
	s, err := n.Onto(&blocks.Snapshot{}, newReading(nil))
	if must(t, err); len(s.Pools) != 1 {
		t.Errorf("pools: %v", s.Pools)
	}
}

// watched runs a watch of an etcd at an endpoint, with shorter times. more changes its connection.
func watched(t *testing.T, e *testcluster.Etcd, endpoint string, more func(*apiconfig.EtcdConfig)) *Watch {
	t.Helper()
	w := NewWatch(client(t, e, endpoint, more), true, slog.New(slog.DiscardHandler))
	w.pace = pace{probe: 100 * time.Millisecond, gather: 20 * time.Millisecond, staleness: 2 * time.Second, backoff: 100 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("the watch ended: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	await(t, "first reading", func() bool { return w.Snapshot() != nil })
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 seconds", what)
		}
	}
}

// write writes a number to two kinds in one transaction.
func write(t *testing.T, e *testcluster.Etcd, n int) {
	t.Helper()
	await(t, "a write", func() bool { // without a leader, it fails
		_, err := e.Client.Txn(t.Context()).Then(
			clientv3.OpPut(ipamPrefix+"config", fmt.Sprintf(`{"maxBlocksPerHost":%d}`, n)),
			clientv3.OpPut(ipamPrefix+"handle/net.c1", fmt.Sprintf(`{"block":{"10.0.0.0/29":%d}}`, n)),
		).Commit()
		return err == nil
	})
}

// numbers returns what write wrote.
func numbers(s *blocks.Snapshot) (config, handle int) {
	for _, h := range s.Handles {
		for _, c := range h.Blocks {
			handle = c.Count
		}
	}
	return s.IPAM.MaxBlocksPerHost, handle
}

func stale(s *blocks.Snapshot) bool {
	return slices.ContainsFunc(s.Gaps, func(g blocks.Gap) bool { return g.Stale })
}

// TestWatchHasOneRevision: a snapshot never contains only half of a transaction.
func TestWatchHasOneRevision(t *testing.T) {
	e := testcluster.StartEtcd(t)
	write(t, e, 1)
	w := watched(t, e, e.Endpoint, nil)
	seen := map[int]bool{}
	for n := 2; n < 150; n++ {
		write(t, e, n)
		for range 5 {
			config, handle := numbers(w.Snapshot())
			if seen[config] = true; config != handle {
				t.Fatalf("the configuration is of write %d, the handle of %d", config, handle)
			}
			time.Sleep(time.Millisecond)
		}
	}
	must(t, w.CatchUp(t.Context()))
	if config, handle := numbers(w.Snapshot()); config != 149 || handle != 149 || len(seen) < 5 {
		t.Errorf("the last snapshot has write %d and %d, and %d were seen", config, handle, len(seen))
	}
}

// TestWatchOfQuietEtcd: without writes, the objects stay current, also after an outage.
func TestWatchOfQuietEtcd(t *testing.T) {
	e := testcluster.StartEtcd(t)
	write(t, e, 1)
	p := &proxy{to: strings.TrimPrefix(e.Endpoint, "https://")}
	w := watched(t, e, p.start(t), nil)
	quiet := func() {
		t.Helper()
		for began := time.Now(); time.Since(began) < 2*w.pace.staleness; time.Sleep(w.pace.probe) {
			must(t, w.CatchUp(t.Context()))
			if s := w.Snapshot(); stale(s) || time.Since(s.Cluster.TakenAt) > w.pace.staleness {
				t.Fatalf("it is of %s, with gaps %v", s.Cluster.TakenAt, s.Gaps)
			}
		}
	}
	quiet()
	p.cut(true)
	await(t, "gaps of the outage", func() bool { return stale(w.Snapshot()) })
	p.cut(false)
	await(t, "the end of the outage", func() bool { return !stale(w.Snapshot()) })
	quiet()
	if w.Restarts() > 0 {
		t.Errorf("%d restarts", w.Restarts())
	}
}

// TestWatchAfterOutage: during an outage the objects become gaps and the time stops. After it, the
// watch resumes; if the revision was compacted meanwhile, it reads everything again.
func TestWatchAfterOutage(t *testing.T) {
	e := testcluster.StartEtcd(t)
	write(t, e, 1)
	p := &proxy{to: strings.TrimPrefix(e.Endpoint, "https://")}
	w := watched(t, e, p.start(t), nil)
	for n := 2; n < 4; n++ {
		p.cut(true)
		await(t, "gaps of the outage", func() bool { return stale(w.Snapshot()) })
		if s := w.Snapshot(); len(s.Handles) != 1 || time.Since(s.Cluster.TakenAt) < w.pace.staleness {
			t.Errorf("%d handles at %s, in the outage", len(s.Handles), s.Cluster.TakenAt)
		}
		if err := w.CatchUp(t.Context()); err == nil {
			t.Error("caught up in the outage")
		}
		write(t, e, n)
		if n == 3 {
			answer, err := e.Client.Put(t.Context(), ipamPrefix+"handle/net.c2", `{"block":{}}`)
			must(t, err)
			_, err = e.Client.Compact(t.Context(), answer.Header.Revision)
			must(t, err)
		}
		p.cut(false)
		await(t, "the end of the outage", func() bool {
			config, _ := numbers(w.Snapshot())
			return config == n && !stale(w.Snapshot())
		})
		if got, want := w.Restarts(), uint64(n-2); got != want {
			t.Errorf("%d restarts, want %d", got, want)
		}
	}
}

// TestWatchWaits: a watch that starts before etcd reads it as soon as it is available.
func TestWatchWaits(t *testing.T) {
	e := testcluster.StartEtcd(t)
	write(t, e, 7)
	p := &proxy{to: strings.TrimPrefix(e.Endpoint, "https://"), off: true}
	at := p.start(t)
	time.AfterFunc(time.Second, func() { p.cut(false) })
	w := watched(t, e, at, nil)
	if config, handle := numbers(w.Snapshot()); config != 7 || handle != 7 || w.Restarts() == 0 {
		t.Errorf("it has write %d and %d after %d restarts", config, handle, w.Restarts())
	}
}

// TestWatchOfRecords: an object that a run wrote last counts as the run's as long as the run's
// record lists it.
func TestWatchOfRecords(t *testing.T) {
	e := testcluster.StartEtcd(t)
	write(t, e, 1)
	w := watched(t, e, e.Endpoint, nil)
	_, err := e.Client.Txn(t.Context()).Then(
		clientv3.OpPut(RunPrefix+"r1", `{"writes":[{"key":"`+ipamPrefix+`handle/net.c1","at":"2026-01-01T00:00:00Z"}]}`),
		clientv3.OpPut(ipamPrefix+"handle/net.c1", `{"block":{"10.0.0.0/29":7}}`),
	).Commit()
	must(t, err)
	await(t, "a handle of our own", func() bool { s := w.Snapshot(); return len(s.Handles) == 1 && s.Handles[0].ByUs })
	_, err = e.Client.Delete(t.Context(), RunPrefix+"r1")
	must(t, err)
	await(t, "a handle of others", func() bool { return !w.Snapshot().Handles[0].ByUs })
}

// TestWatchGetsRights: a forbidden range is a gap until it is permitted.
func TestWatchGetsRights(t *testing.T) {
	e := testcluster.StartEtcd(t)
	write(t, e, 1)
	ctx := t.Context()
	grant := func(key string) {
		_, err := e.Client.RoleGrantPermission(ctx, "reader", key, endOf(key), clientv3.PermissionType(clientv3.PermRead))
		must(t, err)
	}
	for _, name := range []string{"reader", "root"} {
		_, err := e.Client.RoleAdd(ctx, name)
		must(t, err)
		user := strings.Replace(name, "root", "calico", 1) // the client's certificate names it
		_, err = e.Client.UserAdd(ctx, user, "secret")
		must(t, err)
		_, err = e.Client.UserGrantRole(ctx, user, name)
		must(t, err)
	}
	_, err := e.Client.UserAdd(ctx, "root", "secret")
	must(t, err)
	_, err = e.Client.UserGrantRole(ctx, "root", "root")
	must(t, err)
	for _, s := range stores {
		if s.resource != blocks.Handles {
			grant(s.key)
		}
	}
	_, err = e.Client.AuthEnable(ctx)
	must(t, err)
	w := watched(t, e, e.Endpoint, func(c *apiconfig.EtcdConfig) { c.EtcdUsername, c.EtcdPassword = "reader", "secret" })
	if g, missing := w.Snapshot().Missing(blocks.Handles); !missing || !g.Denied {
		t.Errorf("gap of handles: %+v", g)
	}
	w.mu.Lock()
	first := w.held
	w.mu.Unlock()
	key := ipamPrefix + "handle/"
	_, err = e.Client.RoleGrantPermission(ctx, "reader", key, "", clientv3.PermissionType(clientv3.PermRead)) // only this key, not the range
	must(t, err)
	must(t, w.CatchUp(ctx))
	time.Sleep(5 * w.pace.probe)
	w.mu.Lock()
	if w.held != first {
		t.Error("everything was read again for a range that still may not be read")
	}
	w.mu.Unlock()
	grant(key)
	await(t, "the handles", func() bool { _, missing := w.Snapshot().Missing(blocks.Handles); return !missing })
	if s := w.Snapshot(); len(s.Handles) != 1 || w.Restarts() > 0 {
		t.Errorf("%d handles after %d restarts", len(s.Handles), w.Restarts())
	}
}

// TestMemberBehind: a member that lags behind, or has lost the others, never shows an old state as
// current.
func TestMemberBehind(t *testing.T) {
	all := testcluster.StartMembers(t, 3)
	slices.SortFunc(all, func(a, b *testcluster.Etcd) int { return leads(t, b) - leads(t, a) })
	leader, behind := all[0], all[2]
	write(t, leader, 1)
	w := watched(t, behind, behind.Endpoint, nil)
	must(t, behind.Freeze())
	for n := range 200 {
		write(t, leader, n+2)
	}
	must(t, behind.Thaw())
	r, err := w.client.Read(t.Context())
	must(t, err)
	if config, _ := numbers(r.Alone()); config != 201 {
		t.Errorf("a reading has write %d of 201", config)
	}
	must(t, w.CatchUp(t.Context()))
	if config, handle := numbers(w.Snapshot()); config != 201 || handle != 201 {
		t.Errorf("the watch has write %d and %d of 201", config, handle)
	}
	for _, e := range all[:2] {
		must(t, e.Freeze())
	}
	await(t, "gaps without a leader", func() bool { return stale(w.Snapshot()) })
	for _, e := range all[:2] {
		must(t, e.Thaw())
	}
	await(t, "the leader", func() bool { return !stale(w.Snapshot()) })
}

// leads returns 1 for the leader, else 0.
func leads(t *testing.T, e *testcluster.Etcd) int {
	t.Helper()
	status, err := e.Client.Status(t.Context(), e.Endpoint)
	must(t, err)
	if status.Header.MemberId == status.Leader {
		return 1
	}
	return 0
}

// A proxy forwards connections to a server, unless they are cut.
type proxy struct {
	to string

	mu    sync.Mutex
	off   bool
	conns []net.Conn
}

// start returns the proxy's URL.
func (p *proxy) start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut(true)
	})
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			p.mu.Lock()
			if p.conns = append(p.conns, in); err == nil {
				p.conns = append(p.conns, out)
			}
			if p.off || err != nil {
				_ = in.Close()
				p.mu.Unlock()
				continue
			}
			p.mu.Unlock()
			go func() { _, _ = io.Copy(out, in) }()
			go func() { _, _ = io.Copy(in, out) }()
		}
	}()
	return "https://" + l.Addr().String()
}

// cut closes all connections, and refuses new ones until cut(false).
func (p *proxy) cut(off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = off
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
