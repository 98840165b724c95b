package datastore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/calico-audit/calico-audit/blocks"
	etcdblocks "github.com/calico-audit/calico-audit/blocks/etcd"
	"github.com/calico-audit/calico-audit/internal/storm"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/datastore/etcd"
)

// The methods of this file replace those of the cluster for a bench in etcd, in which tests
// read and edit objects in the form of the older API group.

func (b *bench) inEtcd() bool { return b.group == testcluster.EtcdV3 }

// Get returns an object.
func (b *bench) Get(ctx context.Context, r testcluster.Resource, namespace, name string) (*unstructured.Unstructured, error) {
	if !b.inEtcd() {
		return b.Cluster.Get(ctx, r, namespace, name)
	}
	text, err := etcd.New(b.Etcd).Get(ctx, blocks.Resource(r.Resource), name)
	if err == nil && text == nil {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: r.Resource}, name)
	}
	return parsed(text, err)
}

func parsed(text []byte, err error) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err == nil {
		err = o.UnmarshalJSON(text)
	}
	return o, err
}

// List returns the objects of a resource.
func (b *bench) List(ctx context.Context, r testcluster.Resource) (out []unstructured.Unstructured, err error) {
	if !b.inEtcd() {
		return b.Cluster.List(ctx, r)
	}
	all, next, err := etcd.New(b.Etcd).List(ctx, blocks.Resource(r.Resource), datastore.Query{})
	for _, text := range all {
		var o *unstructured.Unstructured
		if o, err = parsed(text, err); err == nil {
			out = append(out, *o)
		}
	}
	if err == nil && next != "" {
		err = errors.New("too many objects for this test")
	}
	return out, err
}

// Create creates an object.
func (b *bench) Create(ctx context.Context, r testcluster.Resource, object map[string]any) error {
	if !b.inEtcd() {
		return b.Cluster.Create(ctx, r, object)
	}
	return b.store(ctx, r, object)
}

func (b *bench) store(ctx context.Context, r testcluster.Resource, object map[string]any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	key, value, err := etcdblocks.Stored(blocks.Resource(r.Resource), text, time.Now())
	if err == nil {
		_, err = b.Etcd.Put(ctx, key, string(value))
	}
	return err
}

// Edit changes an object.
func (b *bench) Edit(ctx context.Context, r testcluster.Resource, namespace, name string, change func(map[string]any)) error {
	if !b.inEtcd() {
		return b.Cluster.Edit(ctx, r, namespace, name, change)
	}
	o, err := b.Get(ctx, r, namespace, name)
	if err != nil {
		return err
	}
	change(o.Object)
	return b.store(ctx, r, o.Object)
}

// Delete deletes an object.
func (b *bench) Delete(ctx context.Context, r testcluster.Resource, namespace, name string) error {
	if !b.inEtcd() {
		return b.Cluster.Delete(ctx, r, namespace, name)
	}
	keys, err := etcdblocks.Keys(blocks.Resource(r.Resource), name)
	for _, key := range keys {
		if err == nil {
			_, err = b.Etcd.Delete(ctx, key)
		}
	}
	return err
}

// joined adds Calico's objects to a snapshot of Kubernetes.
func (b *bench) joined(s *blocks.Snapshot) *blocks.Snapshot {
	b.Helper()
	config, err := etcdblocks.LoadConfig("")
	must(b.T, err)
	config.Spec.EtcdEndpoints = b.EtcdEndpoint()
	from, err := etcdblocks.New(config, etcdblocks.Options{})
	must(b.T, err)
	r, err := from.Read(b.Context())
	must(b.T, err)
	s, err = r.Join(s, func(blocks.Resource) bool { return true })
	must(b.T, err)
	return s
}

// unharmedInEtcd fails the test unless each live pod's address is recorded only for that pod.
func (w *world) unharmedInEtcd(when string) {
	w.Helper()
	found := map[netip.Addr][]string{}
	for _, b := range read(w.bench).Blocks {
		for o := range b.Ordinals {
			if a := b.At(o); a != nil {
				found[b.Address(o)] = append(found[b.Address(o)], a.Handle)
			}
		}
	}
	for addr, handle := range w.live {
		if !slices.Equal(found[addr], []string{handle}) {
			w.Errorf("%s: %s is in use by %s, and recorded for %v", when, addr, handle, found[addr])
		}
	}
}

