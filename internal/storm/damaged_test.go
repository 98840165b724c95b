package storm

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// The cluster that the crash tests damage and repair repeatedly.

// damaged is a cluster whose damage can be restored.
type damaged struct {
	*testcluster.Cluster
	group   testcluster.Group
	fixture *DamageFixture
	image   Image
	proxy   *FaultProxy
	tool    *tool
	// secondary holds the addresses of a secondary network in use, and their pods; nil
	// without such a network.
	secondary map[netip.Addr]string
	chose     map[string]int // the chosen write of each sort of write
}

// newDamaged creates the damage on a cluster that tests use in turn. A test that changes more than
// the objects of an image needs newDamagedOn.
func newDamaged(t *testing.T, group testcluster.Group) *damaged {
	t.Helper()
	return newDamagedOn(t, testcluster.Shared(t, testcluster.Options{}), group)
}

func newDamagedOn(t *testing.T, c *testcluster.Cluster, group testcluster.Group) *damaged {
	t.Helper()
	x := &damaged{Cluster: c, group: group, fixture: NewDamageFixture(t, c, group)}
	x.begin(t, somewhere(x.fixture.Live))
	return x
}

// begin saves the damage's image, and creates the proxy and tool of repairs.
func (x *damaged) begin(t *testing.T, machines machines) {
	t.Helper()
	var err error
	x.image, err = TakeImage(t.Context(), x.Cluster)
	must(t, err)
	x.proxy = NewFaultProxy(t, x.Config, "calico-audit")
	x.tool, err = newTool(x.proxy.Config(), machines)
	must(t, err)
}

// wait pretends that a second passes: later readings are taken with a later time until
// the damage is restored. Times are stored in whole seconds, so a fresh write is old
// enough for a repair afterwards.
func (x *damaged) wait() { x.tool.reader.(*viewedReader).ahead += 1100 * time.Millisecond }

// plan restores the damage and plans its repair.
func (x *damaged) plan(t *testing.T, request repair.Request) *repair.Plan {
	t.Helper()
	must(t, x.image.Restore(t.Context(), x.Cluster))
	x.tool.reader.(*viewedReader).ahead = 0
	plan, err := x.tool.plan(t.Context(), request, 0)
	must(t, err)
	return plan
}

// unharmed fails the test if an address in use is not allocated as it should be.
func (x *damaged) unharmed(t *testing.T) {
	t.Helper()
	wrong, err := Harm(t.Context(), x.Cluster, x.group, x.fixture.Live)
	must(t, err)
	for _, w := range append(wrong, x.secondaryHarm(t)...) {
		t.Errorf("HARM: %s", w)
	}
}

func (x *damaged) state(t *testing.T) *state.State {
	t.Helper()
	st, err := x.tool.read(t.Context(), 0)
	must(t, err)
	return st
}

func (x *damaged) essence(t *testing.T) map[string]string {
	t.Helper()
	e, err := Essence(t.Context(), x.Cluster, x.group)
	must(t, err)
	maps.Copy(e, x.secondaryRecords(t))
	return e
}
