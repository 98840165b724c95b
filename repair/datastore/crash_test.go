package datastore_test

import (
	"fmt"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/storm"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// TestSteps carries out every step in both API groups, on objects with fields that no
// current Calico has. These fields, labels and annotations must stay. Every write must be
// in the journal before it is sent, and no live pod may be harmed. Then the writer dies
// before and after each of its writes. That must not worsen the state, and a later repair
// must complete the step with the same result. A sample tries half of the steps.
func TestSteps(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		w.fromTheFuture()
		for _, s := range someSteps(t) {
			t.Run(s.name, func(t *testing.T) { w.in(t).crash(s) })
		}
	})
}

// TestStepsInEtcd is TestSteps in etcd, where nothing is marked deleted.
func TestStepsInEtcd(t *testing.T) {
	w := newWorld(t, testcluster.EtcdV3)
	w.fromTheFuture()
	for _, s := range someSteps(t) {
		if s.kind != repair.FinishDelete {
			t.Run(s.name, func(t *testing.T) { w.in(t).crash(s) })
		}
	}
}

func (w *world) crash(s step) {
	w.restoreFor(s)
	before, unknown := state.New(read(w.bench), state.Options{}), w.unknown()
	whole, taken := &tap{}, &journal{}
	if err := s.do(w, w.tapped(whole, taken)); err != nil {
		w.Fatal(err)
	}
	if len(taken.changes) != len(whole.writes) {
		w.Errorf("the writes were %v, and the journal has %s", whole.writes, taken)
	}
	w.kept("afterwards", unknown)
	w.unharmed("afterwards")
	want := w.contents()
	meant := map[string]state.Severity{}
	for _, f := range audit.Run(state.New(read(w.bench), state.Options{}), checks.All).Findings {
		meant[f.Fingerprint] = f.Severity
	}
	wanted := sampled(w.T, 5)
	for k := range whole.writes {
		for _, after := range []bool{false, true} {
			if !wanted() {
				continue
			}
			when := fmt.Sprintf("dead before write %d (%s)", k+1, whole.writes[k])
			if after {
				when = fmt.Sprintf("dead after write %d (%s)", k+1, whole.writes[k])
			}
			w.restoreFor(s)
			dying := &tap{dieAt: k + 1, after: after}
			if err := s.do(w, w.tapped(dying, &journal{})); err == nil {
				w.Errorf("%s: no error", when)
			}
			if len(dying.writes) != k+1 {
				w.Errorf("%s: it wrote %v", when, dying.writes)
			}
			w.kept(when, unknown)
			w.unharmed(when)
			for _, worse := range storm.Worse(before, state.New(read(w.bench), state.Options{}), s.kind, meant) {
				w.Errorf("%s: %s", when, worse)
			}
			if err := s.again(w, w.tapped(&tap{}, &journal{})); err != nil {
				w.Errorf("%s: and again: %v", when, err)
			}
			same(w.T, when+", and completed", want, w.contents())
			w.unharmed(when + ", and completed")
		}
	}
}
