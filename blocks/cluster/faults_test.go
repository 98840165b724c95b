package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// faulty is a proxy for a real API server. It injects faults that are hard to provoke:
// broken connections, expired tokens, silence.
type faulty struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

// before starts a proxy for a cluster. fault may answer a request itself, and then returns
// true. n counts the requests for the same path, from 1.
func before(t *testing.T, c *testcluster.Cluster, fault func(w http.ResponseWriter, r *http.Request, n int) bool) (*faulty, *rest.Config) {
	t.Helper()
	return beforeUser(t, c.Config, fault)
}

// beforeUser is before, for a user with limited rights.
func beforeUser(t *testing.T, user *rest.Config, fault func(w http.ResponseWriter, r *http.Request, n int) bool) (*faulty, *rest.Config) {
	t.Helper()
	transport, err := rest.TransportFor(user)
	must(t, err)
	target, err := url.Parse(user.Host)
	must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	f := &faulty{}
	counts := map[string]int{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests = append(f.requests, r)
		counts[r.URL.Path]++
		n := counts[r.URL.Path]
		f.mu.Unlock()
		if fault == nil || !fault(w, r, n) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Server.Close)
	return f, &rest.Config{Host: f.URL}
}

// cutOff sends the beginning of the API server's response, and breaks the connection.
func cutOff(t *testing.T, c *testcluster.Cluster, w http.ResponseWriter, r *http.Request, share int) {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		t.Error(err)
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, c.Config.Host+r.URL.RequestURI(), nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Accept", r.Header.Get("Accept"))
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
		return
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body[:len(body)*share/100])
	panic(http.ErrAbortHandler)
}

const (
	blockPath = "/apis/crd.projectcalico.org/v1/ipamblocks"
	podPath   = "/api/v1/pods"
)

func TestOnlyReads(t *testing.T) {
	c := cluster(t)
	proxy, cfg := before(t, c, nil)
	k := reader(t, cfg, KubernetesOptions{}, 5)
	s, err := k.Read(t.Context())
	must(t, err)
	_, err = k.Reread(t.Context(), s, blocks.Resources)
	must(t, err)
	paths := map[string]bool{"/apis": true, "/apis/" + decode.GroupCRD: true}
	for _, kind := range decode.Kinds {
		l := lister{kind: kind, group: decode.GroupCRD}
		paths[l.path()] = true
	}
	for _, r := range proxy.requests {
		if r.Method != http.MethodGet || !paths[r.URL.Path] || r.URL.Query().Has("watch") {
			t.Errorf("request %s %s", r.Method, r.URL)
		}
		if strings.HasPrefix(r.URL.Path, "/api/") && !strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") {
			t.Errorf("request %s accepts %s", r.URL, r.Header.Get("Accept"))
		}
	}
}

// A page that breaks once is retried, without any trace in the result.
func TestPageBreaksOnce(t *testing.T) {
	c := cluster(t)
	want := readLive(t, c.Config, KubernetesOptions{})
	_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, n int) bool {
		switch {
		case r.URL.Path == blockPath && n == 2, r.URL.Path == podPath && n == 3:
			cutOff(t, c, w, r, 70)
		case r.URL.Path == blockPath && n == 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case strings.HasSuffix(r.URL.Path, "ipamhandles") && n == 1:
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "nodes") && n == 1:
			_, _ = io.WriteString(w, "<html>please log in</html>")
		default:
			return false
		}
		return true
	})
	got := readLive(t, cfg, KubernetesOptions{}, 3)
	got.Cluster.TakenAt = want.Cluster.TakenAt
	diff(t, "snapshot", want, got)
}

// A page that always breaks is a gap of its kind only. Objects before the break are kept.
func TestPageBreaksAlways(t *testing.T) {
	c := cluster(t)
	want := readLive(t, c.Config, KubernetesOptions{})
	_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if (r.URL.Path == blockPath || r.URL.Path == podPath) && r.URL.Query().Has("continue") {
			cutOff(t, c, w, r, 60)
		}
		return false
	})
	s := readLive(t, cfg, KubernetesOptions{}, 2)
	for res, c := range map[blocks.Resource]struct{ got, most int }{
		blocks.Blocks: {len(s.Blocks), 3}, blocks.Pods: {len(s.Workloads), 3},
	} {
		g, missing := s.Missing(res)
		reason := "list broke off after " + strconv.Itoa(c.got) + " objects: unexpected EOF"
		if !missing || g.Reason != reason {
			t.Errorf("gap %+v, want %q", g, reason)
		}
		if c.got < 2 || c.got > c.most {
			t.Errorf("%d %s, want 2 of the first page, and what stood before the break", c.got, res)
		}
	}
	if len(s.Gaps) != 2 {
		t.Errorf("gaps %v", s.Gaps)
	}
	diff(t, "handles", want.Handles, s.Handles)
	partOf(t, want.Blocks, s.Blocks)
}

