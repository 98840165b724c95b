package decode

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// Changes in whatever order give the same records, in the same order, as the objects
// that are left would give in one piece; and records handed out do not change.
func TestRecordsFollowChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	r := rand.New(rand.NewPCG(3, 4))
	store := NewStore(pods)
	truth := map[blocks.Key]blocks.Workload{}
	read := func() []blocks.Workload {
		var s blocks.Snapshot
		store.Fill(&s)
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
			store.Replace(objectsOf(pods, listed...))
		}
		handedOut := read()
		was := append([]blocks.Workload(nil), handedOut...)
		for range r.IntN(40) {
			i := r.IntN(400)
			w := blocks.Workload{Meta: blocks.Meta{Name: fmt.Sprint("pod-", i), UID: fmt.Sprint(round)}, Namespace: fmt.Sprint("ns-", i%3)}
			key := w.Key()
			if r.IntN(3) == 0 {
				delete(truth, key)
				store.Put(key, NewObjects(pods))
			} else {
				truth[key] = w
				store.Put(key, objectsOf(pods, w))
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
	for _, k := range Kinds {
		p := NewObjects(k)
		d := &Decoder{Out: p, Strings: &SharedStrings{}}
		r := NewJSONReader([]byte(`{"metadata": {"name": "default", "namespace": "ns"}, "spec": {"cidr": "10.0.0.0/24", "handleID": "h", "node": "n"}}`))
		r.Begin()
		k.JSON(d, r)
		c := NewStore(k)
		c.Put(blocks.Key{Namespace: "ns", Name: "default"}, p)
		out := NewSnapshot()
		c.Fill(out)
		diff(t, string(k.Resource), NewSnapshot(p), out)
		if p.Len() != 1 {
			t.Errorf("%s: %d records", k.Resource, p.Len())
		}
		if len(p.Gaps) > 0 {
			t.Errorf("%s: %v", k.Resource, p.Gaps)
		}
	}
}
