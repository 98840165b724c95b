package events_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/metrics/events"
)

// The findings that these tests tell of.
var (
	blackhole = finding("route/blackhole", state.Critical, state.Subject{Kind: state.KindIP, IP: "10.64.0.5", Node: "n1"}, "Traffic to 10.64.0.5 dies on n2")
	noBlock1  = finding("node/no-block", state.Error, state.Subject{Kind: state.KindNode, Name: "n1", Node: "n1"}, "Node n1 has no IPv4 block")
	deadNode  = finding("affinity/dead-node", state.Error, state.Subject{Kind: state.KindAffinity, CIDR: "10.64.0.64/26", Node: "vanished"}, "An affinity of a host that no longer exists")
	noFree    = finding("pool/no-free-blocks", state.Critical, state.Subject{Kind: state.KindPool, Name: "pods"}, "Pool pods has no free block")
	lowFree   = finding("pool/low-free-blocks", state.Warning, state.Subject{Kind: state.KindPool, Name: "more"}, "Pool more has one free block")
)

func finding(check string, s state.Severity, subject state.Subject, message string) audit.Finding {
	return audit.Finding{
		Check: check, Severity: s, Subject: subject, Message: message, Fingerprint: audit.Fingerprint(check, subject),
		Fix: audit.Fix{Kind: "look", Command: "calico-audit explain " + subject.ID()},
	}
}

func at(f audit.Finding, s state.Severity) audit.Finding {
	f.Severity = s
	return f
}

// reportOf is a report of a cluster with the nodes n1 and n2.
func reportOf(findings ...audit.Finding) *audit.Report {
	return &audit.Report{
		Complete: true, Findings: findings,
		Nodes: []audit.NodeReport{{Name: "n1"}, {Name: "n2"}, {Name: "vanished", Missing: true}},
	}
}

// leaseName is the name that the exporter gives the Lease.
const leaseName = "calico-audit-exporter"

// eventWorld is a cluster with two nodes and no Events.
type eventWorld struct {
	*testing.T
	*testcluster.Cluster
}

func newEventWorld(t *testing.T) *eventWorld {
	t.Helper()
	return emptied(t, testcluster.Shared(t, testcluster.Options{}))
}

func emptied(t *testing.T, c *testcluster.Cluster) *eventWorld {
	t.Helper()
	w := &eventWorld{t, c}
	ctx, all := t.Context(), metav1.ListOptions{}
	for _, ns := range []string{"default", "kube-system"} {
		must(t, c.Kube.CoreV1().Events(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
		must(t, c.Kube.AppsV1().Deployments(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	}
	if err := c.Kube.CoordinationV1().Leases("kube-system").Delete(ctx, leaseName, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		must(t, err)
	}
	for _, name := range []string{"n1", "n2"} {
		_, err := c.Kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			must(t, err)
		}
	}
	return w
}

func (w *eventWorld) deployment(name string) *appsv1.Deployment {
	w.Helper()
	labels := map[string]string{"app": name}
	d, err := w.Kube.AppsV1().Deployments("kube-system").Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
			},
		},
	}, metav1.CreateOptions{})
	must(w.T, err)
	return d
}

// replica is an exporter's writing of Events.
type replica struct {
	*events.Writer
	log  *logBuffer
	stop func()
}

type replicaOptions struct {
	cfg   *rest.Config
	opts  events.Options
	pace  func(burst *int, interval *time.Duration)
	quiet bool // it is not to become the writer at once
}

// replica starts one; it is stopped with the test at the latest.
func (w *eventWorld) replica(o replicaOptions) *replica {
	w.Helper()
	r := &replica{log: &logBuffer{}}
	o.opts.Namespace, o.opts.Lease = "kube-system", cmp.Or(o.opts.Lease, leaseName)
	o.opts.Log = slog.New(slog.NewTextHandler(r.log, nil))
	if o.cfg == nil {
		o.cfg = w.Config
	}
	var err error
	r.Writer, err = events.Quick(o.cfg, o.opts, o.pace)
	must(w.T, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	r.stop = func() { cancel(); <-done }
	w.Cleanup(func() {
		r.stop()
		if w.Failed() {
			w.Logf("a replica's log:\n%s", r.log)
		}
	})
	if !o.quiet {
		w.until("the replica writes", func() bool { return r.Stats().Leading })
	}
	return r
}

// until waits for something to become true.
func (w *eventWorld) until(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not in time: %s; there are\n%s", what, strings.Join(w.told(), "\n"))
		}
	}
}

// events returns the Events that there are, ours and others, by name.
func (w *eventWorld) events() []corev1.Event {
	w.Helper()
	list, err := w.Kube.CoreV1().Events("").List(context.WithoutCancel(w.Context()), metav1.ListOptions{})
	if err != nil {
		return nil // for tests that stop the API server
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// told says in a line each what the Events tell, sorted.
func (w *eventWorld) told() (out []string) {
	w.Helper()
	for _, v := range w.events() {
		out = append(out, fmt.Sprintf("%s %s/%s %s ×%d: %s", v.Type, v.InvolvedObject.Kind, v.InvolvedObject.Name, v.Reason, v.Count, v.Message))
	}
	slices.Sort(out)
	return out
}

// expect waits until the Events tell just this, and then a while whether it stays.
func (w *eventWorld) expect(want ...string) {
	w.Helper()
	slices.Sort(want)
	same := func() bool { return slices.Equal(w.told(), want) }
	w.until("Events\n"+strings.Join(want, "\n"), same)
	time.Sleep(400 * time.Millisecond)
	if !same() {
		w.Errorf("the Events do not stay as they were:\n%s\nwant\n%s", strings.Join(w.told(), "\n"), strings.Join(want, "\n"))
	}
}

func (w *eventWorld) event(reason string) corev1.Event {
	w.Helper()
	for _, v := range w.events() {
		if v.Reason == reason {
			return v
		}
	}
	w.Fatalf("no Event %s", reason)
	return corev1.Event{}
}

func (w *eventWorld) lease() *coordinationv1.Lease {
	w.Helper()
	l, err := w.Kube.CoordinationV1().Leases("kube-system").Get(w.Context(), leaseName, metav1.GetOptions{})
	must(w.T, err)
	return l
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) count(text string) int { return strings.Count(b.String(), text) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