// wholeReader returns a reader whose page size is 3 instead of 1,000; longer lists are read
// whole.
func wholeReader(t *testing.T, cfg *rest.Config, opts KubernetesOptions) *Kubernetes {
	k := reader(t, cfg, opts)
	k.whole, k.pageSize = true, 3
	return k
}

// TestWholeList: a list longer than a page is read in one response if the server streams
// lists. The request has no resourceVersion, so the response cannot be stale. If it breaks
// off, the list is read in pages. The snapshot and the saved objects are the same either
// way.
func TestWholeList(t *testing.T) {
	c := cluster(t)
	want := readLive(t, c.Config, KubernetesOptions{})
	for name, breaks := range map[string]bool{"answered": false, "broken off": true} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			wholes, next := map[string]int{}, map[string]int{}
			_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
				q := r.URL.Query()
				if q.Has("resourceVersion") || q.Has("resourceVersionMatch") {
					t.Errorf("request %s", r.URL)
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case r.URL.Path != blockPath && r.URL.Path != podPath:
				case q.Has("continue"):
					next[r.URL.Path]++
				case !q.Has("limit"):
					if wholes[r.URL.Path]++; breaks {
						cutOff(t, c, w, r, 60)
					}
				}
				return false
			})
			record := recorder(t)
			got, err := wholeReader(t, cfg, KubernetesOptions{Record: record}).Read(t.Context())
			must(t, err)
			if wholes[blockPath] != 1 || wholes[podPath] != 1 {
				t.Errorf("whole lists: %v, want one of blocks and one of pods", wholes)
			}
			if paged := next[blockPath] > 0 && next[podPath] > 0; paged != breaks || !breaks && len(next) > 0 {
				t.Errorf("pages after the first: %v; want some: %t", next, breaks)
			}
			got.Cluster.TakenAt = want.Cluster.TakenAt
			diff(t, "snapshot", want, got)
			saved, _ := read(t, save(t, record, got))
			sameSnapshot(t, "saved", got, saved)
		})
	}
}

// TestWatchReadsWholeLists: a watch reads long lists the same way, and sees later changes.
func TestWatchReadsWholeLists(t *testing.T) {
	c := cluster(t)
	want := readLive(t, c.Config, KubernetesOptions{})
	for name, breaks := range map[string]bool{"answered": false, "broken off": true} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			wholes, next := 0, 0
			_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
				q := r.URL.Query()
				mu.Lock()
				defer mu.Unlock()
				switch {
				case r.URL.Path != blockPath || q.Has("watch") || q.Has("fieldSelector"):
				case q.Has("resourceVersion") || q.Has("resourceVersionMatch"):
					t.Errorf("request %s", r.URL)
				case q.Has("continue"):
					next++
				case !q.Has("limit"):
					if wholes++; breaks {
						cutOff(t, c, w, r, 60)
					}
				}
				return false
			})
			w, err := NewWatch(cfg, WatchOptions{})
			must(t, err)
			w.whole, w.pageSize = true, 3
			running(t, w, quickPace)
			got := becomesEqual(t, w, c.Config)
			diff(t, "blocks", want.Blocks, got.Blocks)
			mu.Lock()
			defer mu.Unlock()
			if wholes != 1 || (next > 0) != breaks {
				t.Errorf("%d whole lists, want one; %d pages after the first, want some: %t", wholes, next, breaks)
			}
		})
	}
}

