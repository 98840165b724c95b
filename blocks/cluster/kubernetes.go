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

// Progress is the progress of reading one resource.
type Progress struct {
	Resource blocks.Resource
	// Done is the number of objects read so far. It decreases if the list restarts: after
	// an expired continue token, or if a response with the whole list breaks off.
	Done int
	// Total is the number of objects; 0 if unknown.
	Total int
}

// KubernetesOptions are options for reading an API server. The zero value is valid.
type KubernetesOptions struct {
	// Progress is called after each page, and within a response with a whole list after
	// every 1,000 objects. Calls do not overlap.
	Progress func(Progress)
	// Budgets enables PodDisruptionBudgets, and pods' labels, which they select by; see
	// [blocks.Snapshot.BudgetsKnown].
	Budgets bool
	// Services lists Services, too, if the account may list them.
	Services bool
	// Record keeps the objects; may be nil.
	Record Recording
	// CalicoElsewhere is true if Calico keeps its objects in another datastore. Only other
	// kinds are read then.
	CalicoElsewhere bool
	// Amend replaces the objects of some resources: see [decode.Decoder].
	Amend map[blocks.Resource]func(object []byte) []byte
	// Original returns a reference by the names in Kubernetes, if Amend gives nodes other names;
	// else nil.
	Original func(blocks.Ref) blocks.Ref
}

// A Recording keeps the objects of a reading, with one [decode.Spool] per resource. A
// resource that is read again replaces its objects.
type Recording interface {
	Spool(blocks.Resource) decode.Spool
}

// defaultPageSize is twice that of kubectl, which makes reading a large cluster a quarter
// faster if the API server has no cache. A page of blocks, the largest objects, then has
// some 20 MB. If the server streams lists from its cache ([apiClient.streams]), only lists
// of at most [shortPage] objects are read in pages.
const defaultPageSize = 1000

// concurrentLists is the number of kinds read at once. Pages of one kind are sequential.
const concurrentLists = 4

// apiGroupVariable is the environment variable that tells Calico's components which API
// group to use.
const apiGroupVariable = "CALICO_API_GROUP"

// Kubernetes reads snapshots from an API server. It sends only LIST and discovery requests.
// It is not safe for concurrent use.
type Kubernetes struct {
	client   *apiClient
	pageSize int64
	report   func(Progress)
	override string
	budgets  bool
	services bool
	whole    bool // long lists may be read in one response
	// elsewhere and amend are the options CalicoElsewhere and Amend.
	elsewhere bool
	amend     map[blocks.Resource]func([]byte) []byte
	original  func(blocks.Ref) blocks.Ref
	served    *served // the latest result of discovery
	record    Recording
}

// NewKubernetes returns a reader for the API server of cfg. The rate limit of cfg is
// ignored; its timeout, if set, applies to each page.
func NewKubernetes(cfg *rest.Config, opts KubernetesOptions) (*Kubernetes, error) {
	client, err := newAPIClient(cfg, nil)
	if err != nil {
		return nil, err
	}
	k := &Kubernetes{
		client: client, pageSize: defaultPageSize, whole: true,
		override: os.Getenv(apiGroupVariable), record: opts.Record, budgets: opts.Budgets, services: opts.Services,
		elsewhere: opts.CalicoElsewhere, amend: opts.Amend, original: opts.Original,
	}
	if k.elsewhere {
		k.override = unread
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

// unread is Calico's API group if its objects are not read, so that no evidence for a group is
// needed.
const unread = decode.GroupCRD

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
