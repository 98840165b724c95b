package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/etcd"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// Store keeps Calico's objects in etcd, on behalf of one run. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	run    string // key of the run's record

	mu     sync.Mutex
	writes []etcd.Write // of this run, the newest last
}

var _ datastore.Store = (*Store)(nil)

// Open returns a store for a new run. The connection lasts until the client is closed.
func Open(ctx context.Context, client *etcd.Client) (*Store, error) {
	conn, err := client.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return New(conn), nil
}

// New returns a store for a new run. The client's user needs the role of
// examples/etcd/role-repair.sh.
func New(client *clientv3.Client) *Store {
	return &Store{client: client, run: etcd.RunPrefix + string(uuid.NewUUID())}
}

// Traits implements [datastore.Store].
func (s *Store) Traits() datastore.Traits { return datastore.Traits{Group: decode.GroupCRD} }

// Get implements [datastore.Store].
func (s *Store) Get(ctx context.Context, r blocks.Resource, name string) ([]byte, error) {
	kv, by, err := s.get(ctx, r, name)
	if kv == nil || err != nil {
		return nil, err
	}
	return objectOf(r, kv, by)
}

// objectOf returns the object of a key, which this run wrote at a time; zero if it did not.
func objectOf(r blocks.Resource, kv *mvccpb.KeyValue, by time.Time) ([]byte, error) {
	object, ok, err := etcd.Object(r, kv, by)
	if err == nil && !ok {
		err = fmt.Errorf("%s holds no object", kv.Key)
	}
	return object, err
}

// get reads the key of an object, and returns when this run wrote it; zero if another client wrote
// it last.
func (s *Store) get(ctx context.Context, r blocks.Resource, name string) (kv *mvccpb.KeyValue, by time.Time, err error) {
	keys, err := etcd.Keys(r, name)
	if err != nil {
		return nil, by, err
	}
	ops := []clientv3.Op{clientv3.OpGet(s.run)}
	for _, key := range keys {
		ops = append(ops, clientv3.OpGet(key))
	}
	answers, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, by, response(err)
	}
	for _, a := range answers.Responses[1:] {
		for _, found := range a.GetResponseRange().Kvs {
			if kv != nil {
				return nil, by, fmt.Errorf("both %s and %s have the name %s", kv.Key, found.Key, name)
			}
			kv = found
		}
	}
	if kv != nil {
		for _, record := range answers.Responses[0].GetResponseRange().Kvs {
			by = etcd.WrittenAt(record, kv)
		}
	}
	return kv, by, nil
}

// pageSize is the number of keys of a page.
const pageSize = 500

// List implements [datastore.Store] for a whole resource.
func (s *Store) List(ctx context.Context, r blocks.Resource, q datastore.Query) (objects []json.RawMessage, next string, err error) {
	if q.Namespace != "" || q.Name != "" {
		return nil, "", errors.New("etcd lists whole resources only")
	}
	for _, prefix := range etcd.Ranges(r) {
		end := clientv3.GetPrefixRangeEnd(prefix)
		from := max(prefix, q.Next)
		if from >= end {
			continue // this range was listed before
		}
		page, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
		if err != nil {
			return nil, "", response(err)
		}
		for _, kv := range page.Kvs {
			switch object, ok, err := etcd.Object(r, kv, time.Time{}); {
			case err != nil:
				return nil, "", err
			case ok:
				objects = append(objects, object)
			}
		}
		if page.More {
			return objects, string(page.Kvs[len(page.Kvs)-1].Key) + "\x00", nil
		}
		q.Next = end
	}
	return objects, "", nil
}

// Create implements [datastore.Store].
func (s *Store) Create(ctx context.Context, r blocks.Resource, _ string, object []byte) ([]byte, error) {
	key, value, err := etcd.Stored(r, object, time.Now())
	if err != nil {
		return nil, refuse(err)
	}
	kv, err := s.put(ctx, key, value, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
	if err != nil {
		return nil, err
	}
	return objectOf(r, kv, time.Now())
}

// Patch implements [datastore.Store].
func (s *Store) Patch(ctx context.Context, r blocks.Resource, name string, patch []byte) ([]byte, error) {
	uid, version, err := tested(patch)
	if err != nil {
		return nil, refuse(err)
	}
	kv, err := s.pinned(ctx, r, name, uid, version)
	if err == nil && kv == nil {
		err = refuse(errConflict)
	}
	if err != nil {
		return nil, err
	}
	value, err := etcd.Edit(r, kv.Value, patch)
	if err != nil {
		return nil, refuse(err)
	}
	now, err := s.put(ctx, string(kv.Key), value, clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision))
	if err != nil {
		return nil, err
	}
	now.CreateRevision = kv.CreateRevision
	return objectOf(r, now, time.Now())
}

// Delete implements [datastore.Store].
func (s *Store) Delete(ctx context.Context, r blocks.Resource, name, uid, version string) error {
	kv, err := s.pinned(ctx, r, name, uid, version)
	if err == nil && kv == nil {
		err = refuse(errConflict)
	}
	if err != nil {
		return err
	}
	key := string(kv.Key)
	_, err = s.write(ctx, key, clientv3.OpDelete(key), clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision))
	return err
}

// errConflict refuses a write whose condition does not hold.
var errConflict = errors.New("another client has written it")

// pinned reads the key of an object in a version. A deleted object is nil without an error.
func (s *Store) pinned(ctx context.Context, r blocks.Resource, name, uid, version string) (*mvccpb.KeyValue, error) {
	kv, _, err := s.get(ctx, r, name)
	switch {
	case err != nil: // nothing was written yet, and a later answer may differ
		var a *datastore.Response
		return nil, &datastore.Response{Err: err, Refused: true, Busy: !errors.As(err, &a) || a.Busy}
	case kv == nil:
		return nil, nil
	case strconv.FormatInt(kv.ModRevision, 10) != version:
		return nil, refuse(errConflict)
	}
	object, err := objectOf(r, kv, time.Time{})
	if err != nil {
		return nil, refuse(err)
	}
	var o struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, refuse(err)
	}
	if o.Metadata.UID != uid {
		return nil, refuse(errConflict)
	}
	return kv, nil
}

