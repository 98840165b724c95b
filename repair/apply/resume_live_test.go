package apply_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// crash is the journal of a run that died in its first step, after the given changes: each an
// object and the change to it.
func (l *lab) crash(p *repair.Plan, changes ...repair.Change) *journal.Journal {
	l.t.Helper()
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	l.must(j.Start(p.Steps[0].ID))
	for _, c := range changes {
		l.must(j.Record(c))
	}
	return j
}

// patched is a change to an existing object.
func (l *lab) patched(verb string, r testcluster.Resource, name string) repair.Change {
	l.t.Helper()
	o, err := l.c.Get(l.t.Context(), r, "", name)
	l.must(err)
	raw, err := json.Marshal(o.Object)
	l.must(err)
	return repair.Change{Verb: verb, Resource: blocks.Resource(r.Resource), Name: name, Before: raw}
}

// resume applies a plan with the journal of a run that died.
func (l *lab) resume(p *repair.Plan, path string) *repair.Result {
	l.t.Helper()
	f, err := journal.Read(path)
	l.must(err)
	again, err := journal.Resume(path, p.CreatedAt)
	l.must(err)
	l.t.Cleanup(func() { _ = again.Close() })
	w := l.writer(again)
	r, err := apply.Run(l.t.Context(), p, l.reader, w, again, apply.Options{Resume: f, Sleep: l.passes})
	l.must(err)
	return r
}

// TestResume: after any write that a run died on, the next run completes the step, or reverts it if
// the cluster has changed.
func TestResume(t *testing.T) {
	const block, affinity, step = "10-7-0-48-28", "n1-10-7-0-48-28", "release-block:10.7.0.48/28"
	pendingDeletion := func(l *lab) repair.Change {
		c := l.patched(repair.VerbPatch, affinityCRD, affinity)
		l.edit(affinityCRD, affinity, func(spec map[string]any) { spec["state"] = "pendingDeletion" })
		c.After = l.patched(repair.VerbPatch, affinityCRD, affinity).Before
		return c
	}
	marked := func(l *lab) repair.Change {
		c := l.patched(repair.VerbPatch, blockCRD, block)
		l.edit(blockCRD, block, func(spec map[string]any) { spec["deleted"] = true })
		return c
	}
	deleted := func(l *lab) repair.Change {
		c := l.patched(repair.VerbDelete, blockCRD, block)
		l.must(l.c.Delete(l.t.Context(), blockCRD, "", block))
		return c
	}
	for name, c := range map[string]struct {
		did  []func(l *lab) repair.Change
		then func(l *lab)
		want string
		// state is the affinity's final state; "" if it is to be deleted.
		state string
	}{
		"before its first write was sent": {did: []func(*lab) repair.Change{func(l *lab) repair.Change {
			return l.patched(repair.VerbPatch, affinityCRD, affinity)
		}}, want: "done"},
		"after the affinity was marked":      {did: []func(*lab) repair.Change{pendingDeletion}, want: "done"},
		"after the block was marked deleted": {did: []func(*lab) repair.Change{pendingDeletion, marked}, want: "done"},
		"after the block was deleted":        {did: []func(*lab) repair.Change{pendingDeletion, marked, deleted}, want: "done"},
		"after the affinity was marked, and a pod came": {
			did: []func(*lab) repair.Change{pendingDeletion},
			then: func(l *lab) {
				// A manual allocation, which does not confirm the affinity.
				l.edit(blockCRD, block, func(spec map[string]any) {
					allocations := spec["allocations"].([]any)
					allocations[0] = int64(0)
					spec["unallocated"] = spec["unallocated"].([]any)[1:]
					spec["attributes"] = []any{map[string]any{"handle_id": "somebody", "secondary": map[string]any{"node": "n1"}}}
				})
			},
			want: "skipped Changed", state: "confirmed",
		},
		"after the block was deleted, and its node claimed it again": {
			did:  []func(*lab) repair.Change{pendingDeletion, marked, deleted},
			then: func(l *lab) { l.claim("n1", labBlock(3)) },
			want: "already", state: "confirmed",
		},
		"after the block was deleted, and another node claimed it": {
			did:  []func(*lab) repair.Change{pendingDeletion, marked, deleted},
			then: func(l *lab) { l.claim("n2", labBlock(3)) },
			want: "done",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.claim("n1", labBlock(3))
			l.age()
			p := l.plan(everything, step)
			var changes []repair.Change
			for _, do := range c.did {
				changes = append(changes, do(l))
			}
			j := l.crash(p, changes...)
			l.must(j.Close())
			if c.then != nil {
				c.then(l)
			}
			r := l.resume(p, j.Path())
			if got := became(r)[0]; !strings.HasPrefix(got, step+": "+c.want) {
				t.Errorf("it came to %q (%s), want %q", got, r.Outcomes[0].Reason, c.want)
			}
			var state any
			if a := l.spec(affinityCRD, affinity); a != nil {
				state = a["state"]
			}
			if c.state == "" && state != nil || c.state != "" && state != c.state {
				t.Errorf("the affinity's state is %v, want %q", state, c.state)
			}
		})
	}
}

// TestResumeConfirmsClaim: a run claimed a block to record an address in it, and died before its
// last write. It left the affinity pending, so the node would not find its own block. The next run
// confirms the affinity. So does an undo, which reverts nothing: the pod uses the address.
func TestResumeConfirmsClaim(t *testing.T) {
	const block, affinity = "10-7-0-16-28", "n2-10-7-0-16-28"
	for _, undo := range []bool{false, true} {
		l := newLab(t)
		l.age()
		for r, name := range map[testcluster.Resource]string{blockCRD: block, affinityCRD: affinity, handleCRD: seeding.Handle("default", "web-n2")} {
			l.must(l.c.Delete(t.Context(), r, "", name))
		}
		p := l.plan(repair.Request{UnrecordedIPs: true}, "record-ip:10.7.0.16")
		r := l.apply(t.Context(), p, apply.Options{Wait: true})
		l.wantOutcomes(r, "record-ip:10.7.0.16: done")

		text, err := os.ReadFile(r.Journal)
		l.must(err)
		last := bytes.LastIndex(text, []byte(`"resource":"blockaffinities"`))
		if last < 0 {
			t.Fatalf("the journal tells of no affinity:\n%s", text)
		}
		text = text[:last+bytes.IndexByte(text[last:], '\n')+1]
		path := filepath.Join(t.TempDir(), "journal.jsonl")
		l.must(os.WriteFile(path, text, 0o600))
		l.edit(affinityCRD, affinity, func(spec map[string]any) { spec["state"] = "pending" })

		if undo {
			r.Journal = path
			l.wantOutcomes(l.undo(r), "record-ip:10.7.0.16: done Finished")
		} else {
			l.wantOutcomes(l.resume(p, path), "record-ip:10.7.0.16: done")
		}
		if state := l.spec(affinityCRD, affinity)["state"]; state != "confirmed" {
			t.Errorf("undone %t: the affinity is %v", undo, state)
		}
		l.settled()
	}
}
