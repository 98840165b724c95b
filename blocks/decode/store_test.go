package decode

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// Changes in any order lead to the same sorted records as a fresh list of the remaining
// objects, and records in earlier snapshots do not change.
func TestRecordsFollowChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	r := rand.New(rand.NewPCG(3, 4))
	store := NewStore(pods)
	truth := map[blocks.Key]blocks.Workload{}
	read := func() []*blocks.Workload {
		var s blocks.Snapshot
		store.Fill(&s)
		return s.Workloads
	}
	all := func() []blocks.Workload {
		s := blocks.Snapshot{}
		for _, w := range truth {
			s.Workloads = append(s.Workloads, &w)
		}
		s.Sort()
		return valuesOf(s.Workloads)
	}
	for round := range 200 {
		if round%50 == 0 {
			clear(truth)
			var listed []blocks.Workload
			for i := range r.IntN(300) {
				w := blocks.Workload{Meta: blocks.Meta{Name: fmt.Sprint("pod-", i), Pin: blocks.PinOf("listed", "")}, Namespace: fmt.Sprint("ns-", i%3)}
				listed = append(listed, w)
				truth[w.Key()] = w
			}
			r.Shuffle(len(listed), func(i, j int) { listed[i], listed[j] = listed[j], listed[i] })
			store.Replace(objectsOf(pods, listed...))
		}
		handedOut := read()
		was := valuesOf(handedOut)
		for range r.IntN(40) {
			i := r.IntN(400)
			w := blocks.Workload{Meta: blocks.Meta{Name: fmt.Sprint("pod-", i), Pin: blocks.PinOf(fmt.Sprint(round), "")}, Namespace: fmt.Sprint("ns-", i%3)}
			key := w.Key()
			if r.IntN(3) == 0 {
				delete(truth, key)
				store.Put(key, NewObjects(pods))
			} else {
				truth[key] = w
				store.Put(key, objectsOf(pods, w))
			}
		}
		diff(t, "records", all(), valuesOf(read()))
		diff(t, "records handed out before", was, valuesOf(handedOut))
		if t.Failed() {
			return
		}
	}
}

func valuesOf(records []*blocks.Workload) (out []blocks.Workload) {
	for _, r := range records {
		out = append(out, *r)
	}
	return out
}

// A few changes of many pods allocate only a list of pointers, not new records.
func TestFewChangesCostLittle(t *testing.T) {
	const pods, turns = 20_000, 20
	named := func(i, turn int) blocks.Workload {
		return blocks.Workload{Meta: blocks.Meta{Name: fmt.Sprintf("pod-%05d", i), Pin: blocks.PinOf(fmt.Sprint(turn), "")}, Namespace: "shop"}
	}
	kind := KindOf(blocks.Pods)
	var listed []blocks.Workload
	for i := range pods {
		listed = append(listed, named(i, 0))
	}
	store := NewStore(kind)
	store.Replace(objectsOf(kind, listed...))
	var s blocks.Snapshot
	store.Fill(&s)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for turn := 1; turn <= turns; turn++ {
		for i := range 50 {
			w := named(i*turn, turn)
			store.Put(w.Key(), objectsOf(kind, w))
		}
		store.Fill(&s)
	}
	runtime.ReadMemStats(&after)
	perRecord := float64(after.TotalAlloc-before.TotalAlloc) / (turns * pods)
	size := float64(unsafe.Sizeof(listed[0]))
	if len(s.Workloads) != pods || s.Workloads[50].UID() == "0" || perRecord > size/8 {
		t.Errorf("%d pods, one of UID %q; %.1f bytes for each of them at a turn, of records of %.0f", len(s.Workloads), s.Workloads[50].UID(), perRecord, size)
	}
}

// The same for records that are not in key order.
func TestPlacedRecordsFollowChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	store := NewStore(ipamBlocks)
	truth := map[blocks.Key]blocks.Block{}
	for round := range 100 {
		for range r.IntN(20) {
			b := blocks.Block{Meta: blocks.Meta{Name: fmt.Sprint("block-", r.IntN(60)), Pin: blocks.PinOf(fmt.Sprint(round), "")}}
			b.CIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(40)), 0}), 26)
			if delete(truth, b.Key()); r.IntN(3) == 0 {
				store.Put(b.Key(), NewObjects(ipamBlocks))
				continue
			}
			truth[b.Key()] = b
			store.Put(b.Key(), objectsOf(ipamBlocks, b))
		}
		var got, want blocks.Snapshot
		store.Fill(&got)
		want.Blocks = slices.Collect(maps.Values(truth))
		want.Sort()
		diff(t, fmt.Sprint("records of round ", round), want.Blocks, got.Blocks)
	}
}