// tested returns the uid and the resourceVersion that a patch tests.
func tested(patch []byte) (uid, version string, err error) {
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		return "", "", err
	}
	for _, op := range ops {
		into := map[string]*string{"/metadata/uid": &uid, "/metadata/resourceVersion": &version}[op.Path]
		if op.Op == "test" && into != nil {
			if err := json.Unmarshal(op.Value, into); err != nil {
				return "", "", err
			}
		}
	}
	if uid == "" || version == "" {
		return "", "", errors.New("the patch is not conditional on uid and resourceVersion")
	}
	return uid, version, nil
}

// put writes a value under a condition, and returns it as stored.
func (s *Store) put(ctx context.Context, key string, value []byte, on clientv3.Cmp) (*mvccpb.KeyValue, error) {
	revision, err := s.write(ctx, key, clientv3.OpPut(key, string(value)), on)
	return &mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: revision, ModRevision: revision}, err
}

// recorded is the number of writes that a run's record lists: more than a step leaves
// half-done.
const recorded = 20

// write sends one transaction under a condition, with the record of the run.
func (s *Store) write(ctx context.Context, key string, op clientv3.Op, on clientv3.Cmp) (revision int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := append(slices.Clone(s.writes), etcd.Write{Key: key, At: time.Now().UTC()})
	writes = writes[max(0, len(writes)-recorded):]
	record, err := json.Marshal(etcd.Run{Writes: writes})
	if err != nil {
		return 0, refuse(err)
	}
	answer, err := s.client.Txn(ctx).If(on).Then(op, clientv3.OpPut(s.run, string(record))).Commit()
	switch {
	case err != nil:
		return 0, response(err)
	case !answer.Succeeded:
		return 0, &datastore.Response{Err: errConflict, Refused: true, Exists: true}
	}
	revision = answer.Header.Revision
	writes[len(writes)-1].Revision = revision
	s.writes = writes
	return revision, nil
}

// Allowed implements [datastore.Store]: a transaction whose condition cannot hold needs the
// rights of its writes.
func (s *Store) Allowed(ctx context.Context, verb string, r blocks.Resource) (ok bool, reason string, err error) {
	writes := verb != "get" && verb != "list"
	keys := etcd.Ranges(r)
	if writes { // of affinities only those of hosts, the first range
		keys = []string{keys[0], etcd.RunPrefix}
	}
	for _, key := range keys {
		op, right := clientv3.OpPut(key, ""), "write"
		switch {
		case writes:
		case strings.HasSuffix(key, "/"):
			op, right = clientv3.OpGet(key, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()), "read"
		default:
			op, right = clientv3.OpGet(key, clientv3.WithCountOnly()), "read"
		}
		_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(s.run), "<", 0)).Then(op).Commit()
		switch {
		case errors.Is(err, rpctypes.ErrPermissionDenied):
			return false, fmt.Sprintf("the etcd user may not %s %s", right, key), nil
		case err != nil:
			return false, "", response(err)
		}
	}
	return true, "", nil
}

// End deletes the record of the run, unless the run left a step half-done, and the records of
// earlier runs whose objects others have written since.
func (s *Store) End(ctx context.Context, halfDone bool) error {
	records, err := s.client.Get(ctx, etcd.RunPrefix, clientv3.WithPrefix())
	if err != nil {
		return response(err)
	}
	for _, record := range records.Kvs {
		key, own := string(record.Key), string(record.Key) == s.run
		old := !own
		if old {
			if old, err = s.superseded(ctx, record); err != nil {
				return err
			}
		}
		if own && !halfDone || old {
			if _, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", record.ModRevision)).Then(clientv3.OpDelete(key)).Commit(); err != nil {
				return response(err)
			}
		}
	}
	return nil
}

// superseded reports whether no key has the revision at which a run wrote it, so that the run's
// record no longer describes any object. A run in progress does not count as superseded.
func (s *Store) superseded(ctx context.Context, record *mvccpb.KeyValue) (bool, error) {
	var run etcd.Run
	if json.Unmarshal(record.Value, &run) != nil {
		return false, nil //nolint:nilerr // the record is of another version
	}
	for _, w := range run.Writes {
		if time.Since(w.At) < blocks.WriteTimeout {
			return false, nil
		}
		now, err := s.client.Get(ctx, w.Key)
		if err != nil {
			return false, response(err)
		}
		for _, kv := range now.Kvs {
			if !etcd.WrittenAt(record, kv).IsZero() {
				return false, nil
			}
		}
	}
	return true, nil
}

// refuse returns an error of a write that was not sent.
func refuse(err error) error { return &datastore.Response{Err: err, Refused: true} }

// response returns the error of a request. etcd returns these codes before it carries out a write.
// After other errors, it may have carried out the write. A lack of space is one of them: the write
// that exceeds the quota is carried out all the same (etcd server/etcdserver/apply,
// quotaApplierV3).
func response(err error) error {
	var a rpctypes.EtcdError
	if !errors.As(err, &a) {
		return err
	}
	switch a.Code() {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.NotFound, codes.OutOfRange:
		return refuse(err)
	case codes.ResourceExhausted:
		if errors.Is(err, rpctypes.ErrTooManyRequests) {
			return &datastore.Response{Err: err, Refused: true, Busy: true}
		}
	default: // no answer, or an inconclusive one
	}
	return err
}
