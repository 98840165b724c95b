package apply_test

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// only is a plan with one step of the secondary lab.
func (l *lab) only(step string) *repair.Plan {
	l.t.Helper()
	p := l.plan(secondary, halfRecorded, stranded, strandedAlone, lone)
	p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool { return s.ID != step })
	p.Seal()
	return p
}

// record adds an entry to the pool, as Whereabouts does for a starting pod.
func (l *lab) record(offset, pod string) {
	l.t.Helper()
	l.must(l.c.Edit(l.t.Context(), secondaryCRD, multus, secondaryPool, func(o map[string]any) {
		o["spec"].(map[string]any)["allocations"].(map[string]any)[offset] = map[string]any{"id": "new", "podref": "default/" + pod, "ifname": "net1"}
	}))
}

// mortal lets a run die before or after one of its writes: its goroutine ends.
type mortal struct {
	http.RoundTripper
	at    int
	after bool
	n     *int
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return m.RoundTripper.RoundTrip(r)
	}
	if *m.n++; *m.n == m.at && !m.after {
		runtime.Goexit()
	}
	resp, err := m.RoundTripper.RoundTrip(r)
	if *m.n == m.at {
		runtime.Goexit()
	}
	return resp, err
}

// dies carries out a plan until its run dies, and returns the journal's path; false if the run
// completed.
func (l *lab) dies(p *repair.Plan, at int, after bool) (path string, died bool) {
	l.t.Helper()
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	cfg, n := rest.CopyConfig(l.c.Config), 0
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return mortal{rt, at, after, &n} })
	w, err := datastore.New(cfg, string(l.group), datastore.Options{Recorder: j})
	l.must(err)
	died = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = apply.Run(l.t.Context(), p, l.reader, w, j, apply.Options{Wait: true, Sleep: l.passes}) // its failure shows in the cluster
		died = false
	}()
	<-done
	path = j.Path()
	l.must(j.Close())
	return path, died
}

// TestWhereaboutsPodReturnsLate: a pod is recreated under its name, and its Whereabouts reads the
// reservation before it is deleted. It writes its entry only after the pools were read again. The
// reservation is restored nevertheless.
func TestWhereaboutsPodReturnsLate(t *testing.T) {
	for step, at := range map[string]struct{ name, offset, pod string }{
		stranded: {"10.9.0.5", "5", "gone"}, lone: {"10.9.0.8", "8", "left"},
	} {
		t.Run(at.pod, func(t *testing.T) {
			l := newSecondaryLab(t)
			p := l.only(step)
			reserved := l.spec(reservationCRD, at.name)
			j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
			cfg := rest.CopyConfig(l.c.Config)
			cfg.Wrap(testcluster.Conditional(t))
			asked := 0
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return answered{rt, func(r *http.Request) {
					switch {
					case r.Method == http.MethodDelete:
						_, err := l.s.Pod(t.Context(), seeding.Pod{Namespace: "default", Name: at.pod, Node: "n1", Waiting: true})
						l.must(err)
					case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/namespaces/default/pods"):
						if asked++; asked == 2 {
							l.record(at.offset, at.pod)
						}
					}
				}}
			})
			w, err := datastore.New(cfg, string(l.group), datastore.Options{Recorder: j})
			l.must(err)
			r, err := apply.Run(t.Context(), p, l.reader, w, j, apply.Options{Wait: true, Sleep: l.passes})
			l.must(err)
			t.Log(became(r), r.Outcomes[0].Reason)
			if diff := cmp.Diff(reserved, l.spec(reservationCRD, at.name)); diff != "" {
				t.Errorf("the reservation (-before +after):\n%s", diff)
			}
			if asked < 2 || l.entries()[at.offset] == nil {
				t.Errorf("the pod was looked for %d times, and the pool records %v", asked, l.entries())
			}
		})
	}
}

// TestWhereaboutsPodReturnsToDeadRun: if a run died right after it deleted the reservation, the run
// that continues restores it.
func TestWhereaboutsPodReturnsToDeadRun(t *testing.T) {
	for step, at := range map[string]struct {
		name, offset, pod string
		write             int
	}{
		stranded: {"10.9.0.5", "5", "gone", 2}, lone: {"10.9.0.8", "8", "left", 1},
	} {
		t.Run(at.pod, func(t *testing.T) {
			l := newSecondaryLab(t)
			p := l.only(step)
			reserved := l.spec(reservationCRD, at.name)
			path, died := l.dies(p, at.write, true)
			if !died || l.spec(reservationCRD, at.name) != nil {
				t.Fatalf("the run died: %t, and the reservation is %v", died, l.spec(reservationCRD, at.name))
			}
			l.secondaryPod(at.pod, "10.9.0."+at.offset)
			l.record(at.offset, at.pod)
			l.wantOutcomes(l.resume(p, path), step+": done")
			if diff := cmp.Diff(reserved, l.spec(reservationCRD, at.name)); diff != "" {
				t.Errorf("the reservation (-before +after):\n%s", diff)
			}
		})
	}
}

// TestWhereaboutsUndoOfAnotherRange: addresses are stored as offsets. If the range was edited
// since, the journal's offsets mean other addresses, and nothing is restored.
func TestWhereaboutsUndoOfAnotherRange(t *testing.T) {
	l := newSecondaryLab(t)
	r := l.apply(t.Context(), l.only(stranded), apply.Options{Wait: true})
	l.must(l.c.Edit(t.Context(), secondaryCRD, multus, secondaryPool, func(o map[string]any) {
		o["spec"].(map[string]any)["range"] = "10.9.0.2/24"
	}))
	before := l.secondaryNow()
	undone := l.undo(r)
	l.wantOutcomes(undone, stranded+": skipped Changed")
	if why := undone.Outcomes[0].Reason; !strings.Contains(why, "the range of its pool multus/10.9.0.0-24 was 10.9.0.0/24, and is now 10.9.0.2/24") {
		t.Errorf("it says %q", why)
	}
	if diff := cmp.Diff(before, l.secondaryNow()); diff != "" {
		t.Errorf("it wrote (-before +after):\n%s", diff)
	}
}
