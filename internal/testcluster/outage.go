package testcluster

import (
	"context"
	"fmt"
	"os"
)

// StopEtcd kills etcd like a crash. The API server keeps running but cannot read or
// write. The data stays.
func (c *Cluster) StopEtcd() { c.etcd.stop() }

// StartEtcd starts a stopped etcd on the same port with the same data, and waits until
// the API server is ready again.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	if err := c.etcd.start(ctx); err != nil {
		return err
	}
	c.apiserver.mu.Lock()
	process := c.apiserver.process
	c.apiserver.mu.Unlock()
	if process == nil {
		return nil
	}
	return c.apiserver.await(ctx, process)
}

// Backup copies etcd's directory while the servers are stopped. The returned function restores it
// in the same way, and may be called again: everything that the API server serves is then as it was
// at the time of Backup, and revisions that were used since are used again. Connections break.
func (c *Cluster) Backup(ctx context.Context) (restore func(context.Context) error, err error) {
	data, copied := c.path("etcd"), c.path("etcd-backup")
	swap := func(ctx context.Context, from, to string) error {
		c.StopAPIServer()
		c.StopEtcd()
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			return fmt.Errorf("copying etcd's directory: %w", err)
		}
		if err := c.StartEtcd(ctx); err != nil {
			return err
		}
		return c.StartAPIServer(ctx)
	}
	restore = func(ctx context.Context) error { return swap(ctx, copied, data) }
	return restore, swap(ctx, data, copied)
}

// Running reports whether both servers run.
func (c *Cluster) Running() bool { return c.etcd.running() && c.apiserver.running() }
