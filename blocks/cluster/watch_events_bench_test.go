package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// BenchmarkWatchEvents handles events of a watch: changes of 1,000 blocks of 64 addresses,
// one after the other.
func BenchmarkWatchEvents(b *testing.B) {
	object := func(i, version int) string {
		attrs, slots := "", ""
		for a := range 64 {
			if a > 0 {
				attrs, slots = attrs+",", slots+","
			}
			attrs += fmt.Sprintf(`{"handle_id":"k8s-pod-network.%064d","secondary":{"node":"n%d","pod":"p%d","namespace":"shop","timestamp":"2026-01-01 00:00:00 +0000 UTC"}}`, i*64+a, i, a)
			slots += fmt.Sprint(a)
		}
		return fmt.Sprintf(`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMBlock","metadata":{"name":"10-%d-%d-0-26","uid":"u%d","resourceVersion":"%d"},`+
			`"spec":{"cidr":"10.%d.%d.0/26","affinity":"host:n%d","allocations":[%s],"attributes":[%s],"unallocated":[],"deleted":false}}`,
			i/256, i%256, i, version, i/256, i%256, i, slots, attrs)
	}
	const n = 1000
	events := make([]string, n)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	start := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !r.URL.Query().Has("watch") {
			_, _ = fmt.Fprint(w, `{"kind":"IPAMBlockList","metadata":{"resourceVersion":"10"},"items":[]}`)
			return
		}
		w.(http.Flusher).Flush()
		<-start
		for i := range b.N {
			_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", events[i%n])
		}
		_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", object(n, 1<<40))
		w.(http.Flusher).Flush()
		<-ctx.Done()
	}))
	defer server.Close()
	for i := range events {
		events[i] = object(i, 11+i)
	}
	w, err := NewWatch(&rest.Config{Host: server.URL}, WatchOptions{})
	check(b, err)
	s := &session{w: w, served: &served{group: decode.GroupCRD, plurals: map[string]map[string]bool{decode.GroupCRD: nil}}, began: time.Now()}
	k := &reflector{w: w, s: s, kind: decode.KindOf(blocks.Blocks), store: decode.NewStore(decode.KindOf(blocks.Blocks)), wake: make(chan struct{}, 1)}
	s.kinds, w.active = append(s.kinds, k), s
	ended := make(chan struct{})
	go func() { defer close(ended); k.run(ctx) }()
	time.Sleep(300 * time.Millisecond)
	b.ReportAllocs()
	b.SetBytes(int64(len(events[0])))
	b.ResetTimer()
	close(start)
	for {
		w.mu.Lock()
		done := k.revision == fmt.Sprint(1<<40)
		w.mu.Unlock()
		if done {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	b.StopTimer()
	cancel()
	server.CloseClientConnections()
	<-ended
}
