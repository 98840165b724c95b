package lab

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// restoreCase is a network in which a block that lends addresses loses its affinity and gets it back.
type restoreCase struct {
	topology Topology
	// nameless removes the borrowers' nodes from the allocations.
	nameless bool
	// before and after are the owner kernel's routing decisions without and with the affinity.
	before, after string
}

func restoreCases() []restoreCase {
	named := func(name string) Topology {
		return Topologies[slices.IndexFunc(Topologies, func(t Topology) bool { return t.Name == name })]
	}
	return []restoreCase{
		{Topologies[0], false, "unicast", "blackhole"},
		{named("node-to-node mesh"), false, "unicast", "unicast"},
		{named("node-to-node mesh, pools with `disableBGPExport`"), false, "unicast", "blackhole"},
		{vxlanTopology, false, "unicast", "unicast"},
		{vxlanTopology, true, "blackhole", "blackhole"},
	}
}

// TestRestoredAffinities measures what the repair restore-affinity does to borrowed addresses. The
// rule that forbids it must hold wherever packets arrive before and are lost after.
func TestRestoredAffinities(t *testing.T) {
	d := store(t)
	cases := restoreCases()
	table := Table{Name: "restored affinities", Rows: make([][]string, len(cases)), Heads: []string{
		"How nodes learn routes", "Owner's kernel, without the affinity", "From a pod of the owner", "Owner's kernel, with the affinity", "From a pod of the owner", "Restored",
	}}
	var mu sync.Mutex
	t.Run("affinity", func(t *testing.T) {
		for i, c := range cases {
			name := c.topology.Name
			if c.nameless {
				name += "; the allocations name no node"
			}
			t.Run(name, func(t *testing.T) {
				without, with := d.restored(t, c.topology)
				if c.nameless {
					forgetUsers(without.Snapshot)
					forgetUsers(with.Snapshot)
				}
				t.Parallel()
				l, err := Start(t, without)
				must(t, err)
				before, err := l.Measure(t.Context())
				must(t, err)
				st := l.aged()
				must(t, l.Reconfigure(t.Context(), with))
				after, err := l.Measure(t.Context())
				must(t, err)
				var row []string
				for i := range before {
					b, a := before[i], after[i]
					if b.Kernel != c.before || a.Kernel != c.after {
						t.Errorf("%s: the owner's kernel says %q without the affinity and %q with it, not %q and %q", b.Addr, b.Kernel, a.Kernel, c.before, c.after)
					}
					if want := map[string]affinity.RouteOutcome{"unicast": affinity.Dropped, "blackhole": affinity.Delivered}[b.Kernel]; b.Predicted.Outcome == want {
						t.Errorf("%s: predicted is %s without the affinity (%s), the kernel says %q", b.Addr, want, b.Predicted.Reason, b.Kernel)
					}
					borrow, err := borrowOf(st, b.Addr)
					must(t, err)
					bar := st.RestoreAffinityBar(borrow.Block)
					worse := b.FromPod && !a.FromPod || b.FromOwner && !a.FromOwner || b.FromRouter && !a.FromRouter || b.FromThird && !a.FromThird
					if worse && bar.Code != state.RetainInUse {
						t.Errorf("%s: packets arrive before and are lost after, and nothing forbids it: %q", b.Addr, bar.Reason)
					}
					restored := "yes"
					if bar.Code != "" {
						restored = "no"
					}
					row = merge(row, []string{name, b.Kernel, arrives(b.FromPod), a.Kernel, arrives(a.FromPod), restored})
				}
				mu.Lock()
				defer mu.Unlock()
				table.Rows[i] = row
			})
		}
	})
	document(t, table, true)
}

// restored plans a topology without and with the affinity of the block that lends.
func (d *Datastore) restored(t *testing.T, topology Topology) (without, with *Plan) {
	t.Helper()
	ctx := t.Context()
	with, err := d.Plan(ctx, topology)
	must(t, err)
	var lending []netip.Prefix
	for _, addr := range with.Pods[Borrower] {
		for _, b := range with.Snapshot.Blocks {
			if b.CIDR.Contains(addr) {
				lending = append(lending, b.CIDR)
				must(t, d.Seeder.DeleteAffinity(ctx, Owner, b.CIDR))
			}
		}
	}
	without, err = d.Read(ctx, topology)
	must(t, err)
	for _, cidr := range lending {
		must(t, d.Seeder.Affinity(ctx, Owner, cidr, string(blocks.Confirmed)))
	}
	return without, with
}

// forgetUsers removes the nodes of pods that borrow from their allocations.
func forgetUsers(s *blocks.Snapshot) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Attributes = slices.Clone(b.Attributes)
		for j := range b.Attributes {
			if a := &b.Attributes[j]; a.Node != b.Owner.Node() && a.Pod != "" {
				a.Node = ""
			}
		}
	}
}

// aged returns the lab's state with almost no grace: nothing is too young for a repair.
func (l *Lab) aged() *state.State {
	s := l.with()
	s.Cluster.TakenAt = time.Now()
	return state.New(s, state.Options{Grace: time.Nanosecond})
}
