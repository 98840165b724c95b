package source

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// Changes in whatever order give the same records, in the same order, as the objects
// that are left would give in one piece; and records handed out do not change.
func TestRecordsFollowChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	store := newStore(pods)
	truth := map[blocks.Key]blocks.Workload{}
	read := func() []blocks.Workload {
		var s blocks.Snapshot
		store.fill(&s)
		return s.Workloads
	}
	all := func() []blocks.Workload {
		s := blocks.Snapshot{}
		for _, w := range truth {
			s.Workloads = append(s.Workloads, w)
		}
		s.Sort()
		return s.Workloads
	}
	for round := range 200 {
		if round%50 == 0 {
			clear(truth)
			var listed []blocks.Workload
			for i := range r.IntN(300) {
				w := blocks.Workload{Meta: blocks.Meta{Name: fmt.Sprint("pod-", i), UID: "listed"}, Namespace: fmt.Sprint("ns-", i%3)}
				listed = append(listed, w)
				truth[w.Key()] = w
			}
			r.Shuffle(len(listed), func(i, j int) { listed[i], listed[j] = listed[j], listed[i] })
			store.replace(objectsOf(pods, listed...))
		}
		handedOut := read()
		was := append([]blocks.Workload(nil), handedOut...)
		for range r.IntN(40) {
			i := r.IntN(400)
			w := blocks.Workload{Meta: blocks.Meta{Name: fmt.Sprint("pod-", i), UID: fmt.Sprint(round)}, Namespace: fmt.Sprint("ns-", i%3)}
			key := w.Key()
			if r.IntN(3) == 0 {
				delete(truth, key)
				store.put(key, newObjects(pods))
			} else {
				truth[key] = w
				store.put(key, objectsOf(pods, w))
			}
		}
		diff(t, "records", all(), read())
		diff(t, "records handed out before", was, handedOut)
		if t.Failed() {
			return
		}
	}
}

// Every kind has a store that keeps what its decoder makes.
func TestEveryKindHasRecords(t *testing.T) {
	for _, k := range kinds {
		p := newObjects(k)
		d := &decoder{out: p, strings: &sharedStrings{}}
		r := newJSONReader([]byte(`{"metadata": {"name": "default", "namespace": "ns"}, "spec": {"cidr": "10.0.0.0/24", "handleID": "h", "node": "n"}}`))
		r.begin()
		k.json(d, r)
		c := newStore(k)
		c.put(blocks.Key{Namespace: "ns", Name: "default"}, p)
		out := newSnapshot()
		c.fill(out)
		diff(t, string(k.resource), newSnapshot(p), out)
		if p.len() != 1 {
			t.Errorf("%s: %d records", k.resource, p.len())
		}
		if len(p.gaps) > 0 {
			t.Errorf("%s: %v", k.resource, p.gaps)
		}
	}
}
