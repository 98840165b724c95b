package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// someCluster returns random nodes and pods as an API server returns them.
func someCluster(rnd *rand.Rand) (nodes, pods []string) {
	marshal := func(o map[string]any) string {
		text, _ := json.Marshal(o) // texts always marshal
		return string(text)
	}
	for i := range 3 {
		nodes = append(nodes, marshal(map[string]any{
			"metadata": map[string]any{"name": fmt.Sprintf("k%d", i), "labels": map[string]string{"zone": "k"}, "annotations": map[string]string{"projectcalico.org/IPv4Address": "192.0.2.9/24"}},
		}))
	}
	for i := range 6 {
		m := map[string]any{"namespace": "default", "name": fmt.Sprintf("p%d", i)}
		if rnd.IntN(3) == 0 {
			m["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		}
		pods = append(pods, marshal(map[string]any{
			"metadata": m, "spec": map[string]any{"nodeName": fmt.Sprintf("k%d", rnd.IntN(3))},
			"status": map[string]any{"phase": "Running", "podIPs": []any{map[string]any{"ip": fmt.Sprintf("10.0.0.%d", i)}}},
		}))
	}
	return nodes, pods
}

// change returns a random value of a random key; nil deletes the key.
func change(rnd *rand.Rand) (key string, value []byte) {
	n := rnd.IntN(3)
	host, ip := fmt.Sprintf("n%d", n), fmt.Sprintf("10.0.0.%d", rnd.IntN(8))
	workload := func(orchestrator, name string) (string, string) {
		of := `"pod":"` + name + `"`
		if orchestrator != "k8s" {
			of = `"workload":"` + name + `"`
		}
		interfaces := rnd.IntN(2)
		return fmt.Sprintf("%sworkloadendpoints/default/%s-%s-%s-eth%d", resourcePrefix, host, orchestrator, name, interfaces),
			fmt.Sprintf(`{"metadata":{"name":"x","namespace":"default"},"spec":{"orchestrator":%q,%s,"node":%q,"containerID":"c%d","ipNetworks":["%s/32"]}}`, orchestrator, of, host, rnd.IntN(2), ip)
	}
	var text string
	switch rnd.IntN(9) {
	case 0:
		key, text = ipamPrefix+"assignment/ipv4/block/10.0.0.0-29", fmt.Sprintf(`{"cidr":"10.0.0.0/29","affinity":"host:%s","allocations":[null,null,null,null,null,null,null,null],"unallocated":[0,1,2,3,4,5,6,7],"attributes":[],"sequenceNumber":%d}`, host, rnd.IntN(9))
	case 1:
		key, text = ipamPrefix+"host/"+host+"/ipv4/block/10.0.0.0-29", `{"state":"confirmed"}`
	case 2:
		key, text = ipamPrefix+"handle/net.C"+host, `{"block":{"10.0.0.0/29":1}}`
	case 3:
		key, text = ipamPrefix+"config", `{"strict_affinity":true}`
	case 4:
		key, text = resourcePrefix+"ippools/"+host, `{"metadata":{"name":"x"},"spec":{"cidr":"10.0.0.0/24","blockSize":29}}`
	case 5:
		refs := fmt.Sprintf(`[{"nodeName":"k%d","orchestrator":"k8s"}]`, n)
		switch rnd.IntN(5) {
		case 0:
			refs = "[]"
		case 1: // two nodes may name the same one
			refs = fmt.Sprintf(`[{"nodeName":"k%d","orchestrator":"k8s"},{"nodeName":"k%d","orchestrator":"k8s"}]`, rnd.IntN(3), rnd.IntN(3))
		}
		key, text = resourcePrefix+"nodes/"+host, fmt.Sprintf(`{"metadata":{"name":"x","labels":{"zone":"c","rack":"%d"}},"spec":{"orchRefs":%s,"bgp":{"ipv4Address":"192.0.2.%d/24","ipv4IPIPTunnelAddr":"10.0.0.%d"}}}`, rnd.IntN(2), refs, n, n)
	case 6:
		key, text = workload("openstack", "vm")
	case 7:
		key, text = resourcePrefix+"hostendpoints/h"+host, fmt.Sprintf(`{"metadata":{"name":"x"},"spec":{"node":%q,"expectedIPs":[%q]}}`, host, ip)
	default:
		key, text = workload("k8s", fmt.Sprintf("p%d", rnd.IntN(6)))
	}
	switch rnd.IntN(12) {
	case 0, 1:
		return key, nil
	case 2:
		return key, []byte(`{"spec":`)
	case 3:
		return key, []byte(strings.ReplaceAll(text, "10.0.0", "ten.0"))
	}
	return key, []byte(text)
}

// TestEventsAreAReading: after any events, a watch holds the same as a reading that begins at that
// time, with and without Kubernetes.
func TestEventsAreAReading(t *testing.T) {
	same := []cmp.Option{cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateEmpty()}
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		stored := map[string]*mvccpb.KeyValue{}
		whole := func() *Reading {
			var kvs []*mvccpb.KeyValue
			for _, key := range slices.Sorted(maps.Keys(stored)) {
				kvs = append(kvs, stored[key])
			}
			return reading(t, kvs...)
		}
		revision := int64(1)
		next := func() *clientv3.Event {
			key, value := change(rnd)
			revision++
			kv := &mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: revision, ModRevision: revision}
			if value == nil {
				delete(stored, key)
				return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: kv}
			}
			stored[key] = kv
			return &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv}
		}
		for range rnd.IntN(20) {
			next()
		}
		joined, alone := hold(whole(), false), hold(whole(), true)
		nodes, pods := someCluster(rnd)
		raw := kubernetes(t, nil, nodes, pods)
		for range 12 {
			for range rnd.IntN(5) {
				e := next()
				joined.take(e)
				alone.take(e)
			}
			if rnd.IntN(4) == 0 {
				nodes, pods = someCluster(rnd)
				raw = kubernetes(t, nil, nodes, pods)
			}
			r := whole()
			want, fails := r.Join(kubernetes(t, r, nodes, pods), all)
			got, err := joined.onto(raw, all)
			if diff := cmp.Diff(want, got, same...); diff != "" || (fails == nil) != (err == nil) {
				t.Fatalf("seed %d, with Kubernetes: %v, want %v; -want +got:\n%s", seed, err, fails, diff)
			}
			if diff := cmp.Diff(whole().Alone(), alone.snapshot(), same...); diff != "" {
				t.Fatalf("seed %d, alone (-want +got):\n%s", seed, diff)
			}
		}
	}
}

