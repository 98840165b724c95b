package apply_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// Whereabouts' CRDs, and the objects of a network with two pools.
var (
	attachmentCRD  = testcluster.Attachments.Resource("network-attachment-definitions")
	secondaryCRD   = testcluster.Whereabouts.Resource("ippools")
	reservationCRD = testcluster.Whereabouts.Resource("overlappingrangeipreservations")
)

const (
	secondaryPool = "10.9.0.0-24"
	multus        = "multus" // the namespace of Whereabouts
	stranded      = "release-whereabouts:multus/10.9.0.0-24:10.9.0.5"
	strandedAlone = "release-whereabouts:multus/10.9.0.0-24:10.9.0.6"
	lone          = "delete-whereabouts-reservation:multus/10.9.0.8"
	halfRecorded  = "restore-whereabouts:multus/10.9.0.7"
)

var secondary = repair.Request{WhereaboutsStranded: true, WhereaboutsReservations: true}

// newSecondaryLab is a lab with a secondary network. Addresses 5 and 6 are recorded for pods that
// no longer exist, 5 with its reservation. 7 has lost its entry although its pod runs, 8 has only a
// reservation, and 9 is complete.
func newSecondaryLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, testcluster.Whereabouts, testcluster.Attachments)
	l.must(l.s.Namespace(t.Context(), multus, nil, nil))
	l.create(attachmentCRD, "default", "fast", map[string]any{
		"config": `{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24"}}`,
	})
	l.secondaryPod("mute", "10.9.0.7")
	l.secondaryPod("whole", "10.9.0.9")
	entry := func(pod, id string) map[string]any {
		return map[string]any{"id": id, "podref": "default/" + pod, "ifname": "net1"}
	}
	l.create(secondaryCRD, multus, secondaryPool, map[string]any{"range": "10.9.0.0/24", "allocations": map[string]any{
		"5": entry("gone", "c5"), "6": entry("gone-too", "c6"), "9": entry("whole", seeding.ContainerID("default", "whole")),
	}})
	for addr, pod := range map[string]string{"10.9.0.5": "gone", "10.9.0.7": "mute", "10.9.0.8": "left", "10.9.0.9": "whole"} {
		l.create(reservationCRD, multus, addr, map[string]any{"podref": "default/" + pod, "ifname": "net1"})
	}
	l.age()
	return l
}

func (l *lab) create(r testcluster.Resource, namespace, name string, spec map[string]any) {
	l.t.Helper()
	l.must(l.c.Create(l.t.Context(), r, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec}))
}

// secondaryPod starts a pod that names an address of the secondary network.
func (l *lab) secondaryPod(name, addr string) {
	l.t.Helper()
	status := fmt.Sprintf(`[{"name":"default/fast","interface":"net1","ips":[%q]}]`, addr)
	_, err := l.s.Pod(l.t.Context(), seeding.Pod{Namespace: "default", Name: name, Node: "n1", Annotations: map[string]string{"k8s.v1.cni.cncf.io/network-status": status}})
	l.must(err)
}

// secondaryNow returns the contents of the pool and its reservations.
func (l *lab) secondaryNow() map[string]any {
	l.t.Helper()
	out := map[string]any{}
	for _, r := range []testcluster.Resource{secondaryCRD, reservationCRD} {
		all, err := l.c.List(l.t.Context(), r)
		l.must(err)
		for _, o := range all {
			out[r.Resource+"/"+o.GetName()] = o.Object["spec"]
		}
	}
	return out
}

func (l *lab) entries() map[string]any {
	l.t.Helper()
	return l.spec(secondaryCRD, secondaryPool)["allocations"].(map[string]any)
}

