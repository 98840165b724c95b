package remedies_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

const (
	leftNode    = "node n mine=10.0.0.0/29,a,new age="
	leftReserve = "reserve 10.0.0.0/29 mine=a,new age="
	leftClaim   = "affinity 10.0.0.0/29 new state=pending ours age="
	leftElse    = "pool pods 10.0.0.0/24 size=29\nnode a\nnode new\nblock 10.0.0.8/29 a deleted ours age=%\nhandle gone 10.0.0.8/29=1 deleted ours age=%\n"
)

// TestLeftovers: each run has one leftover. If the run is known to have ended, by the Lease (only
// for runs that move pods) or by its journal, the leftover is found at once. Otherwise it is found
// two minutes after the run's last write. The grace period does not matter.
func TestLeftovers(t *testing.T) {
	free, live := blocks.MoverLease{Known: true}, blocks.MoverLease{Known: true, Live: true}
	move := leftElse + leftReserve + "%\n" + leftNode + "%\n" + leftClaim + "%\n"
	const (
		moved = "10.0.0.0/29 from a for new: ipreservation/calico-audit-10-0-0-0-29 node/n blockaffinity/new-10.0.0.0/29"
		half  = "half-done steps: ipamblock/10-0-0-8-29 ipamhandle/gone"
	)
	both := []string{moved, half}
	known := blocks.KnownRun{Journal: "j.jsonl", Marks: []string{"10.0.0.0/29 from a for new"}, Objects: []blocks.Ref{{Resource: blocks.Blocks, Name: "10-0-0-8-29"}, {Resource: blocks.Handles, Name: "kept"}}}
	for name, c := range map[string]struct {
		text, age string
		lease     blocks.MoverLease
		runs      []blocks.KnownRun
		want      []string
	}{
		"long ago":                         {text: move, age: "3m", want: both},
		"just now":                         {text: move, age: "1m"},
		"just now, and no run has a Lease": {text: move, age: "1s", lease: free, want: []string{moved}},
		"long ago, and a run has a Lease":  {text: move, age: "3m", lease: live, want: []string{half}},
		"just now, by a journal":           {text: move, age: "1s", runs: []blocks.KnownRun{known}, want: []string{"j.jsonl: ipreservation/calico-audit-10-0-0-0-29 node/n ipamblock/10-0-0-8-29 blockaffinity/new-10.0.0.0/29"}},
		"a handle that was not lowered": {text: leftElse + "handle kept 10.0.0.8/29=1\n", age: "1s", runs: []blocks.KnownRun{known},
			want: []string{"j.jsonl: ipamblock/10-0-0-8-29 ipamhandle/kept"}},
		"written last by others": {text: strings.ReplaceAll(strings.ReplaceAll(leftElse, " ours", ""), "deleted", ""), age: "1h"},
	} {
		snap, err := statedsl.Parse(strings.ReplaceAll(c.text, "%", c.age))
		if err != nil {
			t.Fatal(err)
		}
		snap.Lease, snap.KnownRuns = c.lease, c.runs
		var got []string
		r := remedies.Of(state.New(snap, state.Options{}))
		for _, l := range r.Leftovers {
			got = append(got, l.Run+": "+strings.Join(l.Names(), " "))
			if root := r.Root(l.RootID()); root == nil || !root.Alone || root.Message(1) != l.Text() || len(root.Remedies()) != 2 {
				t.Errorf("%s: the root of %s is %+v", name, l.Run, root)
			}
			if over := !strings.Contains(l.Text(), "still runs"); over != l.Over {
				t.Errorf("%s: %s", name, l.Text())
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestLeftoverRemedies: a leftover has two remedies. One finishes the run, including the pods it
// moves; the other takes its writes back.
func TestLeftoverRemedies(t *testing.T) {
	left := strings.Replace(shortage, "node new", "node new cordoned age=2h mine=rehome", 1)
	for _, c := range []struct {
		text, finish, effect, risk, back string
		runs                             []blocks.KnownRun
	}{
		{strings.Replace(shortage, "node new", "node new cordoned age=2h mine=10.0.0.99/32,a,other", 1), "calico-audit repair --consolidate", "the reservation and", "none", "calico-audit repair undo", nil},
		{left, "calico-audit repair --rehome", "pods that borrow restart (1); then ", "pods restart", "calico-audit repair undo", nil},
		{left + "use 10.0.0.3 shop/keeps b of=ReplicaSet/web ready noevict\nuse 10.0.0.12 shop/alone new ready\n", "calico-audit repair --rehome", "pods that borrow restart (1); then ", "pods restart", "calico-audit repair undo", nil},
		{shortage + "reserve 10.0.0.24/29 mine=b,new age=2h\n", "calico-audit repair --consolidate --cordon-full", "10.0.0.24/29 moves from b to new", "pods restart", "calico-audit repair undo", nil},
		{shortage + "reserve 10.0.0.24/29 mine=b,new age=2h\n", "calico-audit repair apply --resume 'my j.jsonl'", "the steps", "as the run's plan says", "calico-audit repair undo 'my j.jsonl'",
			[]blocks.KnownRun{{Journal: "my j.jsonl", Marks: []string{"10.0.0.24/29 from b for new"}}}},
		{strings.ReplaceAll(leftElse, "%", "1h"), "calico-audit repair --soft-deleted", "the objects", "none", "calico-audit repair undo", nil},
		{"pool pods 10.0.0.0/24 size=29\nnode a\naffinity 10.0.0.8/29 a state=pendingDeletion ours age=1h\n", "calico-audit repair --orphan-affinities", "the objects", "none", "calico-audit repair undo", nil},
		{"pool pods 10.0.0.0/24 size=29\nnode a\nblock 10.0.0.8/29 a\nuse 10.0.0.9 x/y a\naffinity 10.0.0.8/29 a state=pending ours age=1h\n", "", "the whole block is routed", "none", "calico-audit repair undo", nil},
	} {
		snap, err := statedsl.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		snap.KnownRuns = c.runs
		r := remedies.Of(state.New(snap, state.Options{}))
		if len(r.Leftovers) != 1 {
			t.Errorf("%s: %d runs", c.finish, len(r.Leftovers))
			continue
		}
		rs := r.Root(r.Leftovers[0].RootID()).Remedies()
		if len(rs) != 2 || strings.Join(rs[0].Commands, "") != c.finish || !strings.HasPrefix(rs[0].Effect, c.effect) || !strings.HasPrefix(rs[0].Risk, c.risk) || !slices.Equal(rs[1].Commands, []string{c.back}) {
			t.Errorf("%s: got %+v", c.finish, rs)
		}
	}
}