// Writes of pods and nodes that leave the record as it was do not count as changes:
// snapshots share the same record. All other writes are changes, including every write of a
// Calico object.
func TestWritesWithoutChange(t *testing.T) {
	const pod = `{"metadata": {"namespace": "shop", "name": "b", "uid": "u", "resourceVersion": "VERSION", "annotations": {"note": "VERSION", "cni.projectcalico.org/podIPs": "PODIPS"},
		"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}]}, "spec": {"nodeName": "n1"},
		"status": {"phase": "PHASE", "podIPs": [{"ip": "10.0.0.1"}], "startTime": "2031-01-01T00:00:00Z"}}`
	const node = `{"metadata": {"name": "n1", "uid": "u", "resourceVersion": "VERSION", "labels": {"zone": "ZONE"}, "managedFields": [{"manager": "kubelet", "time": "2031-01-01T00:0VERSION:00Z"}]},
		"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2031-01-01T00:0VERSION:00Z"}]}}`
	const handle = `{"metadata": {"name": "h", "uid": "u", "resourceVersion": "VERSION"}, "spec": {"handleID": "h", "block": {"10.0.0.0/26": 1}}}`
	for _, c := range []struct {
		what   string
		kind   *Kind
		object string
		change []string // arguments of strings.NewReplacer
		want   bool
	}{
		{"a pod's foreign annotation", pods, pod, nil, false},
		{"a pod's phase", pods, pod, []string{"PHASE", "Succeeded"}, true},
		{"a pod's unreadable address", pods, pod, []string{"PODIPS", "no address"}, true},
		{"a pod of another UID", pods, pod, []string{`"u"`, `"v"`}, true},
		{"a node's heartbeat", nodes, node, nil, false},
		{"a node's label", nodes, node, []string{"ZONE", "b"}, true},
		{"a handle's resourceVersion", handles, handle, nil, true},
	} {
		written := func(version string, change []string) *Objects {
			text := strings.NewReplacer(append(change, "VERSION", version, "PODIPS", "10.0.0.1/32", "PHASE", "Running", "ZONE", "a")...).Replace(c.object)
			return decodeOne(t, c.kind, text)
		}
		for _, listed := range []bool{true, false} {
			store, first := NewStore(c.kind), written("1", nil)
			key, _ := first.At(0)
			if listed {
				store.Replace(first)
			} else if !store.Put(key, first) {
				t.Errorf("%s: its creation is no change", c.what)
			}
			var before, after blocks.Snapshot
			store.Fill(&before)
			if got := store.Put(key, written("2", c.change)); got != c.want {
				t.Errorf("%s, of an object that was listed: %t: a change is %t, want %t", c.what, listed, got, c.want)
			}
			store.Fill(&after)
			if after.SameObjects(&before) == c.want {
				t.Errorf("%s: the objects are the same: %t", c.what, !c.want)
			}
			if !store.Put(key, NewObjects(c.kind)) {
				t.Errorf("%s: its end is no change", c.what)
			}
			if got := store.Put(key, NewObjects(c.kind)); got != (c.kind == handles) {
				t.Errorf("%s: a second end is a change: %t", c.what, got)
			}
			if !store.Put(key, first) {
				t.Errorf("%s: its coming back is no change", c.what)
			}
		}
	}
}

// Every kind has a store that keeps its decoded records.
func TestEveryKindHasRecords(t *testing.T) {
	for _, k := range Kinds {
		p := NewObjects(k)
		d := &Decoder{Out: p, Strings: &SharedStrings{}}
		r := parse.New([]byte(`{"metadata": {"name": "default", "namespace": "ns"}, "spec": {"cidr": "10.0.0.0/24", "range": "10.0.0.0/24", "handleID": "h", "node": "n"}}`))
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