// TestDeliveries: events take effect once all ranges have delivered theirs. A read proves that the
// objects are current once all ranges have reached its revision. A real etcd delivers too quickly
// to show the states in between.
func TestDeliveries(t *testing.T) {
	w := NewWatch(&Client{}, true, slog.New(slog.DiscardHandler))
	r := reading(t)
	r.Revision = 3
	w.held = hold(r, true)
	deliveries, proofs, confirm := make(chan delivery), make(chan proof), make(chan struct{}, 1)
	ended := make(chan error)
	go func() {
		ended <- w.deliver(t.Context(), []int64{r.Revision, r.Revision}, deliveries, proofs, nil, confirm)
	}()
	event := func(of int, revision int64, key, value string) {
		kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: revision, ModRevision: revision}
		deliveries <- delivery{of: of, answer: clientv3.WatchResponse{Header: pb.ResponseHeader{Revision: revision}, Events: []*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kv}}}}
	}
	reach := func(of int, revision int64) {
		deliveries <- delivery{of: of, answer: clientv3.WatchResponse{Header: pb.ResponseHeader{Revision: revision}}}
	}
	check := func(when string, handles int, current bool) {
		t.Helper()
		proofs <- proof{revision: 1000} // once it is applied, so are all earlier events
		w.mu.Lock()
		defer w.mu.Unlock()
		if n, is := len(w.held.snapshot().Handles), !w.current.IsZero(); n != handles || is != current {
			t.Errorf("%s: %d handles, current: %v", when, n, is)
		}
	}
	event(0, 3, ipamPrefix+"handle/read", `{"block":{}}`) // the reading includes everything up to 3
	event(0, 5, ipamPrefix+"handle/a", `{"block":{}}`)
	reach(0, 5)
	check("one range has not delivered its events", 0, false)
	event(1, 5, ipamPrefix+"handle/b", `{"block":{}}`)
	event(1, 7, ipamPrefix+"handle/c", `{"block":{}}`)
	reach(1, 6)
	check("all have delivered those of revision 5", 2, false)
	proofs <- proof{revision: 6, sent: time.Now()}
	reach(0, 5)
	check("a read of revision 6, and one range at 5", 2, false)
	reach(0, 6)
	check("all are at revision 6", 2, true)
	deliveries <- delivery{of: 1, answer: clientv3.WatchResponse{CompactRevision: 9, Canceled: true}}
	if err := <-ended; err == nil {
		t.Error("it goes on after a compaction")
	}
}

// TestNeverConfirmed: everything is read again if etcd answers reads but confirms no delivery.
// After a pause, as in an outage, the watches first get time to resume.
func TestNeverConfirmed(t *testing.T) {
	w := NewWatch(&Client{}, true, slog.New(slog.DiscardHandler))
	w.pace = pace{probe: 10 * time.Millisecond, gather: time.Millisecond, staleness: 100 * time.Millisecond}
	w.held = hold(reading(t), true)
	proofs, ended := make(chan proof), make(chan error)
	go func() {
		ended <- w.deliver(t.Context(), []int64{0}, make(chan delivery), proofs, nil, make(chan struct{}, 1))
	}()
	proofs <- proof{revision: 1}
	time.Sleep(2 * w.pace.staleness)
	proofs <- proof{revision: 1}
	for began := time.Now(); ; time.Sleep(w.pace.probe) {
		select {
		case proofs <- proof{revision: 1}:
		case err := <-ended:
			if !errors.Is(err, errStuck) || time.Since(began) < w.pace.staleness/2 {
				t.Errorf("it ended after %s: %v", time.Since(began), err)
			}
			return
		}
	}
}

// TestTimeOfJoined: a joined snapshot is as old as the older of its two parts.
func TestTimeOfJoined(t *testing.T) {
	w := NewWatch(&Client{}, false, slog.New(slog.DiscardHandler))
	w.held = hold(reading(t), false)
	raw := kubernetes(t, nil, nil, nil)
	now := time.Now()
	raw.Cluster.TakenAt, w.current = now, now
	for _, c := range []struct{ ahead, want time.Duration }{{-5 * time.Second, -5 * time.Second}, {5 * time.Second, 0}} {
		s, err := w.Joined(raw, func(at time.Time) time.Time { return at.Add(c.ahead) })
		if err != nil || !s.Cluster.TakenAt.Equal(now.Add(c.want)) || len(s.Gaps) > 0 {
			t.Errorf("etcd %s ahead: taken %s ahead, %v, gaps %v", c.ahead, s.Cluster.TakenAt.Sub(now), err, s.Gaps)
		}
	}
}
