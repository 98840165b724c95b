package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Progress says how far the reading of one resource has come.
type Progress struct {
	Resource blocks.Resource
	// Done counts the objects read so far. It falls back to fewer whenever the list is begun
	// again: after its continue token has expired, and after an answer of the whole list
	// was cut off.
	Done int
	// Total is how many there are; 0 while unknown.
	Total int
}

// KubernetesOptions are choices for reading an API server. The zero value is
// good for all.
type KubernetesOptions struct {
	// Progress is called after each page, and within an answer of a whole list after every
	// 1,000 objects, by one goroutine at a time.
	Progress func(Progress)
	// Budgets has PodDisruptionBudgets read, too, and the labels of pods that they select
	// by; see [blocks.Snapshot.BudgetsKnown].
	Budgets bool
	// Record keeps the objects that are read; nil keeps none.
	Record Recording
}

// A Recording keeps the objects of a reading, each resource's in a [Spool]. One that is
// read again replaces what was kept of it.
type Recording interface {
	Spool(blocks.Resource) decode.Spool
}

// defaultPageSize is twice that of kubectl, which makes a reading of a large
// cluster a quarter faster where the API server has no cache to answer from. A
// page of blocks, the largest objects, then has some 20 MB. Where it has one, pages are read
// of lists of at most [shortPage] objects alone: see [apiClient.streams].
const defaultPageSize = 1000

// concurrentLists is how many kinds are read at once. The pages of one kind can
// only be read one after the other.
const concurrentLists = 4

// apiGroupVariable is the environment variable by which Calico's programs are
// told which API group to use.
const apiGroupVariable = "CALICO_API_GROUP"

// Kubernetes reads snapshots from an API server. It sends LIST and discovery
// requests alone. Its methods must not be called at the same time.
type Kubernetes struct {
	client   *apiClient
	pageSize int64
	report   func(Progress)
	override string
	budgets  bool
	whole    bool    // long lists may be read in one answer
	served   *served // what discovery found last
	record   Recording
}

// NewKubernetes prepares to read the API server that cfg leads to. The rate
// limit of cfg is not used; its timeout, if set, holds for each page.
func NewKubernetes(cfg *rest.Config, opts KubernetesOptions) (*Kubernetes, error) {
	client, err := newAPIClient(cfg, nil)
	if err != nil {
		return nil, err
	}
	k := &Kubernetes{
		client: client, pageSize: defaultPageSize, whole: true,
		override: os.Getenv(apiGroupVariable), record: opts.Record, budgets: opts.Budgets,
	}
	if opts.Progress != nil {
		var mu sync.Mutex
		k.report = func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			opts.Progress(p)
		}
	}
	return k, nil
}

// Read reads everything that an audit needs, and returns it sorted. Whatever
// could not be read, for want of rights, of a CRD or of an answer, is a gap of
// the snapshot. An error means that nothing could be read at all: the server
// cannot be reached, refuses the credentials, does not tell what it serves, or serves
// neither of Calico's API groups.
func (k *Kubernetes) Read(ctx context.Context) (*blocks.Snapshot, error) {
	k.client.reset()
	k.served = nil
	if err := k.discover(ctx); err != nil {
		return nil, err
	}
	if k.served.neither {
		return nil, fmt.Errorf("reading the cluster at %s: %w", k.client.host(), errNoCalico)
	}
	lists, err := k.list(ctx, k.kinds())
	if err != nil {
		return nil, err
	}
	s := decode.NewSnapshot(lists...)
	s.Cluster.Datastore, s.Cluster.Live = "kubernetes", true
	s.Cluster.TakenAt, _ = k.client.clock.dates()
	s.SetVMsKnown(func(r blocks.Resource) bool { return k.served.has(decode.KindOf(r)) })
	s.SetBudgetsKnown(k.budgets)
	k.served.finish(s)
	s.Sort()
	s.Share()
	return s, nil
}

// kinds are those that are read: the ones on demand are if they were asked for, when labels
// of pods are kept with them.
func (k *Kubernetes) kinds() []*decode.Kind {
	if k.budgets {
		return slices.Concat(decode.Kinds, decode.OnDemand)
	}
	return decode.Kinds
}

// Reread returns a snapshot in which the given resources were read again, all
// of them after the call, and everything else is taken over from prev, its clock
// included: ages keep being counted from when prev was read. prev is not
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
	k.served.finish(s)
	s.SetBudgetsKnown(prev.BudgetsKnown || slices.ContainsFunc(again, func(k *decode.Kind) bool { return slices.Contains(decode.OnDemand, k) }))
	return s, nil
}

func (k *Kubernetes) discover(ctx context.Context) error {
	found, err := k.client.discover(ctx, k.override)
	if err != nil {
		if codeOf(err) == http.StatusUnauthorized {
			return fmt.Errorf("reading the cluster: unauthorized: the API server does not accept the credentials: %w", err)
		}
		return fmt.Errorf("reading the cluster at %s: %w", k.client.host(), err)
	}
	k.served = found
	k.served.streams = k.whole && k.client.streams(ctx)
	return nil
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
				strings: shared, progress: k.report, record: record, podLabels: k.budgets, whole: k.served.streams,
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
