package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// unsafeState is a state in which Whereabouts' own reconciler frees the address of a live pod.
type unsafeState struct {
	name string
	// step is planned while the pod does not exist, for the address at an offset of a pool.
	step           string
	pool, network  string
	addr, pod, key string
	reservation    string
	// arises creates the state, then calls then.
	arises func(l *unsafeLab, then func())
	// The expected results for the address: in a plan made in this state; for the step if it is
	// applied in this state, if the pod is Ready by then, and if all this happens between the two
	// observations.
	planned                  repair.RefusalCode
	applied, ready, meantime string
}

// sixUnsafeStates are the states that Whereabouts v0.9.4 still mishandles.
var sixUnsafeStates = []unsafeState{
	{
		name: "1 a Pending pod without network-status",
		step: stranded, pool: secondaryPool, network: "default/fast", addr: "10.9.0.5", pod: "gone", key: "5", reservation: "10.9.0.5",
		arises:  func(l *unsafeLab, then func()) { l.starts("gone", nil); then() },
		planned: repair.RefusedInUse, applied: "skipped InUse", ready: "skipped InUse", meantime: "skipped InUse",
	},
	{
		name: "2a a Running pod whose network-status is missing",
		step: stranded, pool: secondaryPool, network: "default/fast", addr: "10.9.0.5", pod: "gone", key: "5", reservation: "10.9.0.5",
		arises:  func(l *unsafeLab, then func()) { l.starts("gone", map[string]string{}); then() },
		planned: repair.RefusedInUse, applied: "skipped InUse", ready: "skipped InUse", meantime: "skipped InUse",
	},
	{
		name: "2b a Running pod whose network-status is malformed",
		step: stranded, pool: secondaryPool, network: "default/fast", addr: "10.9.0.5", pod: "gone", key: "5", reservation: "10.9.0.5",
		arises:  func(l *unsafeLab, then func()) { l.starts("gone", map[string]string{networkStatus: "[{"}); then() },
		planned: repair.RefusedInUse, applied: "skipped InUse", ready: "skipped InUse", meantime: "skipped InUse",
	},
	{
		name: "3 an API error while the pod is looked up again",
		step: stranded, pool: secondaryPool, network: "default/fast", addr: "10.9.0.5", pod: "gone", key: "5", reservation: "10.9.0.5",
		arises: func(l *unsafeLab, then func()) {
			l.starts("gone", nil)
			then()
			l.between(func(r *http.Request) *http.Response {
				if strings.Contains(r.URL.Path, "/pods") {
					return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Request: r, Header: http.Header{}, Body: http.NoBody}
				}
				return nil
			}, nil)
		},
		planned: repair.RefusedNotRead, applied: "skipped Unread", ready: "skipped InUse", meantime: "skipped Unread",
	},
	{
		name: "4 the reservation of a live pod in a network with a name",
		step: "release-whereabouts:multus/mynet-10.10.0.0-24:10.10.0.1", pool: "mynet-10.10.0.0-24", network: "default/named", addr: "10.10.0.1", pod: "named", key: "1", reservation: "mynet-10.10.0.1",
		arises:  func(l *unsafeLab, then func()) { l.starts("named", nil); then() },
		planned: repair.RefusedInUse, applied: "skipped InUse", ready: "skipped InUse", meantime: "skipped InUse",
	},
	{
		name: "5 a reservation made between the lists of pods and of reservations",
		step: lone, pool: secondaryPool, network: "default/fast", addr: "10.9.0.8", pod: "left", key: "8", reservation: "10.9.0.8",
		arises: func(l *unsafeLab, then func()) {
			l.afterPods(func() {
				l.must(l.c.Delete(l.t.Context(), reservationCRD, multus, "10.9.0.8"))
				l.create(reservationCRD, multus, "10.9.0.8", map[string]any{"podref": "default/left", "ifname": "net1"})
				l.starts("left", nil)
				then()
			})
		},
		planned: repair.RefusedNoEvidence, applied: "already", ready: "already", meantime: "already",
	},
	{
		name: "6 a pod that the taint manager deletes and that may run on",
		step: stranded, pool: secondaryPool, network: "default/fast", addr: "10.9.0.5", pod: "gone", key: "5", reservation: "10.9.0.5",
		arises: func(l *unsafeLab, then func()) {
			l.starts("gone", map[string]string{networkStatus: "[]"})
			l.status("gone", `{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByTaintManager"}]}`)
			l.must(l.s.TerminatePod(l.t.Context(), "default", "gone", false))
			then()
		},
		planned: repair.RefusedInUse, applied: "skipped InUse", ready: "skipped InUse", meantime: "skipped InUse",
	},
}

