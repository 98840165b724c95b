package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/projectcalico/calico/libcalico-go/lib/names"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// maxOps is the number of requests in a transaction: etcd's default limit (--max-txn-ops).
const maxOps = 128

// A Renewal holds some objects of Calico's etcd at one revision. Its Reading amends Kubernetes'
// objects, and reads each pod's endpoints when it does.
type Renewal struct {
	*Reading
	refs []blocks.Ref
	// all is true if all endpoints were read.
	all bool
}

// Refresh reads Calico's objects and nodes again. It reads all endpoints if some do not belong to a
// pod of Kubernetes, because the keys of those do not begin with the node's name.
func (c *Client) Refresh(ctx context.Context, last *Reading, refs []blocks.Ref) (*Renewal, error) {
	from, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	n := &Renewal{Reading: newReading(nil), all: len(last.others) > 0}
	n.nodes, n.byKubernetes = maps.Clone(last.nodes), maps.Clone(last.byKubernetes)
	if err := c.readRuns(ctx, from, n.Reading); err != nil {
		return nil, err
	}
	whole := func(r blocks.Resource) bool { return slices.Contains(refs, blocks.Ref{Resource: r}) }
	var keys []string
	for _, ref := range refs {
		if kind := decode.KindOf(ref.Resource); kind == nil || !kind.OfCalico() && ref.Resource != blocks.Nodes {
			continue
		}
		if len(Ranges(ref.Resource)) == 0 {
			continue // not in etcd
		}
		n.refs = append(n.refs, ref)
		switch {
		case ref.All():
			if err := c.readAll(ctx, from, n.Reading, ref.Resource); err != nil {
				return nil, c.failed(err)
			}
			continue
		case whole(ref.Resource):
			continue // read with its kind
		}
		of, err := Keys(ref.Resource, ref.Name)
		if err != nil {
			return nil, fmt.Errorf("reading %s again: %w", ref.Resource, err)
		}
		keys = append(keys, of...)
		if ref.Resource == blocks.Nodes {
			n.forget(ref.Name)
		}
	}
	slices.Sort(keys)
	for some := range slices.Chunk(slices.Compact(keys), maxOps) {
		if err := c.take(ctx, from, n.Reading, some); err != nil {
			return nil, c.failed(err)
		}
	}
	if n.all {
		if err := c.readAll(ctx, from, n.Reading, blocks.Pods); err != nil {
			return nil, c.failed(err)
		}
		return n, nil
	}
	n.find = func(pod blocks.Key, node string) ([]*endpoint, error) { return c.find(ctx, from, pod, node) }
	return n, nil
}

// readAll reads all objects of a resource at the revision of a reading.
func (c *Client) readAll(ctx context.Context, from clientv3.KV, r *Reading, of blocks.Resource) error {
	for _, s := range stores {
		if s.resource != of {
			continue
		}
		err := c.eachPage(ctx, from, s, r, func(kvs []*mvccpb.KeyValue) {
			for _, kv := range kvs {
				r.add(s, kv)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forget removes a node that is read again. Its name in Kubernetes stays known: if Calico's node is
// gone or cannot be parsed, its pods still belong to the Kubernetes node.
func (r *Reading) forget(name string) { delete(r.nodes, name) }

// take reads keys at the revision of a reading.
func (c *Client) take(ctx context.Context, from clientv3.KV, r *Reading, keys []string) error {
	var ops []clientv3.Op
	for _, key := range keys {
		ops = append(ops, clientv3.OpGet(key, clientv3.WithRev(r.Revision)))
	}
	request, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	answers, err := from.Txn(request).Then(ops...).Commit()
	if err != nil {
		return err
	}
	if r.Revision == 0 { // the records of runs may not be readable, and then do not determine it
		r.Revision = answers.Header.Revision
	}
	for _, a := range answers.Responses {
		for _, kv := range a.GetResponseRange().Kvs {
			if s, ok := storeOf(string(kv.Key)); ok {
				r.add(s, kv)
			}
		}
	}
	return nil
}

// find reads the endpoints of a pod.
func (c *Client) find(ctx context.Context, from clientv3.KV, pod blocks.Key, node string) ([]*endpoint, error) {
	of := names.WorkloadEndpointIdentifiers{Node: node, Orchestrator: "k8s", Pod: pod.Name}
	prefix, err := of.CalculateWorkloadEndpointName(true)
	if err != nil {
		return nil, err
	}
	request, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	key := resourcePrefix + "workloadendpoints/" + pod.Namespace + "/" + prefix
	answer, err := from.Get(request, key, clientv3.WithPrefix())
	if err != nil {
		return nil, c.failed(err)
	}
	r := newReading(nil)
	for _, kv := range answer.Kvs {
		takeWorkloadEndpoint(r, store{resource: blocks.Pods}, kv)
	}
	if r.endpointsUnread {
		return nil, errors.New(r.list(blocks.Pods).Gaps[0].String())
	}
	return r.ofPods[pod], nil
}

// Learn takes over nodes and endpoints that were read again.
func (r *Reading) Learn(n *Renewal) {
	if r.nodes, r.byKubernetes = n.nodes, n.byKubernetes; n.all {
		r.ofPods, r.others = n.ofPods, n.others
	}
}

// Onto returns a snapshot in which the objects that were read again replace those of the last
// reading. Its Kubernetes objects must have been read again and amended before.
func (n *Renewal) Onto(s *blocks.Snapshot, last *Reading) (*blocks.Snapshot, error) {
	if n.failed != nil {
		return nil, n.failed
	}
	again := map[blocks.Resource]map[string]bool{}
	for _, ref := range n.refs {
		if again[ref.Resource] == nil {
			again[ref.Resource] = map[string]bool{}
		}
		if ref.Resource != blocks.Nodes {
			again[ref.Resource][ref.Name] = true
		} else if node := n.nodes[ref.Name]; node != nil && node.kubernetes == "" && !slices.ContainsFunc(s.Nodes, func(have blocks.Node) bool { return have.Name == ref.Name }) {
			n.addNode(node)
		}
	}
	if n.all {
		was := newReading(nil)
		was.others = last.others
		was.addEndpoints(false)
		again[blocks.Pods] = map[string]bool{}
		for i, pods := 0, was.list(blocks.Pods); i < pods.Len(); i++ {
			key, _ := pods.At(i)
			again[blocks.Pods][key.String()] = true
		}
		n.addEndpoints(false)
	}
	var out []*decode.Objects
	for res, names := range again {
		now, l := n.list(res), decode.NewObjects(decode.KindOf(res))
		all := slices.Contains(n.refs, blocks.Ref{Resource: res})
		l.Take(s)
		l.Only(func(i int) bool {
			key, _ := l.At(i)
			return !all && !names[key.String()]
		})
		l.Join(now)
		l.Gaps = slices.Clone(now.Gaps)
		for _, g := range s.Gaps {
			if g.Resource == res && !all && (g.Whole() && !l.Kind.Single || !g.Whole() && !names[g.Name]) {
				l.Gaps = append(l.Gaps, g)
			}
		}
		out = append(out, l)
	}
	s = decode.Replaced(s, out)
	s.Sort()
	return s, nil
}
