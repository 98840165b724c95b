package testcluster

import "context"

// StopEtcd kills the API server's datastore at once, as a crash would. The API
// server stays, and cannot read or write. The data stays, too.
func (c *Cluster) StopEtcd() { c.etcd.stop() }

// StartEtcd starts a stopped etcd again, on the same port and with the same data,
// and waits until the API server is ready again.
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