// TestWhereabouts: one reviewed plan removes the remains of vanished pods from the pool and the
// reservations, which people otherwise do by hand, and completes a live pod's record. A second run
// finds nothing to do. Undo restores the entries that it can, as they were.
func TestWhereabouts(t *testing.T) {
	l := newSecondaryLab(t)
	before := l.secondaryNow()
	steps := []string{halfRecorded, stranded, strandedAlone, lone}
	p := l.plan(secondary, steps...)
	r := l.apply(t.Context(), p, apply.Options{Wait: true})
	l.wantOutcomes(r, halfRecorded+": done", stranded+": done", strandedAlone+": done", lone+": done")
	whole := seeding.ContainerID("default", "whole")
	want := map[string]any{
		"7": map[string]any{"id": seeding.ContainerID("default", "mute"), "podref": "default/mute", "ifname": "net1"},
		"9": map[string]any{"id": whole, "podref": "default/whole", "ifname": "net1"},
	}
	if diff := cmp.Diff(want, l.entries()); diff != "" {
		t.Errorf("the pool (-want +is):\n%s", diff)
	}
	for name, there := range map[string]bool{"10.9.0.5": false, "10.9.0.7": true, "10.9.0.8": false, "10.9.0.9": true} {
		if (l.spec(reservationCRD, name) != nil) != there {
			t.Errorf("reservation %s: there should be one: %t", name, there)
		}
	}
	l.settled()
	l.wantOutcomes(l.apply(t.Context(), p, apply.Options{}), halfRecorded+": already", stranded+": already", strandedAlone+": already", lone+": already")

	l.wantOutcomes(l.undo(r), lone+": done", strandedAlone+": done", stranded+": done", halfRecorded+": skipped Harm")
	before[secondaryCRD.Resource+"/"+secondaryPool].(map[string]any)["allocations"].(map[string]any)["7"] = want["7"]
	if diff := cmp.Diff(before, l.secondaryNow()); diff != "" {
		t.Errorf("undone (-before +after):\n%s", diff)
	}
}

// TestWhereaboutsMeanwhile: changes between plan and apply end the step, and nothing is written.
// [TestWhereaboutsSixUnsafeStates] has the states in which Whereabouts' own reconciler errs.
func TestWhereaboutsMeanwhile(t *testing.T) {
	editPool := func(change func(all map[string]any)) func(*lab) {
		return func(l *lab) {
			l.must(l.c.Edit(l.t.Context(), secondaryCRD, multus, secondaryPool, func(o map[string]any) {
				change(o["spec"].(map[string]any)["allocations"].(map[string]any))
			}))
		}
	}
	again := func(name, podref string) func(*lab) {
		return func(l *lab) {
			l.must(l.c.Delete(l.t.Context(), reservationCRD, multus, name))
			l.create(reservationCRD, multus, name, map[string]any{"podref": podref, "ifname": "net1"})
		}
	}
	cases := map[string]struct {
		step string
		do   func(*lab)
		want string
	}{
		"its pod has the address again":   {stranded, func(l *lab) { l.secondaryPod("gone", "10.9.0.5") }, "skipped InUse"},
		"another pod names the address":   {stranded, func(l *lab) { l.secondaryPod("thief", "10.9.0.5") }, "skipped InUse"},
		"the entry is of another sandbox": {stranded, editPool(func(all map[string]any) { all["5"].(map[string]any)["id"] = "c55" }), "skipped Changed"},
		"the entry is another pod's": {strandedAlone, editPool(func(all map[string]any) {
			all["6"] = map[string]any{"id": seeding.ContainerID("default", "whole"), "podref": "default/whole", "ifname": "net2"}
		}), "already"},
		"the entry is gone":                 {strandedAlone, editPool(func(all map[string]any) { delete(all, "6") }), "already"},
		"its reservation is another object": {stranded, again("10.9.0.5", "default/gone"), "skipped Changed"},
		"its reservation is another pod's":  {stranded, again("10.9.0.5", "default/other"), "skipped Conflict"},
		"the network attachment is gone":    {stranded, func(l *lab) { l.must(l.c.Delete(l.t.Context(), attachmentCRD, "default", "fast")) }, "skipped NotRead"},
		"the reservation's pod starts": {lone, func(l *lab) {
			_, err := l.s.Pod(l.t.Context(), seeding.Pod{Namespace: "default", Name: "left", Node: "n1", Waiting: true})
			l.must(err)
		}, "skipped InUse"},
		"the reservation's pod is recorded": {lone, editPool(func(all map[string]any) {
			all["8"] = map[string]any{"id": "c8", "podref": "default/left", "ifname": "net1"}
		}), "skipped NotDerived"},
		"the reservation was written": {lone, func(l *lab) {
			l.must(l.c.Edit(l.t.Context(), reservationCRD, multus, "10.9.0.8", func(o map[string]any) { o["spec"].(map[string]any)["ifname"] = "net2" }))
		}, "skipped Changed"},
		"the address is given to another pod": {halfRecorded, editPool(func(all map[string]any) {
			all["7"] = map[string]any{"id": "x", "podref": "default/thief", "ifname": "net1"}
		}), "skipped NotDerived"},
		"the pod of the reservation that is in use ends": {halfRecorded, func(l *lab) { l.must(l.s.DeletePod(l.t.Context(), "default", "mute", true)) }, "skipped NotDerived"},
	}
	for _, name := range testenv.Sample(t, 6, slices.Sorted(maps.Keys(cases))) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			l := newSecondaryLab(t)
			p := l.plan(secondary, halfRecorded, stranded, strandedAlone, lone)
			p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool { return s.ID != c.step })
			isDue(p)
			c.do(l)
			l.age()
			before := l.secondaryNow()
			l.wantOutcomes(l.apply(t.Context(), p, apply.Options{}), c.step+": "+c.want)
			if diff := cmp.Diff(before, l.secondaryNow()); diff != "" {
				t.Errorf("it wrote (-before +after):\n%s", diff)
			}
		})
	}
}

