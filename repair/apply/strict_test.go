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
	const room = "config\npool pods 10.0.0.0/29 size=30\nnode n1\nblock 10.0.0.0/30 n1\naffinity 10.0.0.0/30 n1\n"
	for name, c := range map[string]struct{ planned, now, want string }{
		"nothing changes":                       {text, text, "done"},
		"a node has joined":                     {text, text + "node n2\npod shop/y n2 phase=Pending\n", "skipped Changed"},
		"a node has joined, with a block left":  {room, room + "node n2\n", "done"},
		"two nodes may want the last block":     {room, room + "node n2\nnode n3\n", "skipped Changed"},
		"one of the three that may starve left": {room + "node n2\nnode n3\nnode n4\n", room + "node n2\nnode n3\n", "done"},
	} {
		f := &fakeCluster{s: parseState(t, c.planned).Snapshot, now: statedsl.Clock}
		f.s.Cluster.GUID = "g"
		p := f.plan(t, repair.Request{StrictAffinity: &on})
		j := newTestJournal(t)
		f.journal, f.whole = j, 0
		r, err := Run(t.Context(), p, &hurried{f}, f, j, Options{Progress: func(o repair.Outcome) {
			if o.Status == "" {
				f.s = parseState(t, c.now).Snapshot
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
