package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// halfCluster is an in-memory cluster on which a run has died.
type halfCluster struct{ *fakeCluster }

func (h halfCluster) FinishDelete(_ context.Context, o repair.ObjectRef) error {
	return h.write(o.Resource, o.Name, func() {
		dropBlock(h.s, o.Name)
		dropAffinity(h.s, o.Name)
	})
}

// undoFake undoes a journal's writes on an in-memory cluster.
func undoFake(t *testing.T, world string, f *journal.File, tweaks ...func(*fakeCluster)) (*repair.Result, []string, error) {
	t.Helper()
	snap, err := statedsl.Parse(world)
	if err != nil {
		t.Fatal(err)
	}
	f.Cluster.GUID = snap.Cluster.GUID
	j, err := journal.Create(filepath.Join(t.TempDir(), "undo.jsonl"), journal.Header{Undoes: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	cluster := &fakeCluster{s: snap, now: statedsl.Clock, journal: j}
	for _, tweak := range tweaks {
		if tweak != nil {
			tweak(cluster)
		}
	}
	sleep := func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	res, err := Undo(t.Context(), f, cluster, halfCluster{cluster}, j, Options{Sleep: sleep})
	return res, cluster.wrote, err
}

// TestUndoFinishes: a run that died after it deleted a block left an affinity in pendingDeletion,
// or a marked block. Undo finishes the deletion, write by write, and reports it. A second undo
// finds nothing to do.
func TestUndoFinishes(t *testing.T) {
	specs := map[blocks.Resource]string{
		blocks.Affinities: `{"cidr":"10.0.3.0/26","node":"n2","state":"confirmed"}`, blocks.Blocks: `{"cidr":"10.0.3.0/26","affinity":"host:n2"}`,
	}
	step := repair.Step{ID: "x", Kind: repair.ReleaseBlock, Target: state.Subject{Kind: state.KindBlock, CIDR: "10.0.3.0/26"},
		Guards: guards(repair.GuardUID, "uid-10-0-3-0-26", repair.GuardOwner, "host:n2", repair.GuardAffinity, undoAffinity, repair.GuardAffinityUID, "uid-"+undoAffinity)}
	for world, wrote := range map[string][]string{
		undoLeft:   {undoAffinity},
		undoMarked: {undoAffinity},
		undoLeft + "block 10.0.3.0/26 n2 deleted": {"10-0-3-0-26", undoAffinity},
		undoWorld: nil,
	} {
		t.Run(world[len(undoWorld):], func(t *testing.T) {
			res, did, err := undoFake(t, world, told(t, step, specs, leftPatch+blockDelete))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wrote, did); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			want := "done Finished"
			if wrote == nil {
				want = "not-needed"
			}
			if got := outcomes(res); !slices.Equal(got, []string{want}) || res.Left() {
				t.Errorf("%v (%s), want %s", got, res.Outcomes[0].Reason, want)
			}
		})
	}
}

// TestUndoLocked: while the datastore is locked, neither an undo nor its preview starts, whatever
// the journal contains.
func TestUndoLocked(t *testing.T) {
	f := told(t, repair.Step{ID: "x", Kind: repair.ReleaseBlock}, nil, leftPatch+blockDelete)
	if _, wrote, err := undoFake(t, undoLeft+"locked", f); !errors.Is(err, ErrLocked) || len(wrote) > 0 {
		t.Errorf("undo: %v, written %v", err, wrote)
	}
	snap, err := statedsl.Parse(undoLeft + "locked")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := PreviewUndo(t.Context(), f, &fakeCluster{s: snap, now: statedsl.Clock}); !errors.Is(err, ErrLocked) {
		t.Errorf("preview: %+v, %v", res, err)
	}
}

// TestUndoStrict: a setting is restored only if a plan would write it and no node that gets
// addresses now would starve.
func TestUndoStrict(t *testing.T) {
	const full = "pool pods 10.0.0.0/25 size=26\nnode n1\nnode n2\nnode n3\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\nblock 10.0.0.64/26 n2\naffinity 10.0.0.64/26 n2\n" +
		"use 10.0.0.1 a/b n1\nuse 10.0.0.65 a/c n2\nuse 10.0.0.2 a/d n3\n"
	for name, c := range map[string]struct {
		was   bool
		world string
		want  string
	}{
		"off again":                        {false, full + "config strict", "planned"},
		"off again by somebody":            {false, full + "config", "already"},
		"off again, with Windows":          {false, full + "node w1 windows\nconfig strict", "skipped Rejected"},
		"off again, without blocks":        {false, full + "config strict noauto", "skipped Rejected"},
		"on again":                         {true, undoWorld + "config", "planned"},
		"on again, and a node has nothing": {true, full + "config", "skipped Harm"},
		"on again, with a contest":         {true, "pool pods 10.0.0.0/26 size=27\nnode n1\nnode n2\nnode n3\nblock 10.0.0.0/27 n1\naffinity 10.0.0.0/27 n1\nuse 10.0.0.1 a/b n1\nconfig", "skipped Harm"},
		"on again, and it is gone":         {true, undoWorld, "skipped Changed"},
		"on again, locked":                 {true, undoWorld + "config\nlocked", "skipped DatastoreLocked"},
	} {
		t.Run(name, func(t *testing.T) {
			f := told(t, repair.Step{ID: "x", Kind: repair.SetStrictAffinity, Target: state.ConfigSubject()}, nil, "start patch|ipamconfigurations|default end|done")
			ch := f.Entries[1].Change
			ch.Before = json.RawMessage(fmt.Sprintf(`{"spec":{"strictAffinity":%t}}`, c.was))
			ch.After = json.RawMessage(fmt.Sprintf(`{"spec":{"strictAffinity":%t}}`, !c.was))
			ch.Resource = blocks.IPAMConfigs
			o := undoOf(t, c.world, f).Action().Outcome()
			got := string(o.Status)
			if o.Code != "" {
				got += " " + string(o.Code)
			}
			if got != c.want {
				t.Errorf("%s (%s), want %s", got, o.Reason, c.want)
			}
		})
	}
}

// TestUnfinished: a step in which its run died or failed is unfinished until a later run completes
// it. A step without a sent write is not unfinished.
func TestUnfinished(t *testing.T) {
	for words, want := range map[string]bool{
		"": false, "start": false, leftPatch: true, leftPatch + "end|done": false, leftPatch + "end|skipped|Changed": false,
		leftPatch + "end|failed": true, leftPatch + "end|failed resume end|not-tried|Interrupted": true,
		leftPatch + "end|failed resume start end|done": false, leftPatch + "resume end|already": false,
	} {
		f := told(t, repair.Step{ID: "x"}, nil, words)
		if got := f.Log("x").Unfinished; got != want || (len(f.Unfinished()) > 0) != want {
			t.Errorf("after %q: unfinished %v, want %v", words, got, want)
		}
	}
	for words, want := range map[string]bool{"": true, "start": true, leftPatch + "end|done": false, leftPatch + "end|failed": true, "end|skipped|Changed": false} {
		if got := told(t, repair.Step{ID: "x"}, nil, words).BrokeOff(); got != want {
			t.Errorf("after %q: broke off %v, want %v", words, got, want)
		}
	}
}

// TestFinishedBy: the command that started a step finishes it, and another command does not.
func TestFinishedBy(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		kind repair.Kind
		req  repair.Request
		want bool
	}{
		"the same kind":            {repair.ReleaseBlock, repair.Request{EmptyBlocks: true}, true},
		"its node":                 {repair.ReleaseBlock, repair.Request{EmptyBlocks: true, Nodes: []string{"n2"}}, true},
		"another node":             {repair.ReleaseBlock, repair.Request{EmptyBlocks: true, Nodes: []string{"n1"}}, false},
		"its address, of a handle": {repair.DeleteHandle, repair.Request{LeakedHandles: true, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}, true},
		"another address":          {repair.DeleteHandle, repair.Request{LeakedHandles: true, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.8")}}, false},
		"another pool":             {repair.ReleaseBlock, repair.Request{EmptyBlocks: true, Pools: []string{"other"}}, false},
		"another kind":             {repair.ReleaseBlock, repair.Request{LeakedIPs: true}, false},
		"the same setting":         {repair.SetStrictAffinity, repair.Request{StrictAffinity: &yes}, true},
		"the other setting":        {repair.SetStrictAffinity, repair.Request{StrictAffinity: &no}, false},
		"no setting":               {repair.SetStrictAffinity, repair.Request{EmptyBlocks: true}, false},
	} {
		step := repair.Step{ID: "x", Kind: c.kind, Nodes: []string{"n2"}, Pools: []string{"pods"}, Guards: guards("strictAffinity.wanted", "true")}
		f := told(t, step, nil, leftPatch)
		f.Plan.Request = repair.Request{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}
		if got := f.FinishedBy(c.req); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFinishTakesConsentsAgain: a step that an earlier command started with a consent, but had not
// written yet, needs the consent again from the command that finishes it.
func TestFinishTakesConsentsAgain(t *testing.T) {
	for _, again := range []bool{false, true} {
		snap, err := statedsl.Parse("pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\n" +
			"alloc 10.0.0.1 pod=shop/gone node=n1 handle=k8s-pod-network.a\nhandle k8s-pod-network.a 10.0.0.0/26=1\n")
		if err != nil {
			t.Fatal(err)
		}
		snap.Cluster.GUID, snap.Cluster.Datastore = "g", "kubernetes"
		f := &fakeCluster{s: snap, now: snap.Cluster.TakenAt}
		p := f.plan(t, repair.Request{LeakedIPs: true, WithoutHostEvidence: true})
		path := filepath.Join(t.TempDir(), "journal.jsonl")
		j, err := journal.Create(path, journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
		if err == nil {
			err = errors.Join(j.Start(p.Steps[0].ID), j.Record(repair.Change{Verb: repair.VerbPatch, Resource: blocks.Blocks, Name: "10-0-0-0-26", Before: json.RawMessage(`{}`)}), j.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := journal.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if j, err = journal.Resume(path, p.CreatedAt); err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		f.journal, f.now = j, f.now.Add(time.Hour)
		res, err := Finish(t.Context(), file, f, f, j, Options{Consents: &repair.Request{LeakedIPs: true, WithoutHostEvidence: again}})
		if err != nil {
			t.Fatal(err)
		}
		want := "skipped NoHostEvidence"
		if again {
			want = "failed" // the in-memory cluster releases nothing: the request is enough
		}
		if got := outcomes(res); !slices.Equal(got, []string{want}) {
			t.Errorf("consented again %t: %v, %s", again, got, res.Outcomes[0].Reason)
		}
	}
}