// TestStreams: lists are read in pages if the server is older or its version unknown.
func TestStreams(t *testing.T) {
	c := cluster(t)
	for answer, want := range map[string]bool{
		`{"major": "1", "minor": "32"}`: false, `{"major": "1", "minor": "33+"}`: true, `{"major": "1", "minor": "36"}`: true, `{"major": "1"}`: false, "<html>": false,
	} {
		_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			switch {
			case r.URL.Path == "/version":
				_, _ = io.WriteString(w, answer)
			case !want && r.URL.Path == podPath && !r.URL.Query().Has("limit"):
				t.Errorf("%s: request %s", answer, r.URL)
			}
			return r.URL.Path == "/version"
		})
		k := wholeReader(t, cfg, KubernetesOptions{})
		_, err := k.Read(t.Context())
		must(t, err)
		if k.served.streams != want {
			t.Errorf("%s: lists are read whole: %t", answer, k.served.streams)
		}
	}
}

// partOf fails the test if some has a block that is not in all.
func partOf(t *testing.T, all, some []blocks.Block) {
	t.Helper()
	for _, b := range some {
		if !slices.ContainsFunc(all, func(a blocks.Block) bool { return cmp.Equal(a, b, equal) }) {
			t.Errorf("block %v is none of the cluster's", b.CIDR)
		}
	}
}

