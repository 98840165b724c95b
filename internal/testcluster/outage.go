package testcluster

import "context"

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

// Running reports whether both servers run.
func (c *Cluster) Running() bool { return c.etcd.running() && c.apiserver.running() }
