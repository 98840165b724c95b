package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// This file reads and writes objects in etcd. To the API server, these writes look like
// those of another API server.

// storagePrefix returns the key prefix under which the API server stores a kind. Keys of
// custom resources include the group. Some core kinds have other names.
func storagePrefix(r Resource) string {
	if r.Group != "" {
		return path.Join("/registry", r.Group, r.Resource) + "/"
	}
	switch r.Resource {
	case "nodes":
		return "/registry/minions/"
	case "services":
		return "/registry/services/specs/"
	default:
		return "/registry/" + r.Resource + "/"
	}
}

var coreSerializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// protobufMagic is the prefix of stored objects in protobuf. Others are JSON.
var protobufMagic = []byte("k8s\x00")

// editStored calls change for each stored object of a kind, one after the other, and
// stores the results. Custom resources are passed as *unstructured.Unstructured, core
// kinds as their Go types. It fails if one of the objects is written at the same time.
func (c *Cluster) editStored(ctx context.Context, r Resource, change func(runtime.Object) error) error {
	stored, err := c.Etcd.Get(ctx, storagePrefix(r), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("reading stored %s: %w", r.Resource, err)
	}
	puts, putsCtx := errgroup.WithContext(ctx)
	puts.SetLimit(parallelPuts)
	for _, kv := range stored.Kvs {
		object, err := decodeStored(kv.Value)
		if err != nil {
			return fmt.Errorf("reading stored %s: %w", kv.Key, err)
		}
		if err := change(object); err != nil {
			return fmt.Errorf("changing stored %s: %w", kv.Key, err)
		}
		value, err := encodeStored(object)
		if err != nil {
			return fmt.Errorf("writing stored %s: %w", kv.Key, err)
		}
		if !bytes.Equal(value, kv.Value) {
			puts.Go(func() error { return c.replaceStored(putsCtx, kv, value) })
		}
	}
	return puts.Wait()
}

// replaceStored stores a new value unless the key was written since old was read.
func (c *Cluster) replaceStored(ctx context.Context, old *mvccpb.KeyValue, value []byte) error {
	key := string(old.Key)
	done, err := c.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", old.ModRevision)).
		Then(clientv3.OpPut(key, string(value))).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("somebody else wrote it meanwhile")
	}
	if err != nil {
		return fmt.Errorf("writing stored %s: %w", key, err)
	}
	return nil
}

// getStored reads one stored object.
func (c *Cluster) getStored(ctx context.Context, key string) (runtime.Object, error) {
	stored, err := c.Etcd.Get(ctx, key)
	if err == nil && len(stored.Kvs) == 0 {
		err = errors.New("not found")
	}
	if err != nil {
		return nil, fmt.Errorf("reading stored %s: %w", key, err)
	}
	return decodeStored(stored.Kvs[0].Value)
}

func decodeStored(value []byte) (runtime.Object, error) {
	if bytes.HasPrefix(value, protobufMagic) {
		object, _, err := coreSerializer.Decode(value, nil, nil)
		return object, err
	}
	u := &unstructured.Unstructured{}
	return u, utiljson.Unmarshal(value, &u.Object)
}

func encodeStored(object runtime.Object) ([]byte, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		value, err := json.Marshal(u.Object)
		return append(value, '\n'), err
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	var out bytes.Buffer
	err = coreSerializer.Encode(object, &out)
	return out.Bytes(), err
}

// Reset deletes the objects of tests and seeding: all nodes, pods, services and custom
// resources, Calico's own keys in etcd, and all namespaces except the API server's own. Users keep their rights, and
// CRDs stay.
func (c *Cluster) Reset(ctx context.Context) error {
	for _, r := range seeded() {
		if err := c.deleteStored(ctx, storagePrefix(r)); err != nil {
			return err
		}
	}
	if err := c.deleteStored(ctx, "/calico/"); err != nil {
		return err
	}
	return c.editStored(ctx, Core[0], func(object runtime.Object) error {
		object.(*corev1.Namespace).Annotations = nil
		return nil
	})
}

// seeded returns the kinds that tests and seeding create.
func seeded() []Resource { return slices.Concat(customResources(), Core, []Resource{Services, Events}) }

