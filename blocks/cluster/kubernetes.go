package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"

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

// unread is Calico's API group if its objects are not read, so that no evidence for a group is
// needed.
const unread = decode.GroupCRD

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
