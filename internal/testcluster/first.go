package testcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// firstState is what a new API server and its CRDs store: roles, the CRDs and the like. Creating
// these takes a fifth of the CPU time of a start. So the first cluster of its kind keeps them in the
// user's cache directory, and the others start with them.
type firstState struct {
	// path is the file. Its name holds a hash of all that the objects depend on.
	path string
	// restored reports whether the file existed.
	restored bool
}

func newFirstState(ctx context.Context, apiserverPath string, opts Options) (*firstState, error) {
	binary, err := os.Stat(apiserverPath)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	encoder := json.NewEncoder(hash)
	for _, v := range []any{apiserverPath, binary.Size(), binary.ModTime(), opts} {
		if err := encoder.Encode(v); err != nil {
			return nil, err
		}
	}
	for _, group := range opts.Groups {
		crds, err := CRDs(ctx, group)
		if err != nil {
			return nil, err
		}
		if err := encoder.Encode(crds); err != nil {
			return nil, err
		}
	}
	path, err := programs.CachePath("first-state-" + hex.EncodeToString(hash.Sum(nil))[:12] + ".json")
	return &firstState{path: path}, err
}

// restore stores the objects in an etcd whose API server has not started yet. It does
// nothing if no cluster has saved them.
func (f *firstState) restore(ctx context.Context, etcd *clientv3.Client) error {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	values := map[string][]byte{}
	if err == nil {
		err = json.Unmarshal(content, &values)
	}
	var puts []clientv3.Op
	for key, value := range values {
		puts = append(puts, clientv3.OpPut(key, string(value)))
	}
	if err == nil {
		_, err = etcd.Txn(ctx).Then(puts...).Commit()
	}
	if err != nil {
		return fmt.Errorf("restoring what a new API server stores, from %s: %w", f.path, err)
	}
	f.restored = true
	return nil
}

// ownState are the keys that belong to one API server: its leases and certificates, and the
// namespaces, whose UIDs identify a cluster.
var ownState = []string{"/registry/leases/", "/registry/masterleases/", "/registry/configmaps/", "/registry/events/", "/registry/namespaces/"}

// save keeps what the API server of a new cluster has stored, unless it was restored.
func (f *firstState) save(ctx context.Context, etcd *clientv3.Client) error {
	if f.restored {
		return nil
	}
	stored, err := etcd.Get(ctx, "/registry/", clientv3.WithPrefix())
	values := map[string][]byte{}
	if err == nil {
		for _, kv := range stored.Kvs {
			if !slices.ContainsFunc(ownState, func(prefix string) bool { return strings.HasPrefix(string(kv.Key), prefix) }) {
				values[string(kv.Key)] = kv.Value
			}
		}
	}
	var content []byte
	if err == nil {
		content, err = json.Marshal(values)
	}
	if err == nil {
		err = writeAtOnce(f.path, content)
	}
	if err != nil {
		return fmt.Errorf("keeping what a new API server stores: %w", err)
	}
	return nil
}

// writeAtOnce writes a file that no reader sees in part.
func writeAtOnce(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return os.Rename(tmp.Name(), path)
}