// TestWhereaboutsSixUnsafeStates: in no state in which Whereabouts' reconciler frees a live address
// does a repair free it. This holds for a plan made in the state, for an earlier plan if the state
// arises and the pod becomes Ready afterwards, and for a state that arises during the run. Host
// views show nothing, so the records of the pods must be enough.
func TestWhereaboutsSixUnsafeStates(t *testing.T) {
	for _, s := range testenv.Sample(t, 3, sixUnsafeStates) {
		t.Run(s.name, func(t *testing.T) {
			t.Run("plan, the state, Ready, apply", func(t *testing.T) {
				l := newUnsafeLab(t)
				p := l.only(s.step)
				isDue(p)
				s.arises(l, func() {})
				l.refuses(s)
				l.outcome(p, s, s.applied, nil)
				l.between(nil, nil)
				l.becomesReady(s)
				l.outcome(p, s, s.ready, nil)
				l.records(s)
				l.outcome(p, s, "already", nil)
			})
			t.Run("plan, and the state and Ready between the observations", func(t *testing.T) {
				l := newUnsafeLab(t)
				p := l.only(s.step)
				l.outcome(p, s, s.meantime, sync.OnceFunc(func() { s.arises(l, func() { l.becomesReady(s) }) }))
			})
		})
	}
}

const networkStatus = "k8s.v1.cni.cncf.io/network-status"

func statusOf(network, addr string) string {
	return fmt.Sprintf(`[{"name":%q,"interface":"net1","ips":[%q]}]`, network, addr)
}

// unsafeLab is a lab with a secondary network and a second one that has a name, in which address 1
// is recorded for a missing pod. Tests can interfere with its reads.
type unsafeLab struct {
	*lab
	before func(*http.Request) *http.Response
	after  func(*http.Request)
	mu     sync.Mutex
}

func newUnsafeLab(t *testing.T) *unsafeLab {
	t.Helper()
	l := &unsafeLab{lab: newSecondaryLab(t)}
	l.create(attachmentCRD, "default", "named", map[string]any{
		"config": `{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.10.0.0/24","network_name":"mynet"}}`,
	})
	l.create(secondaryCRD, multus, "mynet-10.10.0.0-24", map[string]any{"range": "10.10.0.0/24", "allocations": map[string]any{
		"1": map[string]any{"id": "c1", "podref": "default/named", "ifname": "net1"},
	}})
	l.create(reservationCRD, multus, "mynet-10.10.0.1", map[string]any{"podref": "default/named", "ifname": "net1"})
	l.age()
	cfg := rest.CopyConfig(l.c.Config)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return meddled{rt, l} })
	reader, err := cluster.NewKubernetes(cfg, cluster.KubernetesOptions{})
	l.must(err)
	l.reader.Kubernetes = reader
	return l
}

// meddled lets a test act before and after each request.
type meddled struct {
	http.RoundTripper
	l *unsafeLab
}

func (m meddled) RoundTrip(r *http.Request) (*http.Response, error) {
	m.l.mu.Lock()
	before, after := m.l.before, m.l.after
	m.l.mu.Unlock()
	if before != nil {
		if resp := before(r); resp != nil {
			return resp, nil
		}
	}
	resp, err := m.RoundTripper.RoundTrip(r)
	if after != nil {
		after(r)
	}
	return resp, err
}

// between calls before, which may answer the request, before each request of a reading, and after
// after it.
func (l *unsafeLab) between(before func(*http.Request) *http.Response, after func(*http.Request)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before, l.after = before, after
}

// afterPods calls do once in the next reading, after the pods were listed and before Whereabouts'
// objects are.
func (l *unsafeLab) afterPods(do func()) {
	listed := make(chan struct{})
	do = sync.OnceFunc(do)
	tell := sync.OnceFunc(func() { close(listed) })
	l.between(func(r *http.Request) *http.Response {
		if strings.Contains(r.URL.Path, "/whereabouts.cni.cncf.io/v1alpha1/") {
			<-listed
			do()
		}
		return nil
	}, func(r *http.Request) {
		if r.URL.Path == "/api/v1/pods" {
			tell()
		}
	})
}