// tapped returns a writer whose writes go through a tap.
func (b *bench) tapped(p *tap, recorder repair.Recorder) *datastore.Writer {
	b.Helper()
	if !b.inEtcd() {
		return b.writer(p.wrap, recorder)
	}
	return datastore.NewWriter(&tappedStore{etcd.New(b.Etcd), p}, nil, datastore.Options{Recorder: recorder}).Impatient()
}

// tappedStore sends requests until its tap is dead.
type tappedStore struct {
	datastore.Store
	tap *tap
}

func (s *tappedStore) Get(ctx context.Context, r blocks.Resource, name string) ([]byte, error) {
	if s.tap.dead {
		return nil, errDead
	}
	return s.Store.Get(ctx, r, name)
}

func (s *tappedStore) write(what string, send func() error) error {
	if s.tap.dead {
		return errDead
	}
	s.tap.writes = append(s.tap.writes, what)
	s.tap.dead = len(s.tap.writes) == s.tap.dieAt
	if s.tap.dead && !s.tap.after {
		return errDead
	}
	err := send()
	if s.tap.dead {
		return errDead
	}
	return err
}

func (s *tappedStore) Create(ctx context.Context, r blocks.Resource, name string, object []byte) (out []byte, err error) {
	err = s.write("create "+name, func() error { out, err = s.Store.Create(ctx, r, name, object); return err })
	return out, err
}

func (s *tappedStore) Patch(ctx context.Context, r blocks.Resource, name string, patch []byte) (out []byte, err error) {
	err = s.write("patch "+name, func() error { out, err = s.Store.Patch(ctx, r, name, patch); return err })
	return out, err
}

func (s *tappedStore) Delete(ctx context.Context, r blocks.Resource, name, uid, version string) error {
	return s.write("delete "+name, func() error { return s.Store.Delete(ctx, r, name, uid, version) })
}

// toEtcd moves the objects of a cluster to etcd.
func toEtcd(t *testing.T, c *testcluster.Cluster) *bench {
	t.Helper()
	must(t, seeding.CopyToEtcd(t.Context(), c))
	t.Cleanup(func() {
		for _, prefix := range []string{"/calico/", "/calico-audit/"} {
			_, err := c.Etcd.Delete(context.WithoutCancel(t.Context()), prefix, clientv3.WithPrefix())
			must(t, err)
		}
	})
	return &bench{t, c, testcluster.EtcdV3}
}

