package etcd

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// Changed returns a channel that is closed after the first change since a reading, in any range
// that the user may read. It is also closed if a watch ends, because changes may then be missed:
// the revision was compacted, or etcd cannot be reached.
func (c *Client) Changed(ctx context.Context, r *Reading) (<-chan struct{}, error) {
	from, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watches []clientv3.WatchChan
	for _, s := range stores {
		if r.denied(s.resource) {
			continue
		}
		opts := []clientv3.OpOption{clientv3.WithRev(r.Revision + 1)}
		if strings.HasSuffix(s.key, "/") {
			opts = append(opts, clientv3.WithPrefix())
		}
		watches = append(watches, from.Watch(ctx, s.key, opts...))
	}
	changed := make(chan struct{})
	first := make(chan struct{}, len(watches))
	for _, w := range watches {
		go func() {
			<-w // an event, an error, or the end of ctx
			first <- struct{}{}
		}()
	}
	go func() {
		defer cancel()
		select {
		case <-first:
		case <-ctx.Done():
		}
		close(changed)
	}()
	return changed, nil
}

// denied reports whether a resource may not be read.
func (r *Reading) denied(res blocks.Resource) bool {
	for _, g := range r.list(res).Gaps {
		if g.Denied {
			return true
		}
	}
	return false
}