// starts creates a pod: Pending, or Running with some annotations.
func (l *unsafeLab) starts(name string, annotations map[string]string) {
	l.t.Helper()
	_, err := l.s.Pod(l.t.Context(), seeding.Pod{Namespace: "default", Name: name, Node: "n1", Waiting: annotations == nil, Annotations: annotations})
	l.must(err)
}

func (l *unsafeLab) status(pod, status string) {
	l.t.Helper()
	_, err := l.c.Kube.CoreV1().Pods("default").Patch(l.t.Context(), pod, types.StrategicMergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	l.must(err)
}

// records writes the new sandbox of a recreated pod into the pod's entry, as Whereabouts does.
func (l *unsafeLab) records(s unsafeState) {
	l.t.Helper()
	l.must(l.c.Edit(l.t.Context(), secondaryCRD, multus, s.pool, func(o map[string]any) {
		o["spec"].(map[string]any)["allocations"].(map[string]any)[s.key] = map[string]any{"id": "new", "podref": "default/" + s.pod, "ifname": "net1"}
	}))
}

// becomesReady makes the pod name the address and be Ready, as Multus and the kubelet finally do.
// The records do not show that the sandbox is a new one.
func (l *unsafeLab) becomesReady(s unsafeState) {
	l.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{networkStatus: statusOf(s.network, s.addr), "cni.projectcalico.org/containerID": "new"}}})
	l.must(err)
	_, err = l.c.Kube.CoreV1().Pods("default").Patch(l.t.Context(), s.pod, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
	l.status(s.pod, `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`)
}

// only plans one step.
func (l *unsafeLab) only(step string) *repair.Plan {
	l.t.Helper()
	p := l.planOf(secondary)
	p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool { return s.ID != step })
	if len(p.Steps) != 1 {
		l.t.Fatalf("step %s is not planned while the pod is not there; refused: %+v", step, p.Refused)
	}
	p.Seal()
	return p
}

// refuses fails the test unless a plan made now leaves the address alone, naming it and the reason.
func (l *unsafeLab) refuses(s unsafeState) {
	l.t.Helper()
	p := l.planOf(secondary)
	for _, step := range p.Steps {
		if strings.HasSuffix(step.ID, s.addr) {
			l.t.Errorf("step %s is planned", step.ID)
		}
	}
	if !slices.ContainsFunc(p.Refused, func(r repair.Refusal) bool {
		of := r.Target.IP == s.addr || strings.HasSuffix(r.Target.Name, "/"+s.reservation) || r.Code == repair.RefusedNotRead // a refusal of the whole kind
		return of && r.Code == s.planned
	}) {
		l.t.Errorf("%s is not refused as %s; refused: %+v", s.addr, s.planned, p.Refused)
	}
}

// outcome applies the plan and, if asked, calls meantime between its two observations. It fails the
// test unless the step ends as expected and entry and reservation are as Whereabouts wrote them.
func (l *unsafeLab) outcome(p *repair.Plan, s unsafeState, want string, meantime func()) {
	l.t.Helper()
	before := l.secondaryNow()
	opts := apply.Options{Wait: meantime != nil, Sleep: func(ctx context.Context, d time.Duration) error {
		if meantime != nil {
			meantime()
		}
		return l.passes(ctx, d)
	}}
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	r, err := apply.Run(l.t.Context(), p, l.reader, l.writer(j), j, opts)
	l.must(err)
	got, reason := strings.TrimPrefix(became(r)[0], s.step+": "), r.Outcomes[0].Reason
	if got != want {
		l.t.Errorf("it came to %s, and should have to %s: %s", got, want, reason)
	}
	l.t.Logf("%s: %s", got, reason)
	if diff := cmp.Diff(before, l.secondaryNow()); diff != "" {
		l.t.Errorf("it wrote (-before +after):\n%s", diff)
	}
	if l.spec(reservationCRD, s.reservation) == nil {
		l.t.Errorf("the reservation %s is gone", s.reservation)
	}
}
