package apply_test

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// The CRDs that tests inspect and damage.
var (
	blockCRD    = testcluster.CRDv1.Resource("ipamblocks")
	affinityCRD = testcluster.CRDv1.Resource("blockaffinities")
	handleCRD   = testcluster.CRDv1.Resource("ipamhandles")
	configCRD   = testcluster.CRDv1.Resource("ipamconfigs")
	infoCRD     = testcluster.CRDv1.Resource("clusterinformations")
)

// lab is a real cluster with a pool of blocks of 16 addresses and three nodes, each with a pod and
// a block.
type lab struct {
	t      *testing.T
	c      *testcluster.Cluster
	group  testcluster.Group
	s      *seeding.Seeder
	reader viewedReader
	// kubelets is set if a test simulates kubelets.
	kubelets *kubelets.Kubelets
}

// viewedReader reads a cluster together with a host view of each node, taken at the same time. The
// views show nothing in use except the addresses that its functions return.
type viewedReader struct {
	*cluster.Kubernetes
	addresses func(node string) []netip.Prefix
	// ahead is how far the times of readings are ahead of the API server's clock, because a test
	// does not really wait; nil if it does.
	ahead *time.Duration
}

func (r viewedReader) Read(ctx context.Context) (*blocks.Snapshot, error) {
	return r.viewed(r.Kubernetes.Read(ctx))
}

func (r viewedReader) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	return r.viewed(r.Kubernetes.Refresh(ctx, prev, refs))
}

func (r viewedReader) viewed(s *blocks.Snapshot, err error) (*blocks.Snapshot, error) {
	if err != nil {
		return nil, err
	}
	if r.ahead != nil {
		s.Cluster.TakenAt = s.Cluster.TakenAt.Add(*r.ahead)
	}
	s.Hosts = blocks.HostReading{Asked: true}
	for i := range s.Nodes {
		v := blocks.HostView{Node: s.Nodes[i].Name, TakenAt: s.Cluster.TakenAt, RulesKnown: true, Authenticated: true, NamespacesComplete: true}
		if r.addresses != nil {
			v.Namespaces = []blocks.HostNamespace{{ID: "1", Addresses: r.addresses(v.Node)}}
		}
		s.Hosts.Views = append(s.Hosts.Views, v)
	}
	return s, nil
}

func newLab(t *testing.T, more ...testcluster.Group) *lab {
	t.Helper()
	var opts testcluster.Options
	if len(more) > 0 {
		opts.Groups = append([]testcluster.Group{testcluster.CRDv1}, more...)
	}
	c := testcluster.Shared(t, opts)
	s, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := cluster.NewKubernetes(c.Config, cluster.KubernetesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, c: c, group: testcluster.CRDv1, s: s, reader: viewedReader{Kubernetes: reader, ahead: new(time.Duration)}}
	ctx := t.Context()
	l.must(s.Init(ctx))
	l.must(s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	l.must(s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.7.0.0/24", BlockSize: 28, IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever}))
	for i, node := range []string{"n1", "n2", "n3"} {
		l.must(s.Node(ctx, seeding.Node{Name: node}))
		l.claim(node, labBlock(i))
		l.pod(node, "web-"+node)
	}
	return l
}

// labBlock is the i-th block of the pool.
func labBlock(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 7, 0, byte(16 * i)}), 28)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) claim(node string, p netip.Prefix) {
	l.t.Helper()
	l.must(l.s.ClaimBlocks(l.t.Context(), node, p))
}

func (l *lab) pod(node, name string) netip.Addr {
	l.t.Helper()
	addrs, err := l.s.Pod(l.t.Context(), seeding.Pod{Namespace: "default", Name: name, Node: node})
	l.must(err)
	return addrs[0]
}

// native moves all objects to a cluster of the newer API group, in which nothing more can be
// seeded.
func (l *lab) native() {
	l.t.Helper()
	c := testcluster.Shared(l.t, testcluster.Options{Groups: []testcluster.Group{testcluster.NativeV3}})
	l.must(testcluster.CopyToNative(l.t.Context(), l.c, c))
	reader, err := cluster.NewKubernetes(c.Config, cluster.KubernetesOptions{})
	l.must(err)
	l.c, l.group, l.reader.Kubernetes, l.s = c, testcluster.NativeV3, reader, nil
	l.age()
}

// age makes all objects an hour old.
func (l *lab) age() {
	l.t.Helper()
	l.must(l.c.Backdate(l.t.Context(), time.Hour))
	l.must(l.c.Heartbeat(l.t.Context()))
}

func (l *lab) edit(r testcluster.Resource, name string, change func(spec map[string]any)) {
	l.t.Helper()
	l.must(l.c.Edit(l.t.Context(), r, "", name, func(o map[string]any) { change(o["spec"].(map[string]any)) }))
}