func expired(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
		"message": "The provided continue parameter is too old"}`)
}

// An expired continue token restarts the list; a second one reads the list in one page.
func TestContinueTokenExpires(t *testing.T) {
	c := cluster(t)
	want := readLive(t, c.Config, KubernetesOptions{})
	expire := func(times int) *rest.Config {
		left := map[string]int{blockPath: times, podPath: times}
		var mu sync.Mutex
		_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			mu.Lock()
			defer mu.Unlock()
			if !r.URL.Query().Has("continue") || left[r.URL.Path] == 0 {
				return false
			}
			left[r.URL.Path]--
			expired(w)
			return true
		})
		return cfg
	}
	for times := 1; times <= 2; times++ {
		got := readLive(t, expire(times), KubernetesOptions{}, 3)
		got.Cluster.TakenAt = want.Cluster.TakenAt
		diff(t, fmt.Sprintf("snapshot after %d expired tokens", times), want, got)
	}
}

// compacting is a proxy that compacts etcd before the first two requests for a next page of
// blocks, so that the API server rejects their continue tokens (410 Gone). The function
// returns the list requests since then.
func compacting(t *testing.T, c *testcluster.Cluster) (*rest.Config, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	expired := 0
	_, cfg := before(t, c, func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		q := r.URL.Query()
		if r.URL.Path != blockPath || q.Has("watch") || q.Has("fieldSelector") {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case q.Has("continue"):
			asked = append(asked, "next page")
		case q.Has("limit"):
			asked = append(asked, "first page")
		default:
			asked = append(asked, "all")
		}
		if q.Has("continue") && expired < 2 {
			expired++
			wrote, err := c.Etcd.Put(r.Context(), "/elsewhere", strconv.Itoa(expired)) // so that the token's revision is not the newest
			if err == nil {
				_, err = c.Etcd.Compact(r.Context(), wrote.Header.Revision)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return false
	})
	return cfg, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
}

// If two continue tokens in a row expire because of compaction, the list is read in one
// response, by readings and watches.
func TestContinueTokenCompacted(t *testing.T) {
	c := cluster(t) // a cache would still have the revision
	want := readLive(t, c.Config, KubernetesOptions{})
	twice := []string{"first page", "next page", "first page", "next page", "all"}

	cfg, asked := compacting(t, c)
	got := readLive(t, cfg, KubernetesOptions{}, 3)
	got.Cluster.TakenAt = want.Cluster.TakenAt
	diff(t, "snapshot", want, got)
	diff(t, "requests of a reading", twice, asked())

	cfg, asked = compacting(t, c)
	w, err := NewWatch(cfg, WatchOptions{})
	must(t, err)
	w.pageSize, w.whole = 3, false
	running(t, w, quickPace)
	becomesEqual(t, w, c.Config)
	diff(t, "requests of a watch", twice, asked())
}

// A server that falls silent without closing its connections is given up soon; a slow
// server gets its time.
func TestSilentServer(t *testing.T) {
	c := cluster(t)
	want := readLive(t, c.Config, KubernetesOptions{})
	ended := make(chan struct{})
	defer close(ended)
	var silent sync.Once
	dead := make(chan struct{})
	_, cfg := before(t, c, func(_ http.ResponseWriter, r *http.Request, n int) bool {
		if r.URL.Path == podPath && n == 2 {
			silent.Do(func() { close(dead) })
		}
		select {
		case <-dead:
			select {
			case <-ended:
			case <-r.Context().Done():
			}
			return true
		default:
			return false
		}
	})
	k := reader(t, cfg, KubernetesOptions{}, 4)
	k.client.wait.quiet, k.client.wait.probe = 200*time.Millisecond, 200*time.Millisecond
	start := time.Now()
	s, err := k.Read(t.Context())
	must(t, err)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	g, _ := s.Missing(blocks.Pods)
	if g.Reason != "list broke off after 4 objects: the API server does not answer" {
		t.Errorf("gap %+v", g)
	}

	// Slow: every list takes longer than the quiet limit, but the server answers probes.
	_, cfg = before(t, c, func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path == podPath || r.URL.Path == blockPath {
			time.Sleep(600 * time.Millisecond)
		}
		return false
	})
	k = reader(t, cfg, KubernetesOptions{})
	k.client.wait.quiet, k.client.wait.probe = 100*time.Millisecond, 2*time.Second
	s, err = k.Read(t.Context())
	must(t, err)
	s.Cluster.TakenAt = want.Cluster.TakenAt
	diff(t, "snapshot of a slow server", want, s)

	// Too slow: a gap of that kind only.
	_, cfg = before(t, c, func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path == blockPath {
			select {
			case <-ended:
			case <-r.Context().Done():
			}
			return true
		}
		return false
	})
	k = reader(t, cfg, KubernetesOptions{})
	k.client.wait.quiet, k.client.wait.probe, k.client.wait.answer = 100*time.Millisecond, 2*time.Second, time.Second
	s, err = k.Read(t.Context())
	must(t, err)
	diff(t, "gaps", []string{"ipamblocks: the API server did not answer in time: nothing came for 1s"}, gapTexts(s))
}

// With the default waits, a reading ends within 15 seconds of a server's death, whether or
// not the server closes its connections.
func TestWaitsAreShortEnough(t *testing.T) {
	w := defaultWaits
	var retries time.Duration
	for _, pause := range w.retry {
		retries += pause
	}
	if refused, silent := retries+w.probe, w.quiet+w.probe; refused >= 15*time.Second || silent >= 15*time.Second {
		t.Errorf("%v after refused connections, %v of silence", refused, silent)
	}
}

type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestServerClock(t *testing.T) {
	c := cluster(t)
	date := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	clock := func(send bool) *rest.Config {
		_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header()["Date"] = nil
			if r.URL.Path == "/apis" {
				if send {
					w.Header().Set("Date", date.Format(http.TimeFormat))
				}
				resp, err := c.Kube.Discovery().RESTClient().Get().AbsPath("/apis").DoRaw(r.Context())
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(resp)
				return true
			}
			return false
		})
		return cfg
	}
	if s := readLive(t, clock(true), KubernetesOptions{}); !s.Cluster.TakenAt.Equal(date) {
		t.Errorf("got %v, want the first Date header %v", s.Cluster.TakenAt, date)
	}
	// The proxied responses carry the API server's own Date. It takes precedence over the
	// local clock, even if it comes later than the first response.
	k := reader(t, clock(false), KubernetesOptions{})
	k.client.clock.now = func() time.Time { return date }
	s, err := k.Read(t.Context())
	must(t, err)
	if s.Cluster.TakenAt.Equal(date) {
		t.Errorf("got the local clock %v", s.Cluster.TakenAt)
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	for host, want := range map[string]string{
		"http://" + address: "reading the cluster at " + address + ": discovering API groups: dial tcp " + address + ": connect: connection refused",
	} {
		k, err := NewKubernetes(&rest.Config{Host: host}, KubernetesOptions{})
		must(t, err)
		start := time.Now()
		if _, err := k.Read(t.Context()); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	// A server that is not an API server.
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"hello": "world"}`)
	}))
	defer web.Close()
	_, err = reader(t, &rest.Config{Host: web.URL}, KubernetesOptions{}).Read(context.Background())
	if err == nil || !strings.Contains(err.Error(), "is it a Kubernetes API server?") {
		t.Errorf("got error %v", err)
	}
}
