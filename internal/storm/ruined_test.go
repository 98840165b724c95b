package storm

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// What the crash tests do with a ruin, again and again.

// ruined is a ruin that can be had again and again.
type ruined struct {
	*testcluster.Cluster
	group testcluster.Group
	ruin  *Ruin
	image Image
	gate  *Gate
	tool  *tool
	chose map[string]int // of each sort of write, the one that was chosen
}

func newRuined(t *testing.T, group testcluster.Group) *ruined {
	t.Helper()
	c := testcluster.Start(t, testcluster.Options{})
	x := &ruined{Cluster: c, group: group, ruin: NewRuin(t, c, group)}
	var err error
	x.image, err = TakeImage(t.Context(), c)
	must(t, err)
	x.gate = NewGate(t, c.Config, "calico-audit")
	x.tool, err = newTool(x.gate.Config(), somewhere(x.ruin.Live))
	must(t, err)
	return x
}

// plan brings the ruin back and plans its repair.
func (x *ruined) plan(t *testing.T, request repair.Request) *repair.Plan {
	t.Helper()
	must(t, x.image.Restore(t.Context(), x.Cluster))
	plan, err := x.tool.plan(t.Context(), request, 0)
	must(t, err)
	return plan
}

// unharmed fails the test if an address in use is not what it should be.
func (x *ruined) unharmed(t *testing.T) {
	t.Helper()
	wrong, err := Harm(t.Context(), x.Cluster, x.group, x.ruin.Live)
	must(t, err)
	for _, w := range wrong {
		t.Errorf("HARM: %s", w)
	}
}

func (x *ruined) state(t *testing.T) *state.State {
	t.Helper()
	st, err := x.tool.read(t.Context(), 0)
	must(t, err)
	return st
}

func (x *ruined) essence(t *testing.T) map[string]string {
	t.Helper()
	e, err := Essence(t.Context(), x.Cluster, x.group)
	must(t, err)
	return e
}
