package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// maxRestarts limits how often a reading starts again because its revision was compacted.
const maxRestarts = 2

// Read reads all kinds at one revision, page by page. A kind that the user may not read, and
// a value that cannot be parsed, are gaps. Read returns an error if nothing can be read, or
// if a read breaks off.
func (c *Client) Read(ctx context.Context) (*Reading, error) {
	if c.conn == nil {
		defer func() { _ = c.Close() }()
	}
	from, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for restarts := 0; ; restarts++ {
		r, err := c.read(ctx, from)
		if !errors.Is(err, rpctypes.ErrCompacted) || restarts == maxRestarts {
			return r, err
		}
	}
}

func (c *Client) read(ctx context.Context, from clientv3.KV) (*Reading, error) {
	r := newReading(c.opts.Record)
	if r.record != nil {
		for _, s := range stores {
			if !s.later {
				r.record(s.resource).Restart()
			}
		}
	}
	if err := c.readRuns(ctx, from, r); err != nil {
		return nil, err
	}
	for _, s := range stores {
		l := r.list(s.resource)
		err := c.eachPage(ctx, from, s, r, func(kvs []*mvccpb.KeyValue) {
			for _, kv := range kvs {
				r.add(s, kv)
			}
			if r.record != nil && !s.later {
				r.record(s.resource).Commit()
			}
		})
		switch {
		case errors.Is(err, rpctypes.ErrPermissionDenied):
			r.denied[s.key] = true
			r.endpointsUnread = r.endpointsUnread || s.resource == blocks.Pods
			l.Gaps = append(l.Gaps, blocks.Gap{Resource: s.resource, Denied: true, Reason: "forbidden: the etcd user needs the right to read " + s.key})
			if !slices.ContainsFunc(stores, func(s store) bool { return !r.denied[s.key] }) {
				return nil, c.failed(err)
			}
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, c.failed(err)
		}
	}
	return r, nil
}

// readRuns reads the records of runs. A user who may not read them sees their objects as written by
// others.
func (c *Client) readRuns(ctx context.Context, from clientv3.KV, r *Reading) error {
	err := c.eachPage(ctx, from, store{key: RunPrefix}, r, func(kvs []*mvccpb.KeyValue) {
		for _, kv := range kvs {
			r.runs.take(kv)
		}
	})
	if r.denied[RunPrefix] = errors.Is(err, rpctypes.ErrPermissionDenied); err != nil && !r.denied[RunPrefix] {
		return c.failed(err)
	}
	return nil
}

// endOf returns the end of the range of a store's key.
func endOf(key string) string {
	if strings.HasSuffix(key, "/") {
		return clientv3.GetPrefixRangeEnd(key)
	}
	return key + "\x00"
}

// eachPage reads the keys of a store. The first page of a reading determines its revision.
func (c *Client) eachPage(ctx context.Context, etcd clientv3.KV, s store, r *Reading, page func([]*mvccpb.KeyValue)) error {
	end, done := endOf(s.key), 0
	for from := s.key; ; {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(c.opts.PageSize), clientv3.WithRev(r.Revision)}
		request, cancel := context.WithTimeout(ctx, c.opts.Timeout)
		resp, err := etcd.Get(request, from, opts...)
		cancel()
		if err != nil {
			return err
		}
		if r.Revision == 0 {
			r.Revision = resp.Header.Revision
		}
		page(resp.Kvs)
		if done += len(resp.Kvs); c.opts.Progress != nil && s.resource != "" {
			c.opts.Progress(s.resource, done)
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