// TestEquivalenceInEtcd performs operations on copies of random states in etcd, once with
// Calico's own client and once with this writer. Then it compares all keys of Calico's IPAM.
func TestEquivalenceInEtcd(t *testing.T) {
	seed := testenv.Seed(t)
	ctx := t.Context()
	old := &bench{t, testcluster.Shared(t, testcluster.Options{}), testcluster.CRDv1}
	must(t, seeding.Random(ctx, old.Cluster, seed))
	s, err := seeding.New(old.Cluster)
	must(t, err)
	r := rand.New(rand.NewPCG(seed, 7))
	state := enrich(old, s, r)
	b := toEtcd(t, old.Cluster)
	image, err := storm.TakeImage(ctx, b.Cluster)
	must(t, err)
	calico, err := seeding.NewEtcd(b.Cluster)
	must(t, err)
	done := map[string]int{}
	for _, d := range deeds(state, r) {
		must(t, image.Restore(ctx, b.Cluster))
		if err := d.calico(b, calico.Calico.IPAM()); err != nil {
			t.Errorf("%s: Calico: %v", d.name, err)
			continue
		}
		want := b.contents()
		must(t, image.Restore(ctx, b.Cluster))
		if err := d.ours(b, b.tapped(&tap{}, nil)); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
		same(t, d.name, want, b.contents())
		kind, _, _ := strings.Cut(d.name, " ")
		if done[kind]++; t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%v", done)
	for _, kind := range kindsOfDeeds {
		if done[kind] == 0 {
			t.Errorf("nothing to do for %s", kind)
		}
	}
}

// TestRecordOfRun: objects that a killed run left count as this program's until they are finished.
// Objects that others have written since do not. A finished run leaves no record.
func TestRecordOfRun(t *testing.T) {
	w := newWorld(t, testcluster.EtcdV3)
	records := func() int64 {
		all, err := w.Etcd.Get(t.Context(), etcdblocks.RunPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		must(t, err)
		return all.Count
	}
	ours := func() (names []string) {
		for _, a := range read(w.bench).Affinities {
			if a.ByUs {
				names = append(names, string(a.State)+" "+a.Name)
			}
		}
		return names
	}
	left := "pendingDeletion " + blocks.AffinityName("n1", empty)
	kill := func() {
		dying := &tap{dieAt: 1, after: true}
		if err := w.release(w.tapped(dying, nil), empty, "n1"); err == nil || records() != 1 || !slices.Equal(ours(), []string{left}) {
			t.Fatalf("after a kill: %v, %d records, ours are %v", err, records(), ours())
		}
	}
	kill()
	s := etcd.New(w.Etcd)
	must(t, w.releaseAgain(datastore.NewWriter(s, nil, datastore.Options{}), empty, "n1"))
	must(t, s.End(t.Context(), false))
	if n := records(); n != 1 { // the killed run may still be in progress
		t.Errorf("%d records after the next run", n)
	}
	w.restore()
	kill()
	w.edit(blocks.Affinities, blocks.AffinityName("n1", empty), func(spec map[string]any) { spec["state"] = "confirmed" })
	if names := ours(); len(names) > 0 {
		t.Errorf("after others wrote it: ours are %v", names)
	}
	s = etcd.New(w.Etcd)
	must(t, w.release(datastore.NewWriter(s, nil, datastore.Options{}), empty, "n1"))
	must(t, s.End(t.Context(), true))
	if n := records(); n != 2 {
		t.Errorf("%d records after a run that left a step half-done", n)
	}
}

// racer writes or deletes a key right before the transaction that would write it.
type racer struct {
	clientv3.KV
	at, n   int // the number of the write to race with, from 1, and of writes seen
	deletes bool
	deleted string // the key that both delete
	sneaked bool
}

type racingTxn struct {
	clientv3.Txn
	racer *racer
	ctx   context.Context
	key   string
	write bool
	ends  bool // the transaction deletes the key
}

func (r *racer) Txn(ctx context.Context) clientv3.Txn {
	return &racingTxn{Txn: r.KV.Txn(ctx), racer: r, ctx: ctx}
}

func (x *racingTxn) If(all ...clientv3.Cmp) clientv3.Txn {
	x.key, x.Txn = string(all[0].Key), x.Txn.If(all...)
	return x
}

func (x *racingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.write, x.ends, x.Txn = ops[0].IsPut() || ops[0].IsDelete(), ops[0].IsDelete(), x.Txn.Then(ops...)
	return x
}

func (x *racingTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.write {
		x.racer.n++
	}
	raced := x.write && x.racer.n == x.racer.at
	switch {
	case raced && x.racer.deletes:
		if x.ends {
			x.racer.deleted = x.key
		}
		if _, err := x.racer.Delete(x.ctx, x.key); err != nil {
			return nil, err
		}
	case raced:
		value := "{}"
		stored, err := x.racer.Get(x.ctx, x.key)
		if err == nil && len(stored.Kvs) > 0 {
			value = string(stored.Kvs[0].Value)
		}
		if _, err := x.racer.Put(x.ctx, x.key, value); err != nil {
			return nil, err
		}
	}
	answer, err := x.Txn.Commit()
	x.racer.sneaked = x.racer.sneaked || raced && err == nil && answer.Succeeded
	return answer, err
}

// eachRaced carries out each step once for each of its writes in etcd, with another client that
// writes, or deletes, the object right before.
func eachRaced(t *testing.T, deletes bool, check func(w *world, s step, r *racer, err error)) {
	t.Helper()
	w := newWorld(t, testcluster.EtcdV3)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{w.EtcdEndpoint()}, Logger: zap.NewNop()})
	must(t, err)
	defer func() { _ = client.Close() }()
	kv := client.KV
	for _, s := range steps {
		for at := 1; s.kind != repair.FinishDelete; at++ {
			w.restoreFor(s)
			r := &racer{KV: kv, at: at, deletes: deletes}
			client.KV = r
			check(w, s, r, s.do(w, datastore.NewWriter(etcd.New(client), nil, datastore.Options{}).Impatient()))
			if r.n < at {
				break
			}
		}
	}
}

// TestConditionalInEtcd: no step writes a key that another client has written since it was read.
func TestConditionalInEtcd(t *testing.T) {
	raced := 0
	eachRaced(t, false, func(w *world, s step, r *racer, err error) {
		if r.sneaked {
			t.Errorf("%s: write %d overwrites another's", s.name, r.at)
		}
		if r.n >= r.at {
			raced++
			w.unharmed(s.name)
		} else if err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	})
	if raced < 30 {
		t.Errorf("only %d writes were raced", raced)
	}
}

