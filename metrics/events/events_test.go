package events_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/metrics/events"
)

// The lines that the findings make.
const (
	toldBlackhole = "Warning Node/n1 RouteBlackhole ×1: Traffic to 10.64.0.5 dies on n2 [next: calico-audit explain 10.64.0.5]"
	toldNoBlock   = "Warning Node/n1 NodeNoBlock ×1: Node n1 has no IPv4 block [next: calico-audit explain n1]"
	toldDeadNode  = "Warning Lease/" + leaseName + " AffinityDeadNode ×1: An affinity of a host that no longer exists [next: calico-audit explain 10.64.0.64/26 of vanished]"
	toldNoFree    = "Warning Lease/" + leaseName + " PoolNoFreeBlocks ×1: Pool pods has no free block [next: calico-audit explain pods]"
)

// described are the lines about Events that kubectl describe shows, their columns
// parted by single blanks.
func (w *eventWorld) described(kind, namespace, name string) (lines []string) {
	w.Helper()
	text, err := w.Kubectl(w.Context(), "describe", kind, name, "--namespace", namespace)
	must(w.T, err)
	_, text, found := strings.Cut(text, "\nEvents:\n")
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if found && i >= 2 { // after the table's head
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return lines
}

// shows reports whether kubectl describe shows Events of just these reasons.
func (w *eventWorld) shows(kind, namespace, name string, reasons ...string) bool {
	w.Helper()
	var got []string
	for _, line := range w.described(kind, namespace, name) {
		got = append(got, strings.Fields(line)[1])
	}
	slices.Sort(got)
	return slices.Equal(got, reasons)
}

// TestEventsDescribed: kubectl describe shows what concerns a node on the node, and
// all else on the Lease or on the object of one's choice. Warnings are not told of
// unless asked for.
func TestEventsDescribed(t *testing.T) {
	w := newEventWorld(t)
	r := w.replica(replicaOptions{})
	report := reportOf(blackhole, noFree, noBlock1, deadNode, lowFree)
	r.Tell(report)
	w.expect(toldBlackhole, toldNoBlock, toldDeadNode, toldNoFree)
	lines := w.described("node", "", "n1")
	for _, told := range []string{toldBlackhole, toldNoBlock} {
		_, message, _ := strings.Cut(told, "×1: ")
		want := regexp.MustCompile("^Warning " + strings.Fields(told)[2] + ` \d+s calico-audit ` + regexp.QuoteMeta(message) + "$")
		if !slices.ContainsFunc(lines, want.MatchString) {
			t.Errorf("kubectl describe node shows nothing like %s:\n%s", want, strings.Join(lines, "\n"))
		}
	}
	if !w.shows("lease", "kube-system", leaseName, "AffinityDeadNode", "PoolNoFreeBlocks") {
		t.Errorf("kubectl describe lease shows\n%s", w.described("lease", "kube-system", leaseName))
	}
	r.stop()

	w.deployment("calico-kube-controllers")
	object, err := events.ParseObject("deploy/kube-system/calico-kube-controllers")
	must(t, err)
	w.replica(replicaOptions{opts: events.Options{Object: object, Severity: state.Warning}}).Tell(report)
	w.until("kubectl describe deployment shows all that concerns no node", func() bool {
		return w.shows("deployment", "kube-system", "calico-kube-controllers", "AffinityDeadNode", "PoolLowFreeBlocks", "PoolNoFreeBlocks")
	})
}

// TestEventsOnce: a finding that stays has one Event, however often audits find it.
// It is written again when the time has come, with what there is to say by then.
func TestEventsOnce(t *testing.T) {
	w := newEventWorld(t)
	r := w.replica(replicaOptions{})
	for range 20 {
		r.Tell(reportOf(blackhole, noBlock1))
		time.Sleep(20 * time.Millisecond)
	}
	w.expect(toldBlackhole, toldNoBlock)
	if got := r.Stats(); got.Written != 2 || got.Failed != 0 || got.Waiting != 0 {
		t.Errorf("got %+v", got)
	}
	r.stop()

	before := w.event("NodeNoBlock")
	r = w.replica(replicaOptions{opts: events.Options{Refresh: 2 * time.Second}})
	worse := noBlock1
	worse.Message = "Node n1 has no IPv4 block, and two pods wait"
	r.Tell(reportOf(worse))
	w.until("the Event is written again", func() bool { return w.event("NodeNoBlock").Count > before.Count })
	after := w.event("NodeNoBlock")
	if after.UID != before.UID || !after.FirstTimestamp.Equal(&before.FirstTimestamp) || !after.LastTimestamp.After(before.LastTimestamp.Time) ||
		!strings.HasPrefix(after.Message, worse.Message) {
		t.Errorf("the Event was\n%+v\nand is\n%+v", before, after)
	}
}

// TestEventsExpire: the API server drops Events, but not that of a finding that
// stays; and one that somebody deleted comes back. Writers with different Leases leave
// each other's Events alone.
func TestEventsExpire(t *testing.T) {
	w := emptied(t, testcluster.Start(t, testcluster.Options{APIServerArgs: []string{"--event-ttl=6s"}}))
	w.replica(replicaOptions{opts: events.Options{Lease: "other", Refresh: time.Hour}}).Tell(reportOf(noBlock1))
	r := w.replica(replicaOptions{opts: events.Options{Refresh: 2 * time.Second}})
	r.Tell(reportOf(blackhole))
	w.expectReasons("NodeNoBlock", "RouteBlackhole")
	kept := w.event("RouteBlackhole").UID
	w.expectReasons("RouteBlackhole") // the other was left alone
	if now := w.event("RouteBlackhole"); now.UID != kept || now.Count < 2 {
		t.Errorf("the Event of a finding that stays was lost: now %+v", now)
	}
	must(t, w.Kube.CoreV1().Events("default").Delete(t.Context(), w.event("RouteBlackhole").Name, metav1.DeleteOptions{}))
	w.expectReasons("RouteBlackhole")
}

func (w *eventWorld) expectReasons(want ...string) {
	w.Helper()
	w.until(fmt.Sprint("Events ", want), func() bool {
		var got []string
		for _, v := range w.events() {
			got = append(got, v.Reason)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// TestEventsEnd: that a finding is gone is told once, and only where its check gave
// its verdict and nothing muted it. One that comes back, or changes its severity, is
// told of again.
func TestEventsEnd(t *testing.T) {
	w := newEventWorld(t)
	r := w.replica(replicaOptions{})
	r.Tell(reportOf(blackhole, noBlock1, noFree))
	w.expect(toldBlackhole, toldNoBlock, toldNoFree)

	unread := reportOf(blackhole)
	unread.SkippedChecks = []audit.Skipped{{Check: "node/no-block", Reason: "the nodes could not be read"}}
	unread.Muted = []audit.Muted{{Rule: "pool=pods", Count: 1, Findings: []audit.Finding{noFree}}}
	r.Tell(unread)
	time.Sleep(1500 * time.Millisecond) // the least time between two Events of a finding
	w.expect(toldBlackhole, toldNoBlock, toldNoFree)

	r.Tell(reportOf(at(blackhole, state.Warning), at(noBlock1, state.Critical)))
	eased := "Normal Node/n1 RouteBlackholeEased ×1: No longer critical, now warning: Traffic to 10.64.0.5 dies on n2"
	resolved := "Normal Lease/" + leaseName + " PoolNoFreeBlocksResolved ×1: Resolved: pool/no-free-blocks no longer finds ippool/pods (critical before)"
	w.expect(toldBlackhole, eased, toldNoBlock, toldNoBlock, toldNoFree, resolved)
	for range 3 {
		r.Tell(reportOf(at(blackhole, state.Warning), at(noBlock1, state.Critical)))
	}
	time.Sleep(1500 * time.Millisecond)
	w.expect(toldBlackhole, eased, toldNoBlock, toldNoBlock, toldNoFree, resolved)

	r.Tell(reportOf(noFree, at(noBlock1, state.Critical)))
	w.expect(toldBlackhole, eased, toldNoBlock, toldNoBlock, strings.Replace(toldNoFree, "×1", "×2", 1), resolved)
}

// TestEventsReplicas: one of two replicas writes. When it ends, it releases the Lease,
// and the other one goes on where it stopped: nothing is told twice, and what ended
// in between is told of.
func TestEventsReplicas(t *testing.T) {
	w := newEventWorld(t)
	first := w.replica(replicaOptions{})
	second := w.replica(replicaOptions{quiet: true})
	for _, r := range []*replica{first, second} {
		r.Tell(reportOf(blackhole, noBlock1, noFree))
	}
	w.expect(toldBlackhole, toldNoBlock, toldNoFree)
	if a, b := first.Stats(), second.Stats(); !a.Leading || a.Written != 3 || b.Leading || b.Written != 0 {
		t.Errorf("the first has %+v, the second %+v", a, b)
	}
	versions := w.versions()
	holder := *w.lease().Spec.HolderIdentity
	first.stop()
	w.until("the other has the Lease", func() bool { return second.Stats().Leading })
	if now := *w.lease().Spec.HolderIdentity; now == holder || now == "" {
		t.Errorf("the Lease was held by %q and is by %q", holder, now)
	}
	second.Tell(reportOf(blackhole, noBlock1))
	w.expect(toldBlackhole, toldNoBlock, toldNoFree,
		"Normal Lease/"+leaseName+" PoolNoFreeBlocksResolved ×1: Resolved: pool/no-free-blocks no longer finds ippool/pods (critical before)")
	now := w.versions()
	for name, version := range versions {
		if now[name] != version {
			t.Errorf("%s was written again by the new writer", name)
		}
	}
	second.stop()
	if holder := *w.lease().Spec.HolderIdentity; holder != "" {
		t.Errorf("the Lease is still held by %s after a graceful end", holder)
	}
}

func (w *eventWorld) versions() map[string]string {
	out := map[string]string{}
	for _, v := range w.events() {
		out[v.Name] = v.ResourceVersion
	}
	return out
}

// TestEventsRate: what comes at once is written as fast as the limit allows, the worst
// first; the rest is counted, and said once.
func TestEventsRate(t *testing.T) {
	w := newEventWorld(t)
	var all []audit.Finding
	for i := range 40 {
		name := fmt.Sprintf("pool-%02d", i)
		f := finding("pool/exhausted", state.Error, state.Subject{Kind: state.KindPool, Name: name}, "Pool "+name+" has no address left")
		if i%10 == 9 {
			f.Severity = state.Critical
		}
		all = append(all, f)
	}
	r := w.replica(replicaOptions{pace: func(burst *int, interval *time.Duration) { *burst, *interval = 6, time.Hour }})
	for range 5 {
		r.Tell(reportOf(all...))
		time.Sleep(50 * time.Millisecond)
	}
	w.until("six Events are written", func() bool { return r.Stats().Written == 6 })
	time.Sleep(300 * time.Millisecond)
	var got []string
	for _, line := range w.told() {
		name, _, _ := strings.Cut(line[strings.Index(line, "Pool pool-")+5:], " ")
		got = append(got, name)
	}
	if want := []string{"pool-00", "pool-01", "pool-09", "pool-19", "pool-29", "pool-39"}; !slices.Equal(got, want) {
		t.Errorf("told of %v, want %v", got, want)
	}
	if s := r.Stats(); s.Waiting != 34 {
		t.Errorf("%d wait, want 34", s.Waiting)
	}
	if n := r.log.count("holds Events back"); n != 1 || r.log.count("waiting=34") != 1 {
		t.Errorf("it is said %d times that Events are held back:\n%s", n, r.log)
	}
}

// TestEventsOutage: an API server that is gone is said once, and what was to be told
// is told when it is back, what was told before not again.
func TestEventsOutage(t *testing.T) {
	w := newEventWorld(t)
	r := w.replica(replicaOptions{})
	r.Tell(reportOf(noBlock1))
	w.expect(toldNoBlock)
	w.StopAPIServer()
	r.Tell(reportOf(noBlock1, blackhole))
	w.until("failures are counted", func() bool { return r.Stats().Failed > 8 })
	must(t, w.StartAPIServer(t.Context()))
	w.expect(toldBlackhole, toldNoBlock)
	for _, text := range []string{"Events cannot be written", "Events can be written again", "doing=writing"} {
		if n := r.log.count(text); n > 2 {
			t.Errorf("%q is logged %d times:\n%s", text, n, r.log)
		}
	}
	if !strings.Contains(r.log.String(), "connection refused") {
		t.Errorf("the log does not tell what is wrong:\n%s", r.log)
	}
}

// TestLeaseThatCannotBeRenewed: a replica that may read the Lease, but whose renewals are
// not answered, writes nothing from the renewal deadline on: well before another replica
// may take over.
func TestLeaseThatCannotBeRenewed(t *testing.T) {
	w := newEventWorld(t)
	var (
		mu            sync.Mutex
		fails         bool
		renewed, last time.Time // when a renewal that succeeded, and an Event, was sent
	)
	cfg := rest.CopyConfig(w.Config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			sent := time.Now()
			mu.Lock()
			hangs := fails && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/leases/"+leaseName)
			if strings.Contains(r.URL.Path, "/events") && r.Method != http.MethodGet {
				last = sent
			}
			mu.Unlock()
			if hangs {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			resp, err := next.RoundTrip(r)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && resp.StatusCode < 300 && r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/leases") {
				renewed = sent
			}
			return resp, err
		})
	})
	r := w.replica(replicaOptions{cfg: cfg})
	mu.Lock()
	fails = true
	mu.Unlock()
	for began, i := time.Now(), 0; time.Since(began) < 6*time.Second; i++ {
		f := noBlock1
		f.Fingerprint = fmt.Sprintf("%016x", i) // there is always something to tell
		r.Tell(reportOf(f))
		time.Sleep(50 * time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	if wrote := last.Sub(renewed); wrote < time.Second || wrote > events.QuickRenewDeadline+200*time.Millisecond {
		t.Errorf("an Event was written %v after the last renewal", wrote)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestEventsRefused: an Event that the API server does not take, here because the
// namespace of the object does not exist, keeps no other from being written.
func TestEventsRefused(t *testing.T) {
	w := newEventWorld(t)
	object, err := events.ParseObject("deployments.apps/nowhere/x")
	must(t, err)
	r := w.replica(replicaOptions{opts: events.Options{Object: object}})
	r.Tell(reportOf(noFree, noBlock1, deadNode))
	w.expect(toldNoBlock)
	if n := r.log.count("refuses an Event"); n != 1 {
		t.Errorf("it is said %d times that Events are refused:\n%s", n, r.log)
	}
	_, err = w.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}}, metav1.CreateOptions{})
	must(t, err)
	w.expectReasons("AffinityDeadNode", "NodeNoBlock", "PoolNoFreeBlocks")

	// A type that is not served.
	must(t, w.Kube.CoreV1().Events("nowhere").DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}))
	object, err = events.ParseObject("gadgets.example.com/x")
	must(t, err)
	r.stop()
	r = w.replica(replicaOptions{opts: events.Options{Object: object}})
	r.Tell(reportOf(noFree, blackhole))
	w.until("what concerns a node is told", func() bool { return slices.Contains(w.told(), toldBlackhole) })
	if !strings.Contains(r.log.String(), "gadgets.example.com") {
		t.Errorf("the type that is not known is not said:\n%s", r.log)
	}
}

// TestEventTexts: reasons are as Kubernetes writes them; a message fits into an Event
// and on a line, whatever the names in it are.
func TestEventTexts(t *testing.T) {
	for check, want := range map[string]string{
		"route/blackhole": "RouteBlackhole", "ip/host-in-use": "IPHostInUse", "config/gc-disabled": "ConfigGCDisabled",
	} {
		if got := events.ReasonOf(check); got != want {
			t.Errorf("reason of %s: %s, want %s", check, got, want)
		}
	}
	for _, c := range checks.All {
		if got := events.ReasonOf(c.ID); got == "" || strings.ContainsAny(got, "-/ ") || len(got) > 100 {
			t.Errorf("reason of %s: %q", c.ID, got)
		}
	}
	f := noFree
	f.Message = "Pool \x1b[31mred\u202e\n\n\xff has " + strings.Repeat("äöü", 600)
	got := events.FindingMessage(&f)
	if len(got) > 1024 || len(got) < 1000 || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\n\u202e\ufffd") {
		t.Errorf("message of %d bytes: %q", len(got), got)
	}
	if want := `Pool \x1b[31mred\u202e \ufffd has äöü`; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "… [next: calico-audit explain pods]") {
		t.Errorf("message %q", got)
	}

	w := newEventWorld(t)
	f.Subject.Name, f.Fingerprint = "pöols\x1b/", "0123456789abcdef"
	w.replica(replicaOptions{}).Tell(reportOf(f))
	w.until("the API server takes it", func() bool { return len(w.events()) == 1 })
	if stored := w.event("PoolNoFreeBlocks").Message; stored != got {
		t.Errorf("stored is %q, want %q", stored, got)
	}
}

// TestParseEventObject: what names an object, and what does not.
func TestParseEventObject(t *testing.T) {
	for _, text := range []string{"deployments.apps/calico-system/calico-kube-controllers", "namespaces/kube-system"} {
		if o, err := events.ParseObject(text); err != nil || o.String() != text {
			t.Errorf("%q is read as %q, %v", text, o, err)
		}
	}
	for _, text := range []string{"", "x", "/x", "x/", "a//b", "a/b/", "a/b/c/d"} {
		if o, err := events.ParseObject(text); err == nil {
			t.Errorf("%q is read as %q", text, o)
		}
	}
}