// TestWhereaboutsUndoLeavesTheLiving: undo restores no record if a live pod has the address now.
func TestWhereaboutsUndoLeavesTheLiving(t *testing.T) {
	l := newSecondaryLab(t)
	p := l.plan(secondary, halfRecorded, stranded, strandedAlone, lone)
	r := l.apply(t.Context(), p, apply.Options{Wait: true})
	l.secondaryPod("new", "10.9.0.5")
	l.must(l.c.Edit(t.Context(), secondaryCRD, multus, secondaryPool, func(o map[string]any) {
		o["spec"].(map[string]any)["allocations"].(map[string]any)["6"] = map[string]any{"id": "n", "podref": "default/new", "ifname": "net2"}
	}))
	l.create(reservationCRD, multus, "10.9.0.8", map[string]any{"podref": "default/new", "ifname": "net3"})
	before := l.secondaryNow()
	l.wantOutcomes(l.undo(r), lone+": skipped InUse", strandedAlone+": skipped InUse", stranded+": skipped InUse", halfRecorded+": skipped Harm")
	if diff := cmp.Diff(before, l.secondaryNow()); diff != "" {
		t.Errorf("it wrote (-before +after):\n%s", diff)
	}
}

// TestWhereaboutsPodReturns: a pod recreated under its name takes over its reservation without
// writing it. If a release is between its two writes, the reservation stays; if it was already
// deleted, it is restored.
func TestWhereaboutsPodReturns(t *testing.T) {
	for _, verb := range []string{http.MethodPatch, http.MethodDelete} {
		t.Run("after the "+strings.ToLower(verb), func(t *testing.T) {
			l := newSecondaryLab(t)
			p := l.plan(secondary, halfRecorded, stranded, strandedAlone, lone)
			p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool { return s.ID != stranded })
			p.Seal()
			reserved := l.spec(reservationCRD, "10.9.0.5")
			j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
			cfg := rest.CopyConfig(l.c.Config)
			cfg.Wrap(testcluster.Conditional(t))
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return answered{rt, func(r *http.Request) {
					if r.Method == verb && strings.Contains(r.URL.Path, "whereabouts") {
						l.secondaryPod("gone", "10.9.0.5")
						l.must(l.c.Edit(t.Context(), secondaryCRD, multus, secondaryPool, func(o map[string]any) {
							o["spec"].(map[string]any)["allocations"].(map[string]any)["5"] = map[string]any{"id": "new", "podref": "default/gone", "ifname": "net1"}
						}))
					}
				}}
			})
			w, err := datastore.New(cfg, string(l.group), datastore.Options{Recorder: j})
			l.must(err)
			r, err := apply.Run(t.Context(), p, l.reader, w, j, apply.Options{Wait: true, Sleep: l.passes})
			l.must(err)
			t.Log(r.Outcomes[0].Status, r.Outcomes[0].Reason)
			if diff := cmp.Diff(reserved, l.spec(reservationCRD, "10.9.0.5")); diff != "" {
				t.Errorf("the reservation (-before +after):\n%s", diff)
			}
			if l.entries()["5"].(map[string]any)["id"] != "new" {
				t.Errorf("the entry is %v", l.entries()["5"])
			}
		})
	}
}

// answered calls then after each response.
type answered struct {
	http.RoundTripper
	then func(*http.Request)
}

func (a answered) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(r)
	a.then(r)
	return resp, err
}
