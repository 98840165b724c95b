package apply

import (
	"context"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// hurried is a cluster that returns unchanged objects when they are read one by one. Other objects
// are seen only in a complete reading.
type hurried struct{ *fakeCluster }

func (h *hurried) Refresh(_ context.Context, prev *blocks.Snapshot, _ []blocks.Ref) (*blocks.Snapshot, error) {
	s := *prev
	s.Cluster.TakenAt, s.IPAM = h.now, h.s.IPAM
	return &s, nil
}

// TestStrictAffinityReadsAll: the nodes that the setting would starve depend on the whole cluster,
// which is read right before the write; an older reading, as other steps allow, is not enough.
func TestStrictAffinityReadsAll(t *testing.T) {
	const text = "version v3.31.0\nconfig\npool pods 10.0.0.0/28 size=28\nnode n1\npod shop/x n1 10.0.0.1\nblock 10.0.0.0/28 n1\naffinity 10.0.0.0/28 n1\n"
	on := true
	for name, c := range map[string]struct{ joins, want string }{
		"nothing changes":   {"", "done"},
		"a node has joined": {"node n2\npod shop/y n2 phase=Pending\n", "skipped Changed"},
	} {
		f := &fakeCluster{s: parseState(t, text).Snapshot, now: statedsl.Clock}
		f.s.Cluster.GUID = "g"
		p := f.plan(t, repair.Request{StrictAffinity: &on})
		j := newTestJournal(t)
		f.journal, f.whole = j, 0
		r, err := Run(t.Context(), p, &hurried{f}, f, j, Options{Progress: func(o repair.Outcome) {
			if o.Status == "" {
				f.s = parseState(t, text+c.joins).Snapshot
				f.s.Cluster.GUID = "g"
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := outcomes(r); got[0] != c.want || f.whole != 2 {
			t.Errorf("%s: it came to %v, having read everything %d times: %s", name, got, f.whole, r.Outcomes[0].Reason)
		}
	}
}
