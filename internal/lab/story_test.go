package lab

import (
	"net/netip"
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestStory plays nodes in one AS behind a router, from the first report to the cure.
func TestStory(t *testing.T) {
	d := store(t)
	ctx := t.Context()
	plan, err := d.Plan(ctx, Topologies[0])
	must(t, err)
	l, err := Start(t, plan)
	must(t, err)
	t.Run("reports", func(t *testing.T) { reports(t, d, l) })
	must(t, d.Seeder.DeletePod(ctx, seeding.SmallStoryNamespace, seeding.SmallStoryPod(Third, 0), true))
	t.Run("a pod that would not die", func(t *testing.T) { wouldNotDie(t, d, l) })
	t.Run("the cure", func(t *testing.T) { cure(t, d, l) })
}

// cure ends the incident. It releases the owner's empty block and restarts the borrower's
// pod, whose node then claims a block. Packets from the owner's pods arrive again.
func cure(t *testing.T, d *Datastore, l *Lab) {
	ctx := t.Context()
	// Delete most of the owner's pods, and the third node's pod with its namespace. One
	// pod of the owner remains, in the block that the borrower borrows from.
	pod := seeding.SmallStoryPod
	const last = 16
	for i := range last {
		must(t, d.Seeder.DeletePod(ctx, seeding.SmallStoryNamespace, pod(Owner, i), true))
	}
	for _, node := range []string{Owner, Third} {
		must(t, l.Workloads[node].Readdress(ctx, nil))
	}
	addrs, err := d.PodAddresses(ctx, pod(Owner, last))
	must(t, err)
	must(t, l.Workloads[Owner].Readdress(ctx, addrs))

	state := curing(t, d, l)
	if n := len(state.Borrows); n != 2 {
		t.Fatalf("%d addresses are borrowed before the cure, not 2", n)
	}
	for _, addr := range l.Borrowed() {
		if got := severity(state, "route/blackhole", addr.String()); got != "critical" {
			t.Errorf("before the cure, the finding about %s is %s, not critical", addr, got)
		}
		if reached(t, l, addr) {
			t.Errorf("before the cure, packets to %s arrive", addr)
		}
	}

	// Do as "calico-audit repair --empty-blocks" does, and then follow its advice by
	// hand.
	for _, b := range state.IPBlocks {
		if b.Used == 0 {
			must(t, d.Seeder.ReleaseBlocks(ctx, Owner, b.CIDR, true))
		}
	}
	must(t, d.Seeder.DeletePod(ctx, seeding.SmallStoryNamespace, pod(Borrower, 0), true))
	addrs, err = d.Seeder.Pod(ctx, seeding.Pod{
		Namespace: seeding.SmallStoryNamespace, Name: pod(Borrower, 0), Node: Borrower, DualStack: true,
	})
	must(t, err)
	must(t, l.Workloads[Borrower].Readdress(ctx, addrs))

	state = curing(t, d, l)
	for _, check := range []string{"route/blackhole", "route/stray-blackhole", "ip/borrowed", "ip/host-in-use"} {
		if found := findings(state, check); len(found) > 0 {
			t.Errorf("after the cure there is still: %s", found[0].Message)
		}
	}
	for _, addr := range l.Borrowed() {
		if !reached(t, l, addr) {
			t.Errorf("after the cure, packets to %s are lost", addr)
		}
		if verdict, err := l.Nodes[Owner].Verdict(ctx, addr); err != nil || verdict != "unicast" {
			t.Errorf("after the cure, the owner's kernel says %q to %s (%v)", verdict, addr, err)
		}
	}
}

// curing makes the network follow the datastore and audits it with all nodes' host views.
func curing(t *testing.T, d *Datastore, l *Lab) *state.State {
	t.Helper()
	plan, err := d.Read(t.Context(), l.Topology)
	must(t, err)
	must(t, l.Reconfigure(t.Context(), plan))
	snapshot := l.with()
	for _, node := range NodeNames {
		view, err := l.View(t.Context(), node)
		must(t, err)
		snapshot.Hosts.Views = append(snapshot.Hosts.Views, *view)
	}
	return state.New(snapshot, state.Options{})
}

// reached reports whether packets from the owner's pod reach an address.
func reached(t *testing.T, l *Lab, addr netip.Addr) bool {
	t.Helper()
	ok, err := l.Workloads[Owner].Ping(t.Context(), addr)
	must(t, err)
	return ok
}