// TestDeletedByAnotherInEtcd: in etcd, no mark shows who deletes an object. If another client has
// deleted the object, the step is not done, because its undo would create the object again. This
// excludes later deletions of a step: the handle of a released address, and the affinity of a
// released block.
func TestDeletedByAnotherInEtcd(t *testing.T) {
	raced := 0
	eachRaced(t, true, func(_ *world, s step, r *racer, err error) {
		if r.deleted == "" || s.kind != repair.DeleteAffinity && s.kind != repair.DeleteHandle && (s.kind != repair.ReleaseIP || !strings.Contains(r.deleted, "/block/")) {
			return
		}
		if raced++; !errors.Is(err, repair.ErrChanged) {
			t.Errorf("%s: another client deletes %s, and the step says %v", s.name, r.deleted, err)
		}
	})
	if raced < 4 {
		t.Errorf("only %d deletions were raced", raced)
	}
}

// TestUIDInEtcd: a write also names the object by its UID. Revisions alone do not suffice, because
// an etcd that was restored from a backup uses them again.
func TestUIDInEtcd(t *testing.T) {
	w := newWorld(t, testcluster.EtcdV3)
	s := etcd.New(w.Etcd)
	ref := w.ref(blocks.Blocks, blocks.BlockName(empty))
	uid := "another-uid"
	patch := fmt.Appendf(nil, `[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"replace","path":"/spec/affinity","value":"host:n2"}]`, uid, ref.ResourceVersion)
	_, err := s.Patch(t.Context(), ref.Resource, ref.Name, patch)
	for what, err := range map[string]error{"patched": err, "deleted": s.Delete(t.Context(), ref.Resource, ref.Name, uid, ref.ResourceVersion)} {
		var refused *datastore.Response
		if !errors.As(err, &refused) || !refused.Refused {
			t.Errorf("an object of another UID is %s: %v", what, err)
		}
	}
	must(t, s.Delete(t.Context(), ref.Resource, ref.Name, ref.UID, ref.ResourceVersion))
}

// TestPagesOfEtcd: a list has every object, in pages.
func TestPagesOfEtcd(t *testing.T) {
	w := newWorld(t, testcluster.EtcdV3)
	const n = 501 // one more than a page
	for i := range n {
		_, err := w.Etcd.Put(t.Context(), fmt.Sprintf("/calico/ipam/v2/handle/of-a-page-%d", i), `{"block":{"10.0.0.0/26":1}}`)
		must(t, err)
	}
	names, pages, q := map[string]bool{}, 0, datastore.Query{}
	for s := etcd.New(w.Etcd); pages == 0 || q.Next != ""; pages++ {
		page, next, err := s.List(t.Context(), blocks.Handles, q)
		must(t, err)
		for _, object := range page {
			o, err := parsed(object, nil)
			must(t, err)
			names[o.GetName()] = true
		}
		q.Next = next
	}
	if pages != 2 || len(names) < n {
		t.Errorf("%d of %d handles in %d pages", len(names), n, pages)
	}
}

// TestOldRecords: the end of a run deletes the records of earlier runs that no longer describe any
// object, and no others.
func TestOldRecords(t *testing.T) {
	w := newWorld(t, testcluster.EtcdV3)
	stored, err := w.Etcd.Get(t.Context(), "/calico/ipam/v2/config")
	must(t, err)
	long := time.Now().Add(-time.Hour)
	records := map[string]string{"other": "{"}
	for name, write := range map[string]etcdblocks.Write{
		"superseded": {Key: "/calico/ipam/v2/config", Revision: 1, At: long}, "deleted": {Key: "/calico/ipam/v2/handle/none", Revision: 1, At: long},
		"current": {Key: "/calico/ipam/v2/config", Revision: stored.Kvs[0].ModRevision, At: long}, "running": {Key: "/calico/ipam/v2/config", Revision: 1, At: time.Now()},
	} {
		text, err := json.Marshal(etcdblocks.Run{Writes: []etcdblocks.Write{write}})
		must(t, err)
		records[name] = string(text)
	}
	for name, text := range records {
		_, err := w.Etcd.Put(t.Context(), etcdblocks.RunPrefix+name, text)
		must(t, err)
	}
	must(t, etcd.New(w.Etcd).End(t.Context(), false))
	left, err := w.Etcd.Get(t.Context(), etcdblocks.RunPrefix, clientv3.WithPrefix())
	must(t, err)
	var names []string
	for _, kv := range left.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), etcdblocks.RunPrefix))
	}
	if want := []string{"current", "other", "running"}; !slices.Equal(names, want) {
		t.Errorf("left are %v, want %v", names, want)
	}
}
