package storm

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// Helpers for tests that kill a repair and run repairs again.

// is fails the test unless no address in use was harmed and the state equals the expected
// one.
func (x *damaged) is(t *testing.T, want map[string]string, when string) {
	t.Helper()
	x.unharmed(t)
	for _, d := range Differ(want, x.essence(t)) {
		t.Errorf("%s: %s", when, d)
	}
}

// confirmed returns the expected state, except that affinities which Calico must confirm
// stay pending. It checks that each is confirmed by its node's next allocation.
func (x *damaged) confirmed(t *testing.T, want map[string]string, heals []repair.Refusal) map[string]string {
	t.Helper()
	now := x.essence(t)
	want = maps.Clone(want)
	for _, h := range heals {
		name := "blockaffinities/" + h.Target.Name
		pending := strings.Replace(want[name], `"state":"confirmed"`, `"state":"pending"`, 1)
		if now[name] != pending {
			continue
		}
		want[name] = pending
		x.keeps(t, h.Target.Node, now, want)
		if x.group != testcluster.CRDv1 {
			continue // Calico's client of this release cannot write it
		}
		x.heals(t, h.Target.Node, h.Target.Name)
	}
	return want
}

// keeps adds to the expected state the one empty block that a node keeps while Calico has
// not yet confirmed its other block. A repair leaves every node a confirmed block.
func (x *damaged) keeps(t *testing.T, node string, now, want map[string]string) {
	t.Helper()
	var kept []string
	for name, text := range now {
		block, is := strings.CutPrefix(name, "ipamblocks/")
		if _, expected := want[name]; is && !expected && strings.Contains(text, `"affinity":"host:`+node+`"`) && strings.Contains(text, `"attributes":[]`) {
			kept = append(kept, block)
		}
	}
	if len(kept) > 1 {
		t.Errorf("%s keeps %d empty blocks: %v", node, len(kept), kept)
	}
	for _, block := range kept {
		for _, name := range []string{"ipamblocks/" + block, "blockaffinities/" + node + "-" + block} {
			want[name] = now[name]
		}
	}
}

// heals makes a node allocate and release an address, which must confirm its affinity.
// Then it restores the state.
func (x *damaged) heals(t *testing.T, node, affinity string) {
	t.Helper()
	ctx := t.Context()
	before, err := TakeImage(ctx, x.Cluster)
	must(t, err)
	handle := "k8s-pod-network.heals"
	_, err = x.fixture.client.autoAssign(ctx, ipam.AutoAssignArgs{
		Num4: 1, HandleID: &handle, Hostname: node, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		Attrs: map[string]string{ipam.AttributeNode: node},
	})
	must(t, err)
	a, err := x.Get(ctx, x.group.Resource("blockaffinities"), "", affinity)
	must(t, err)
	if state, _, _ := unstructured.NestedString(a.Object, "spec", "state"); state != "confirmed" {
		t.Errorf("%s was left %s for its node to confirm, and the node's next allocation has not", affinity, state)
	}
	must(t, before.Restore(ctx, x.Cluster))
}

// brokeOff returns the kind of the step that a run died in.
func brokeOff(f *journal.File) repair.Kind {
	for i := range f.Plan.Steps {
		if s := &f.Plan.Steps[i]; f.Started(s.ID) {
			return s.Kind
		}
	}
	// The run may already have recorded the end of its last step.
	for i := len(f.Entries) - 1; i >= 0; i-- {
		if f.Entries[i].Event == journal.EventStart {
			return f.Step(f.Entries[i].Step).Kind
		}
	}
	return ""
}

// again runs repairs with new plans until there is nothing left to do, which must not
// take more than four. It returns the refusals that leave objects for Calico to heal.
func (x *damaged) again(t *testing.T, request repair.Request) (heals []repair.Refusal) {
	t.Helper()
	repairs, waited := 0, false
	for range 20 {
		plan, err := x.tool.plan(t.Context(), request, 0)
		must(t, err)
		if len(plan.Steps) == 0 {
			if !waited || waits(plan) {
				x.wait()
				waited = true
				continue
			}
			return slices.DeleteFunc(plan.Refused, func(r repair.Refusal) bool { return r.Code != repair.RefusedHeals })
		}
		if repairs++; repairs > 4 {
			t.Fatalf("after four repairs there are still steps: %s", plan.Steps[0].ID)
		}
		res, err := x.tool.apply(t.Context(), plan, filepath.Join(t.TempDir(), fmt.Sprint("journal-", repairs)), apply.Options{})
		must(t, err)
		for _, o := range res.Outcomes {
			if o.Open() {
				t.Logf("repair %d: %s is %s: %s %s", repairs, o.Step.ID, o.Status, o.Code, o.Reason)
			}
		}
	}
	t.Fatal("something stays too young to be repaired")
	return nil
}
