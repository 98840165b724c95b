package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// pageSize is the number of keys of a page. A page of blocks, the largest values, has some
// 10 MB.
const pageSize = 1000

// maxRestarts limits how often a reading starts again because its revision was compacted.
const maxRestarts = 2

// A Reading holds the content of Calico's etcd at one revision.
type Reading struct {
	// Revision is the revision that was read.
	Revision int64

	lists map[blocks.Resource]*decode.Objects
	nodes map[string]*node // by Calico's name
	// byKubernetes holds Calico's name of each Kubernetes node.
	byKubernetes map[string]string
	// ofPods are the endpoints of Kubernetes' pods; others are all other endpoints.
	ofPods, others endpoints
	// denied are the ranges that the user may not read.
	denied map[string]bool
	// endpointsUnread is true if an endpoint could not be read.
	endpointsUnread bool
	// find, if set, reads the endpoints of a pod on a node; failed is its first error.
	find   func(key blocks.Key, node string) ([]*endpoint, error)
	mu     sync.Mutex
	failed error
	// runs are the writes of this program's runs.
	runs    runs
	record  func(blocks.Resource) decode.Spool
	strings *decode.SharedStrings
}

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

func newReading(record func(blocks.Resource) decode.Spool) *Reading {
	return &Reading{
		lists: map[blocks.Resource]*decode.Objects{}, nodes: map[string]*node{}, byKubernetes: map[string]string{},
		denied: map[string]bool{}, ofPods: endpoints{}, others: endpoints{}, runs: runs{}, record: record, strings: &decode.SharedStrings{},
	}
}

// list returns the objects of a resource.
func (r *Reading) list(res blocks.Resource) *decode.Objects {
	if r.lists[res] == nil {
		r.lists[res] = decode.NewObjects(decode.KindOf(res))
	}
	return r.lists[res]
}

// resources returns the resources with lists, in a fixed order.
func (r *Reading) resources() []blocks.Resource { return slices.Sorted(maps.Keys(r.lists)) }

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

// failed returns the error of a failed reading: the endpoints, and the cause in terms of Calico's
// configuration.
func (c *Client) failed(err error) error {
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		why = "the user name or the password is wrong"
	case errors.Is(err, rpctypes.ErrUserEmpty):
		why = "it requires a user name and password (ETCD_USERNAME, ETCD_PASSWORD) or a client certificate"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		why = "the user may read none of Calico's keys: it needs the role of examples/etcd/role.sh"
	case errors.Is(err, context.DeadlineExceeded):
		why = "no answer in time"
		if cause := c.reach(context.Background()); cause != nil { // the client hides why it waits
			why += ": " + cause.Error()
		}
	}
	return &readError{fmt.Sprintf("reading Calico's etcd at %s: %s", c.where, why), err}
}

// readError is the error of a failed reading, with its cause.
type readError struct {
	text  string
	cause error
}

func (e *readError) Error() string { return e.text }

func (e *readError) Unwrap() error { return e.cause }

// Is reports whether etcd refused the user, which is a [blocks.ErrDenied].
func (e *readError) Is(target error) bool {
	return target == blocks.ErrDenied && (errors.Is(e.cause, rpctypes.ErrPermissionDenied) || errors.Is(e.cause, rpctypes.ErrAuthFailed) || errors.Is(e.cause, rpctypes.ErrUserEmpty))
}