// own reports whether a stored object belongs to the API server: a system namespace or
// the service kubernetes.
func own(key string) bool {
	name, namespace := strings.CutPrefix(key, storagePrefix(Core[0]))
	return namespace && slices.Contains(systemNamespaces, name) || key == storageKey(Services, "default", "kubernetes")
}

// savedState holds the objects that Reset would delete, as stored at one time.
type savedState struct {
	at      time.Time
	objects []*mvccpb.KeyValue
}

func (c *Cluster) save(ctx context.Context) (*savedState, error) {
	s := &savedState{at: time.Now()}
	for _, r := range seeded() {
		stored, err := c.Etcd.Get(ctx, storagePrefix(r), clientv3.WithPrefix())
		if err != nil {
			return nil, fmt.Errorf("reading stored %s: %w", r.Resource, err)
		}
		for _, kv := range stored.Kvs {
			if !own(string(kv.Key)) {
				s.objects = append(s.objects, kv)
			}
		}
	}
	return s, nil
}

// Save reads the stored objects of the given kinds, and returns a function that restores all of
// them at once.
func (c *Cluster) Save(ctx context.Context, kinds ...Resource) (func(context.Context) error, error) {
	stored := func(ctx context.Context) (map[string]string, error) {
		out := map[string]string{}
		for _, r := range kinds {
			found, err := c.Etcd.Get(ctx, storagePrefix(r), clientv3.WithPrefix())
			if err != nil {
				return nil, fmt.Errorf("reading stored %s: %w", r.Resource, err)
			}
			for _, kv := range found.Kvs {
				out[string(kv.Key)] = string(kv.Value)
			}
		}
		return out, nil
	}
	saved, err := stored(ctx)
	return func(ctx context.Context) error {
		now, err := stored(ctx)
		if err != nil {
			return err
		}
		var changes []clientv3.Op
		for key := range now {
			if _, kept := saved[key]; !kept {
				changes = append(changes, clientv3.OpDelete(key))
			}
		}
		for key, value := range saved {
			if now[key] != value {
				changes = append(changes, clientv3.OpPut(key, value))
			}
		}
		if _, err := c.Etcd.Txn(ctx).Then(changes...).Commit(); err != nil {
			return fmt.Errorf("storing what was saved: %w", err)
		}
		return nil
	}, err
}

// restore stores the objects of a state in a cluster after Reset. It shifts their times
// so that they have the same ages, in whole seconds, as when they were saved.
func (c *Cluster) restore(ctx context.Context, s *savedState) error {
	passed := time.Since(s.at).Truncate(time.Second)
	puts, putsCtx := errgroup.WithContext(ctx)
	puts.SetLimit(parallelPuts)
	for _, kv := range s.objects {
		puts.Go(func() error {
			object, err := decodeStored(kv.Value)
			if err == nil {
				err = MakeOlder(object, -passed)
			}
			var value []byte
			if err == nil {
				value, err = encodeStored(object)
			}
			if err == nil {
				_, err = c.Etcd.Put(putsCtx, string(kv.Key), string(value))
			}
			if err != nil {
				return fmt.Errorf("restoring %s: %w", kv.Key, err)
			}
			return nil
		})
	}
	return puts.Wait()
}

// deleteStored deletes all objects stored under a prefix, except the API server's own. It
// deletes them one at a time: the API server expects that a revision changes one object,
// and may answer too early if one revision changes many.
func (c *Cluster) deleteStored(ctx context.Context, prefix string) error {
	stored, err := c.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("reading stored %s: %w", prefix, err)
	}
	deletes, deletesCtx := errgroup.WithContext(ctx)
	deletes.SetLimit(parallelPuts)
	for _, kv := range stored.Kvs {
		key := string(kv.Key)
		if own(key) {
			continue
		}
		deletes.Go(func() error {
			if _, err := c.Etcd.Delete(deletesCtx, key); err != nil {
				return fmt.Errorf("deleting stored %s: %w", key, err)
			}
			return nil
		})
	}
	return deletes.Wait()
}

// parallelPuts is the maximum number of concurrent writes to etcd.
const parallelPuts = 32
