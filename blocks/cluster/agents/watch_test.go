package agents

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
)

// TestViewOfTheFuture: a view from a node whose clock is ahead is rejected. A view from
// before the API server's clock was set back is replaced by the next.
func TestViewOfTheFuture(t *testing.T) {
	var takenAt time.Time
	var machine string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"apiVersion":"calico-audit/v1alpha1","kind":"HostView","node":"n1","takenAt":%q,"bootID":%q,"routes":[],"namespaces":[]}`, takenAt.UTC().Format(time.RFC3339), machine)
	}))
	defer server.Close()
	s := &blocks.Snapshot{Nodes: []blocks.Node{{Meta: blocks.Meta{Name: "n1"}, Ready: true}}}
	serverTime := time.Now()
	watch, err := cluster.NewWatch(&rest.Config{Host: "http://unused.invalid"}, cluster.WatchOptions{Now: func() time.Time { return serverTime }})
	must(t, err)
	w := NewWatch(watch, WatchOptions{
		Options: Options{Timeout: time.Minute, TLS: trustingTestServers(t)},
		Reader:  func(s *blocks.Snapshot) Reader { return hostviews.OfAgent(s, hostviews.Options{}) },
	})
	w.views.nodes = s.Nodes
	a := &askedAgent{agent: agent{node: "n1", namespace: "kube-system", pod: "agent", ip: "127.0.0.1", port: server.Listener.Addr().(*net.TCPAddr).Port}}
	w.views.agents["n1"] = a
	ask := func(taken time.Duration, from, wantFrom, wantTrouble string) {
		t.Helper()
		takenAt, machine = serverTime.Add(taken), from
		w.ask(t.Context(), a, w.newRound(s), nil)
		hosts, counts, got, gaps := w.assemble(nil), w.Counts(), "", ""
		for _, v := range hosts.Views {
			got += strings.TrimSuffix(v.Machine, "/") // the boot ID, without the inode of a network namespace
		}
		for _, g := range hosts.Gaps {
			gaps += g.String()
		}
		if got != wantFrom || counts.Views != min(1, len(wantFrom)) || counts.Views+counts.Missing != 1 {
			t.Errorf("the view that counts is from %q, want %q; counts %+v", got, wantFrom, counts)
		}
		if !strings.Contains(gaps, wantTrouble) || wantTrouble == "" && gaps != "" {
			t.Errorf("gaps %q, want %q", gaps, wantTrouble)
		}
	}
	const ahead = "its host view is 1h0m0s in the future: the node's clock is ahead of the API server's"
	ask(time.Hour, "boot-1", "", ahead)
	ask(30*time.Second, "boot-2", "boot-2", "")
	ask(time.Hour, "boot-3", "boot-2", ahead)
	ask(40*time.Second, "boot-4", "boot-4", "")
	ask(20*time.Second, "boot-3", "boot-4", "") // a late answer is older than the last
	serverTime = serverTime.Add(-time.Hour)
	if counts := w.Counts(); counts.Views != 0 || counts.Missing != 1 {
		t.Errorf("a view that is an hour ahead counts as fresh: %+v", counts)
	}
	ask(0, "boot-5", "boot-5", "")
}

// TestViewOfWatchedWithoutTLS: without TLS, the API server passes the query on, and nothing proves
// that a watched agent answered.
func TestViewOfWatchedWithoutTLS(t *testing.T) {
	for _, secure := range []bool{true, false} {
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"apiVersion":"calico-audit/v1alpha1","kind":"HostView","node":"n1","takenAt":%q,"bootID":"b","routes":[],"namespaces":[]}`, time.Now().UTC().Format(time.RFC3339))
		})
		start, opts := httptest.NewServer, Options{Timeout: time.Minute}
		if secure {
			start, opts.TLS = httptest.NewTLSServer, trustingTestServers(t)
		}
		server := start(answer)
		defer server.Close()
		watch, err := cluster.NewWatch(&rest.Config{Host: server.URL}, cluster.WatchOptions{})
		must(t, err)
		w := NewWatch(watch, WatchOptions{Options: opts, Reader: func(s *blocks.Snapshot) Reader { return hostviews.OfAgent(s, hostviews.Options{}) }})
		a := &askedAgent{agent: agent{node: "n1", namespace: "kube-system", pod: "agent", ip: "127.0.0.1", port: server.Listener.Addr().(*net.TCPAddr).Port}}
		w.ask(t.Context(), a, w.newRound(&blocks.Snapshot{Nodes: []blocks.Node{{Meta: blocks.Meta{Name: "n1"}, Ready: true}}}), nil)
		if a.view == nil || a.view.Authenticated != secure {
			t.Errorf("over TLS %t: view %+v, %s", secure, a.view, a.trouble)
		}
	}
}

// TestFirstListOfAgentsFails: if the first list fails, agents are not reported as missing.
func TestFirstListOfAgentsFails(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
	}))
	defer server.Close()
	watch, err := cluster.NewWatch(&rest.Config{Host: server.URL}, cluster.WatchOptions{})
	must(t, err)
	w := NewWatch(watch, WatchOptions{Options: Options{Selector: DefaultSelector}})
	w.list(t.Context(), &blocks.Snapshot{Nodes: []blocks.Node{{Meta: blocks.Meta{Name: "n1"}, Ready: true}}})
	want := []blocks.HostGap{{Reason: "the agents could not be found: forbidden: needs the right to list pods"}}
	if !slices.Equal(w.views.gaps, want) {
		t.Errorf("gaps: %v", w.views.gaps)
	}
}
