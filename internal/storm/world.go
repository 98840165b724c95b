package storm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Config configures a storm.
type Config struct {
	Seed uint64
	For  time.Duration
	// Clients is the number of CNI plugins, and Nodes the number of nodes over which they
	// are distributed.
	Clients, Nodes int
	// Repairs is the number of concurrent repairs.
	Repairs int
	// Grace is the grace period of the repairs.
	Grace time.Duration
	// Journals is the directory for the repairs' journals.
	Journals string
}

// World is a cluster in a storm.
type World struct {
	Config
	tb      testing.TB
	cluster *testcluster.Cluster
	seeder  *seeding.Seeder
	checker *InvariantChecker
	nodes   []*node
	windows *node // never leaves
	workers workers
	vms     vms
	others  others
	// made counts events by name. troubles holds unexpected errors. failures holds failed
	// steps; a killed API server may have caused them.
	made     tally
	foreign  atomic.Uint32 // number of addresses outside Calico's pools
	troubles troubles
	failures troubles
	raging   time.Time               // start of the storm
	halt     context.CancelCauseFunc // ends the storm early
}

// tally counts events by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int{}
	}
	t.n[name]++
}

func (t *tally) get(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n[name]
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.n)) {
		fmt.Fprintf(&out, "\n%6d %s", t.n[name], name)
	}
	return out.String()
}

// troubles collects errors of several goroutines.
type troubles struct {
	mu   sync.Mutex
	errs []error
}

func (t *troubles) add(err error) {
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.errs = append(t.errs, err)
	}
}

// take returns the errors and clears the list.
func (t *troubles) take() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := errors.Join(t.errs...)
	t.errs = nil
	return err
}

// departure is an event in the life of a node.
type departure int32

const (
	up       departure = iota
	drained            // its pods are torn down properly, then the Node is deleted
	lost               // the Node is deleted; its pods disappear without CNI DEL
	survived           // the Node is deleted, but its pods keep running
	silent             // the Node is NotReady, but its pods keep running
	off                // like silent, but the machine is off and the Node is marked out of service
)

func (f departure) String() string {
	return [...]string{"up", "drained", "lost", "survived", "silent", "off"}[f]
}

type node struct {
	name      string
	departure atomic.Int32
	pods      atomic.Int32 // of all its workers
	begun     atomic.Int32 // started network setups
	ended     atomic.Int32 // completed network setups
	steps     sync.RWMutex // read-locked by a worker during an operation on the node
	tunnels   []*Lease
	machine   machine
	orphans   orphans
}

func (n *node) is() departure { return departure(n.departure.Load()) }

const (
	namespace = "storm"
	// fixedNamespace requests addresses of the second pool.
	fixedNamespace = "storm-fixed"
)

// The pools are small. Their blocks of four addresses fill and empty all the time. There
// are fewer blocks than the nodes need, so nodes compete for blocks and borrow.
var pools = map[string]apiv3.IPPoolSpec{
	"four":  {CIDR: "10.90.0.0/25", BlockSize: 30, VXLANMode: apiv3.VXLANModeAlways},
	"fixed": {CIDR: "10.91.0.0/26", BlockSize: 30, VXLANMode: apiv3.VXLANModeAlways},
	"six":   {CIDR: "fd00:90::/122", BlockSize: 126, VXLANMode: apiv3.VXLANModeAlways},
	// Windows nodes reserve four addresses of each block.
	"windows":  {CIDR: "10.92.0.0/26", BlockSize: 29, NodeSelector: "kubernetes.io/os == 'windows'", AllowedUses: workloads},
	"services": {CIDR: "10.93.0.0/27", BlockSize: 30, AllowedUses: []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseLoadBalancer}},
}

var workloads = []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseWorkload}

// prepare creates pools, namespaces and nodes.
func (w *World) prepare(ctx context.Context) error {
	s := w.seeder
	err := errors.Join(
		// Repairs have a shorter grace period than kube-controllers, so that both find
		// work.
		s.Init(ctx), s.SetLeakGrace(ctx, 3*w.Grace),
		s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}),
		s.Namespace(ctx, namespace, nil, nil),
		s.Namespace(ctx, fixedNamespace, nil, map[string]string{"cni.projectcalico.org/ipv4pools": `["fixed"]`}),
	)
	for name, spec := range pools {
		err = errors.Join(err, s.Pool(ctx, name, spec))
	}
	if err != nil {
		return err
	}
	for i := range w.Nodes {
		n := &node{name: fmt.Sprintf("node-%d", i)}
		w.nodes = append(w.nodes, n)
		if err := w.startNode(ctx, n, true); err != nil {
			return err
		}
	}
	w.vms.client = NewClient(w.tb, w.cluster, "kubevirt")
	w.others.client = NewClient(w.tb, w.cluster, "others")
	w.windows = &node{name: "windows"}
	err = s.Node(ctx, seeding.Node{Name: w.windows.name, OS: "windows"})
	w.windows.machine.set(true, true)
	return err
}

// pause waits, or returns early when the context ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
