package storm

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Image is a copy of the stored objects that an audit reads. Restoring it is much faster
// than creating the state again. Objects keep their UIDs and get new resourceVersions.
type Image map[string][]byte

// imagePrefixes are the key prefixes of those objects. The API server must answer from
// etcd and not from its watch cache, which is too slow for this.
var imagePrefixes = []string{
	"/registry/crd.projectcalico.org/", "/registry/projectcalico.org/", whereaboutsPrefix, "/registry/pods/", "/registry/minions/",
	"/calico/", "/calico-audit/", // of a Calico that keeps its objects in etcd
}

// TakeImage copies the stored objects of a cluster.
func TakeImage(ctx context.Context, c *testcluster.Cluster) (Image, error) {
	image := Image{}
	err := eachStored(ctx, c, func(kv *mvccpb.KeyValue) error {
		image[string(kv.Key)] = kv.Value
		return nil
	})
	return image, err
}

func eachStored(ctx context.Context, c *testcluster.Cluster, f func(*mvccpb.KeyValue) error) error {
	for _, prefix := range imagePrefixes {
		stored, err := c.Etcd.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return fmt.Errorf("reading what is stored: %w", err)
		}
		for _, kv := range stored.Kvs {
			if err := f(kv); err != nil {
				return err
			}
		}
	}
	return nil
}

// Restore makes a cluster store exactly the image's objects. Unchanged objects are not
// written.
func (image Image) Restore(ctx context.Context, c *testcluster.Cluster) error {
	missing := map[string]bool{}
	for key := range image {
		missing[key] = true
	}
	err := eachStored(ctx, c, func(kv *mvccpb.KeyValue) error {
		key := string(kv.Key)
		delete(missing, key)
		want, has := image[key]
		var err error
		switch {
		case !has:
			_, err = c.Etcd.Delete(ctx, key)
		case !slices.Equal(want, kv.Value):
			_, err = c.Etcd.Put(ctx, key, string(want))
		}
		return err
	})
	for key := range missing {
		if err == nil {
			_, err = c.Etcd.Put(ctx, key, string(image[key]))
		}
	}
	if err != nil {
		return fmt.Errorf("bringing back what was stored: %w", err)
	}
	return nil
}