// spec returns an object as stored; nil if it does not exist.
func (l *lab) spec(r testcluster.Resource, name string) map[string]any {
	l.t.Helper()
	objects, err := l.c.List(l.t.Context(), r)
	l.must(err)
	for _, o := range objects {
		if o.GetName() == name {
			return o.Object["spec"].(map[string]any)
		}
	}
	return nil
}

// grace is the grace period of the labs' plans. No test waits for it (see [lab.passes]).
const grace = 2 * time.Second

// passes is a Sleep that takes no time: it makes the next reading later instead.
func (l *lab) passes(ctx context.Context, d time.Duration) error {
	*l.reader.ahead += d
	return ctx.Err()
}

var everything = repair.Request{
	EmptyBlocks: true, OrphanAffinities: true, MissingAffinities: true, LeakedIPs: true, LeakedHandles: true, SoftDeleted: true, DeadNodes: true, UnrecordedIPs: true, MissingHandles: true,
}

// plan makes a plan of the cluster, which must have exactly these steps.
func (l *lab) plan(req repair.Request, steps ...string) *repair.Plan {
	l.t.Helper()
	p := l.planOf(req)
	var have []string
	for _, step := range p.Steps {
		have = append(have, step.ID)
	}
	if !slices.Equal(have, steps) {
		l.t.Fatalf("the plan has the steps\n %s\nand should have\n %s\nrefused: %+v", strings.Join(have, "\n "), strings.Join(steps, "\n "), p.Refused)
	}
	return p
}

func (l *lab) planOf(req repair.Request) *repair.Plan {
	l.t.Helper()
	s, err := l.reader.Read(l.t.Context())
	l.must(err)
	return planner.Build(state.New(s, state.Options{Grace: grace}), req)
}

func (l *lab) journal(h journal.Header) *journal.Journal {
	l.t.Helper()
	j, err := journal.Create(filepath.Join(l.t.TempDir(), "journal.jsonl"), h)
	l.must(err)
	l.t.Cleanup(func() { _ = j.Close() })
	return j
}

func (l *lab) writer(j *journal.Journal) *datastore.Writer {
	l.t.Helper()
	cfg := rest.CopyConfig(l.c.Config)
	cfg.Wrap(testcluster.Conditional(l.t))
	w, err := datastore.New(cfg, string(l.group), datastore.Options{Recorder: j})
	l.must(err)
	return w
}

// isDue ages a plan by its grace period, so the second observation is due at once.
func isDue(p *repair.Plan) {
	p.Grace.Duration = grace
	p.CreatedAt.Time = p.CreatedAt.Add(-grace)
	p.Seal()
}

// apply carries out a plan. Without a Sleep in the options, its waits take no time.
func (l *lab) apply(ctx context.Context, p *repair.Plan, opts apply.Options) *repair.Result {
	l.t.Helper()
	if opts.Sleep == nil {
		opts.Sleep = l.passes
	}
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	r, err := apply.Run(ctx, p, l.reader, l.writer(j), j, opts)
	l.must(err)
	return r
}

// undo undoes the run of a result's journal.
func (l *lab) undo(r *repair.Result) *repair.Result {
	l.t.Helper()
	f, err := journal.Read(r.Journal)
	l.must(err)
	j := l.journal(journal.Header{Cluster: r.Cluster, Undoes: r.Journal})
	w := l.writer(j)
	out, err := apply.Undo(l.t.Context(), f, l.reader, w, j, apply.Options{Sleep: l.passes})
	l.must(err)
	return out
}

// became returns the outcome of each step as "ID: status code".
func became(r *repair.Result) []string {
	var out []string
	for _, o := range r.Outcomes {
		out = append(out, strings.TrimSpace(o.Step.ID+": "+string(o.Status)+" "+string(o.Code)))
	}
	return out
}

func (l *lab) wantOutcomes(r *repair.Result, want ...string) {
	l.t.Helper()
	if got := became(r); !slices.Equal(got, want) {
		var reasons []string
		for _, o := range r.Outcomes {
			reasons = append(reasons, o.Reason)
		}
		l.t.Errorf("it came to\n %s\nand should have to\n %s\nreasons:\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "), strings.Join(reasons, "\n "))
	}
}

// settled fails if an audit still has findings.
func (l *lab) settled() {
	l.t.Helper()
	s, err := l.reader.Read(l.t.Context())
	l.must(err)
	for _, f := range audit.Run(state.New(s, state.Options{Grace: grace}), checks.All).Findings {
		if f.Severity >= state.Warning && f.Check != "pool/undersized" {
			l.t.Errorf("%s %s: %s", f.Severity, f.Check, f.Message)
		}
	}
}
