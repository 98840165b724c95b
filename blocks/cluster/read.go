package cluster

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Read reads everything that an audit needs, and returns it sorted. Kinds that could not be
// read, for lack of rights, CRDs or responses, are gaps of the snapshot. Read returns an
// error if nothing can be read at all: the server is unreachable, rejects the credentials,
// does not answer discovery, or serves neither of Calico's API groups.
func (k *Kubernetes) Read(ctx context.Context) (*blocks.Snapshot, error) {
	k.client.reset()
	k.served = nil
	if err := k.discover(ctx); err != nil {
		return nil, err
	}
	if k.served.neither && !k.elsewhere {
		return nil, fmt.Errorf("reading the cluster at %s: %w", k.client.host(), errNoCalico)
	}
	lists, err := k.list(ctx, k.kinds())
	if err != nil {
		return nil, err
	}
	s := decode.NewSnapshot(lists...)
	s.Cluster.Datastore, s.Cluster.Live, s.Cluster.APIServer = "kubernetes", true, k.client.service()
	s.Cluster.TakenAt, _ = k.client.clock.dates()
	s.SetVMsKnown(func(r blocks.Resource) bool { return k.served.has(decode.KindOf(r)) })
	s.SetBudgetsKnown(k.budgets)
	s.ForgetServices()
	k.finish(s)
	s.Sort()
	s.Share()
	return k.withEvents(ctx, k.withLease(ctx, s)), nil
}

// finish records the API group in a snapshot with Calico's objects.
func (k *Kubernetes) finish(s *blocks.Snapshot) {
	if !k.elsewhere {
		k.served.finish(s)
	}
}

// kindsOf returns the kinds of every audit, without Calico's if they are elsewhere.
func kindsOf(elsewhere bool) []*decode.Kind {
	return slices.DeleteFunc(slices.Clone(decode.Kinds), func(kind *decode.Kind) bool { return elsewhere && kind.OfCalico() })
}

// kinds returns the kinds to read. It includes the requested kinds of those on demand.
func (k *Kubernetes) kinds() []*decode.Kind {
	out := kindsOf(k.elsewhere)
	for _, kind := range decode.OnDemand {
		if permitted := slices.Contains(decode.IfPermitted, kind); permitted && k.services && kind.Selector == "" || !permitted && k.budgets {
			out = append(out, kind)
		}
	}
	return out
}

// withEvents adds the kubelets' events (the kinds with a field selector), if a pod waits for an
// address and the account may list them. No audit needs that right.
func (k *Kubernetes) withEvents(ctx context.Context, s *blocks.Snapshot) *blocks.Snapshot {
	if !slices.ContainsFunc(s.Workloads, (*blocks.Workload).Waiting) {
		return s
	}
	for _, kind := range decode.OnDemand {
		l := &lister{client: k.client, kind: kind, pageSize: k.pageSize, strings: &decode.SharedStrings{}, selector: kind.Selector}
		if kind.Selector != "" && l.run(ctx) == nil && l.failed == nil {
			s = decode.Replaced(s, []*decode.Objects{l.out})
		}
	}
	return s
}

// Reread returns a snapshot in which the given resources are read again, after the call.
// Other data is taken from prev, including its time: ages keep their reference. prev is not
// changed, but the result shares memory with it.
func (k *Kubernetes) Reread(ctx context.Context, prev *blocks.Snapshot, rs []blocks.Resource) (*blocks.Snapshot, error) {
	k.client.reset()
	if k.served == nil {
		if err := k.discover(ctx); err != nil {
			return nil, err
		}
	}
	var again []*decode.Kind
	for _, kind := range k.kinds() {
		if slices.Contains(rs, kind.Resource) {
			again = append(again, kind)
		}
	}
	lists, err := k.list(ctx, again)
	if err != nil {
		return nil, err
	}
	s := decode.Replaced(prev, lists)
	s.SetVMsKnown(func(r blocks.Resource) bool {
		if slices.Contains(rs, r) {
			return k.served.has(decode.KindOf(r))
		}
		return prev.VMsKnown
	})
	k.finish(s)
	s.SetBudgetsKnown(prev.BudgetsKnown || slices.ContainsFunc(again, func(k *decode.Kind) bool {
		return slices.Contains(decode.OnDemand, k) && !slices.Contains(decode.IfPermitted, k)
	}))
	s.ForgetServices()
	return s, nil
}

func (k *Kubernetes) list(ctx context.Context, what []*decode.Kind) ([]*decode.Objects, error) {
	lists := make([]*decode.Objects, len(what))
	shared := &decode.SharedStrings{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentLists)
	for i, kind := range what {
		var record decode.Spool
		if k.record != nil {
			record = k.record.Spool(kind.Resource)
			record.Restart()
		}
		if !k.served.has(kind) {
			lists[i] = k.served.absence(kind)
			continue
		}
		group.Go(func() error {
			l := &lister{
				client: k.client, kind: kind, group: k.served.group, pageSize: k.pageSize,
				strings: shared, progress: k.report, record: record, podLabels: k.budgets, whole: k.served.streams, amend: k.amend[kind.Resource],
			}
			err := l.run(ctx)
			lists[i] = l.out
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("reading the cluster: %w", err)
	}
	return lists, nil
}
