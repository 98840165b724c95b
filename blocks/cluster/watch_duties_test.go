package cluster

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

const namespacePath = "/api/v1/namespaces"

// watchesAtPace is watching with a changed pace.
func watchesAtPace(t *testing.T, cfg *rest.Config, change func(*pace)) *Watch {
	t.Helper()
	at := quickPace
	change(&at)
	w, _ := running(t, newWatch(t, cfg), at)
	return w
}

func hasNamespace(name string) func(*blocks.Snapshot) bool {
	return func(s *blocks.Snapshot) bool {
		return slices.ContainsFunc(s.Namespaces, func(n blocks.Namespace) bool { return n.Name == name })
	}
}

// swallow forwards a watch to the API server, and its events back until lost is set. From
// then on the connection stays open, whatever the server does.
func swallow(c *testcluster.Cluster, w http.ResponseWriter, r *http.Request, lost *atomic.Bool) {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, c.Config.Host+r.URL.RequestURI(), nil)
	if err != nil {
		return
	}
	req.Header.Set("Accept", r.Header.Get("Accept"))
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	w.(http.Flusher).Flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if lost.Load() {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(buf[:n])
		w.(http.Flusher).Flush()
		if err != nil {
			return
		}
	}
}

// A stream that loses events on a live connection is detected: its bookmarks do not reach
// the revision of a list.
func TestWatchStreamIsStuck(t *testing.T) {
	t.Parallel()
	c := cached(t)
	var lost atomic.Bool
	_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path != namespacePath || !r.URL.Query().Has("watch") {
			return false
		}
		swallow(c, w, r, &lost)
		return true
	})
	w := watchesAtPace(t, cfg, func(p *pace) { p.bookmarkTimeout = 4 * time.Second })
	becomesEqual(t, w, c.Config)
	eventually(t, w, "a bookmark has told", func(*blocks.Snapshot) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.active.kinds, func(k *reflector) bool { return k.kind.Resource == blocks.Namespaces && k.bookmarks })
	})
	lost.Store(true)
	createNamespace(t, c, "latecomer")
	eventually(t, w, "the namespace is listed", hasNamespace("latecomer"))
	if w.Restarts()[blocks.Namespaces] == 0 {
		t.Errorf("restarts %v", w.Restarts())
	}
}

// If the API server's cache of one kind is stuck, only that kind is stale. The server still
// answers for other kinds, so no connection is closed.
func TestWatchCacheIsStuck(t *testing.T) {
	t.Parallel()
	c := cached(t)
	var stuck atomic.Bool
	_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if !stuck.Load() || r.URL.Path != namespacePath || r.URL.Query().Has("watch") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":504,"reason":"Timeout",`+
			`"message":"Too large resource version: 9, current: 8","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}`)
		return true
	})
	w := watchesAtPace(t, cfg, func(p *pace) { p.streamLifetime = time.Minute })
	whole := becomesEqual(t, w, c.Config)
	stuck.Store(true)
	s := eventually(t, w, "the namespaces are a gap", func(s *blocks.Snapshot) bool { return len(s.Gaps) > 0 })
	if g := s.Gaps[0]; len(s.Gaps) > 1 || g.Resource != blocks.Namespaces || !g.Stale || !strings.Contains(g.Reason, "Too large resource version") {
		t.Errorf("gaps %v", gapTexts(s))
	}
	eventually(t, w, "the clock goes on for the rest", func(s *blocks.Snapshot) bool {
		return s.Cluster.TakenAt.After(whole.Cluster.TakenAt.Add(quickPace.stalenessTimeout))
	})
	createNamespace(t, c, "latecomer")
	eventually(t, w, "the stream of the namespaces is still open", hasNamespace("latecomer"))
	stuck.Store(false)
	becomesEqual(t, w, c.Config)
	if len(w.Restarts()) > 0 {
		t.Errorf("restarts %v", w.Restarts())
	}
}

// The same with a cache that is really stuck, because etcd's events of the kind are held
// back. The server answers late, from etcd instead, which proves nothing.
func TestWatchCacheIsReallyStuck(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{WatchCache: true})
	seeder, err := seeding.New(c)
	must(t, err)
	must(t, seeder.Init(t.Context()))
	etcd := beforeEtcd(t, c, "/namespaces")
	w := watchesAtPace(t, c.Config, func(p *pace) {
		p.streamLifetime, p.probeTimeout, p.stalenessTimeout = time.Minute, 10*time.Second, 6*time.Second
	})
	whole := becomesEqual(t, w, c.Config)
	etcd.pause()
	created := createNamespace(t, c, "unseen")
	neverKnows(t, w, "unseen", created, 8*time.Second)
	s := eventually(t, w, "the namespaces are a gap", func(s *blocks.Snapshot) bool { return len(s.Gaps) > 0 })
	if g := s.Gaps[0]; len(s.Gaps) > 1 || g.Resource != blocks.Namespaces || !g.Stale {
		t.Errorf("gaps %v", gapTexts(s))
	}
	eventually(t, w, "the clock goes on for the rest", func(s *blocks.Snapshot) bool {
		return s.Cluster.TakenAt.After(whole.Cluster.TakenAt.Add(8 * time.Second))
	})
	neverKnows(t, w, "unseen", created, 2*time.Second)
	etcd.release()
	eventually(t, w, "the namespace comes", hasNamespace("unseen"))
	becomesEqual(t, w, c.Config)
	if w.Restarts()[blocks.Namespaces] > 0 {
		t.Errorf("restarts %v", w.Restarts())
	}
}

// An API server whose flow control rejects nearly all requests of the watch (429) is alive:
// the streams continue on the same connection, and most kinds are stale.
func TestWatchIsThrottled(t *testing.T) {
	t.Parallel()
	c := cached(t)
	user, err := c.UserConfig("watcher")
	must(t, err)
	must(t, c.Allow(t.Context(), "watcher", auditorRules("list", "watch")...))
	r, cfg := through(t, user)
	spaced := &spacing{t: t, until: map[string]time.Time{}}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { spaced.RoundTripper = rt; return spaced })
	w := watchesAtPace(t, cfg, func(p *pace) { p.streamLifetime = time.Minute })
	becomesEqual(t, w, c.Config)
	conns := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.conns)
	}
	before := conns()

	flow := c.Kube.FlowcontrolV1()
	none := int32(0)
	_, err = flow.PriorityLevelConfigurations().Create(t.Context(), &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &none, LendablePercent: &none, BorrowingLimitPercent: &none,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	all := []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"}}}
	_, err = flow.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "none"}, MatchingPrecedence: 2,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "watcher"}}},
				ResourceRules: all,
			}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	var once sync.Once
	lift := func() {
		once.Do(func() {
			must(t, flow.FlowSchemas().Delete(t.Context(), "none", metav1.DeleteOptions{}))
			must(t, flow.PriorityLevelConfigurations().Delete(t.Context(), "none", metav1.DeleteOptions{}))
		})
	}
	defer lift()

	s := eventually(t, w, "most kinds are gaps", func(s *blocks.Snapshot) bool { return len(s.Gaps) > len(calicoAndCore)/2 })
	for _, g := range s.Gaps {
		if !g.Stale || !strings.Contains(g.Reason, "429 Too Many Requests") && !strings.Contains(g.Reason, "catching up") {
			t.Errorf("gap %v", g)
		}
	}
	createNamespace(t, c, "latecomer")
	eventually(t, w, "the streams go on", hasNamespace("latecomer"))
	time.Sleep(quickPace.reconnectAfter)
	if now := conns(); now != before {
		t.Errorf("%d connections, had %d", now, before)
	}
	lift()
	becomesEqual(t, w, c.Config)
	if len(w.Restarts()) > 0 {
		t.Errorf("restarts %v", w.Restarts())
	}
	if spaced.told.Load() < int32(len(calicoAndCore)) {
		t.Errorf("%d answers said when to come again", spaced.told.Load())
	}
}

// spacing fails a test if a request repeats before the server's Retry-After has passed.
type spacing struct {
	http.RoundTripper
	t     *testing.T
	told  atomic.Int32 // responses with Retry-After
	mu    sync.Mutex
	until map[string]time.Time // by path
}

func (s *spacing) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	if early := time.Until(s.until[r.URL.Path]); early > 0 {
		s.t.Errorf("%s was asked for again %v before its time", r.URL.Path, early)
	}
	s.mu.Unlock()
	resp, err := s.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests {
		return resp, err
	}
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || after < 1 {
		s.t.Errorf("%s: Retry-After is %q", r.URL.Path, resp.Header.Get("Retry-After"))
	}
	s.told.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[r.URL.Path] = time.Now().Add(time.Duration(after) * time.Second)
	return resp, nil
}

// A server that sends Retry-After (503, 429) is alive. Requests repeat when it asks for it,
// and the streams continue.
func TestWatchHeedsRetryAfter(t *testing.T) {
	t.Parallel()
	for _, body := range testenv.Sample(t, 1, []string{"", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":503}`}) {
		c := cached(t)
		var busy atomic.Bool
		var mu sync.Mutex
		asked := map[string][]time.Time{}
		_, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if !busy.Load() || r.URL.Query().Has("watch") || !r.URL.Query().Has("fieldSelector") {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			asked[r.URL.Path] = append(asked[r.URL.Path], time.Now())
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, body)
			return true
		})
		w := watchesAtPace(t, cfg, func(p *pace) { p.streamLifetime = time.Minute })
		becomesEqual(t, w, c.Config)
		busy.Store(true)
		eventually(t, w, "kinds are stale", func(s *blocks.Snapshot) bool {
			return len(s.Gaps) > len(calicoAndCore)/2 && strings.HasSuffix(s.Gaps[0].Reason, "503 Service Unavailable")
		})
		createNamespace(t, c, "latecomer")
		eventually(t, w, "the streams go on", hasNamespace("latecomer"))
		time.Sleep(quickPace.reconnectAfter)
		busy.Store(false)
		becomesEqual(t, w, c.Config)
		if len(w.Restarts()) > 0 {
			t.Errorf("restarts %v", w.Restarts())
		}
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != len(calicoAndCore) {
			t.Errorf("asked for %d kinds", len(asked))
		}
		for path, times := range asked {
			for i := 1; i < len(times); i++ {
				if waited := times[i].Sub(times[i-1]); waited < time.Second {
					t.Errorf("%s was asked for again after %v", path, waited)
				}
			}
		}
	}
}

// After an outage beyond all timeouts, watches resume where they ended, and no kind is
// listed again. CALICO_AUDIT_OUTAGE sets how long the outage lasts from then on.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	c := cached(t)
	var down atomic.Bool
	var lists atomic.Int32
	proxy, cfg := before(t, c, func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		if q := r.URL.Query(); q.Get("limit") == "7" && r.URL.Path != "/apis" {
			lists.Add(1)
		}
		return false
	})
	w, _ := watching(t, cfg)
	becomesEqual(t, w, c.Config)
	down.Store(true)
	proxy.CloseClientConnections()
	allGaps(t, w, calicoAndCore)
	must(t, c.Delete(t.Context(), testcluster.Core[1], "", "n1"))
	createNamespace(t, c, "latecomer")
	outage := quickPace.stalenessTimeout
	if text := os.Getenv("CALICO_AUDIT_OUTAGE"); text != "" {
		var err error
		outage, err = time.ParseDuration(text)
		must(t, err)
	}
	time.Sleep(outage)
	listed := lists.Load()
	down.Store(false)
	if s := becomesEqual(t, w, c.Config); len(s.Nodes) != 3 {
		t.Errorf("%d nodes", len(s.Nodes))
	}
	if again := lists.Load() - listed; again > 0 {
		t.Errorf("%d pages of lists were read again", again)
	}
}

// A watch that is refused when it reopens resumes where it ended once it is permitted
// again: no kind is listed, and the objects are kept. Rejected credentials say nothing
// about the objects, however long that lasts.
func TestWatchResumesAfterRefusal(t *testing.T) {
	t.Parallel()
	for _, code := range testenv.Sample(t, 1, []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}) {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			c := cached(t)
			user, err := c.UserConfig("watcher")
			must(t, err)
			all := auditorRules("list", "watch")
			must(t, c.Allow(t.Context(), "watcher", all...))
			var refuse atomic.Bool
			var lists atomic.Int32
			proxy, cfg := beforeUser(t, user, func(w http.ResponseWriter, r *http.Request, _ int) bool {
				switch {
				case r.URL.Path == namespacePath && r.URL.Query().Get("limit") == "7":
					lists.Add(1)
				case r.URL.Path == namespacePath && refuse.Load() && code != http.StatusForbidden:
					w.WriteHeader(code)
					return true
				}
				return false
			})
			w, _ := watching(t, cfg)
			whole := becomesEqual(t, w, c.Config)
			refuse.Store(true)
			if code == http.StatusForbidden {
				must(t, c.Allow(t.Context(), "watcher", append(auditorRules("list")[:1], all[1])...))
			}
			listed := lists.Load()
			proxy.CloseClientConnections()
			createNamespace(t, c, "latecomer")
			refusal := fmt.Sprintf("the API server answered %d %s", code, http.StatusText(code))
			if code == http.StatusForbidden {
				time.Sleep(quickPace.stalenessTimeout / 2) // later, it would be believed
			} else {
				eventually(t, w, "the namespaces are stale", func(s *blocks.Snapshot) bool {
					g, missing := s.Missing(blocks.Namespaces)
					return missing && g.Stale && strings.HasSuffix(g.Reason, refusal)
				})
				time.Sleep(quickPace.stalenessTimeout)
			}
			if s := w.Snapshot(); len(s.Namespaces) != len(whole.Namespaces) {
				t.Errorf("%d namespaces, had %d", len(s.Namespaces), len(whole.Namespaces))
			}
			must(t, c.Allow(t.Context(), "watcher", all...))
			refuse.Store(false)
			eventually(t, w, "the namespaces are current", hasNamespace("latecomer"))
			becomesEqual(t, w, c.Config)
			if again := lists.Load() - listed; again > 0 {
				t.Errorf("%d pages of lists were read again", again)
			}
		})
	}
}

// A revoked token (401) makes every kind stale, but none empty. With a valid token, the
// watch resumes where it ended.
func TestWatchOutlivesRevokedToken(t *testing.T) {
	t.Parallel()
	c := cached(t)
	accounts := c.Kube.CoreV1().ServiceAccounts("shop")
	var token atomic.Value
	issue := func() {
		t.Helper()
		_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "watcher"}}, metav1.CreateOptions{})
		must(t, err)
		r, err := accounts.CreateToken(t.Context(), "watcher", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		must(t, err)
		token.Store(r.Status.Token)
	}
	issue()
	must(t, c.Allow(t.Context(), "system:serviceaccount:shop:watcher", auditorRules("list", "watch")...))
	var lists atomic.Int32
	proxy, cfg := beforeUser(t, &rest.Config{Host: c.Config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData}}, func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Query().Get("limit") == "7" {
			lists.Add(1)
		}
		return false
	})
	// client-go rereads token files within a minute; the test applies new tokens
	// immediately.
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return answers(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+token.Load().(string))
			return rt.RoundTrip(r)
		})
	})
	w, _ := watching(t, cfg)
	whole := becomesEqual(t, w, c.Config)
	listed := lists.Load()

	must(t, accounts.Delete(t.Context(), "watcher", metav1.DeleteOptions{}))
	proxy.CloseClientConnections()
	refused := func(g blocks.Gap) bool {
		return g.Stale && strings.HasSuffix(g.Reason, ": the API server answered 401 Unauthorized: Unauthorized")
	}
	// The API server caches a token's validity for ten seconds. Within that time it accepts the
	// token: a watch that started then would continue.
	eventually(t, w, "the token is refused", func(s *blocks.Snapshot) bool { return slices.ContainsFunc(s.Gaps, refused) })
	proxy.CloseClientConnections()
	eventually(t, w, "all kinds are stale", func(s *blocks.Snapshot) bool {
		return len(s.Gaps) == len(calicoAndCore) && !slices.ContainsFunc(s.Gaps, func(g blocks.Gap) bool { return !refused(g) })
	})
	namespaces := len(w.Snapshot().Namespaces)
	createNamespace(t, c, "latecomer")
	time.Sleep(quickPace.stalenessTimeout)
	if s := w.Snapshot(); len(s.Gaps) != len(calicoAndCore) || namespaces < len(whole.Namespaces) || len(s.Namespaces) != namespaces || len(s.Blocks) != len(whole.Blocks) || len(s.Workloads) != len(whole.Workloads) {
		t.Errorf("%d namespaces, %d blocks and %d pods are left, gaps %v", len(s.Namespaces), len(s.Blocks), len(s.Workloads), gapTexts(s))
	}
	issue()
	eventually(t, w, "the namespaces are current", hasNamespace("latecomer"))
	becomesEqual(t, w, c.Config)
	if again := lists.Load() - listed; again > 0 {
		t.Errorf("%d pages of lists were read again", again)
	}
}

// If a kind becomes stale just after its watch ended, the gap names the obstacle to a new
// watch as soon as that is known.
func TestWatchSaysWhatKeepsItFromBeginningAgain(t *testing.T) {
	t.Parallel()
	c := cached(t)
	var hold atomic.Bool
	refuse, answer := make(chan struct{}), make(chan struct{})
	proxy, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path != namespacePath || !hold.Load() {
			return false
		}
		select {
		case <-refuse:
		case <-r.Context().Done():
		}
		select {
		case <-answer:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			panic(http.ErrAbortHandler)
		}
		return true
	})
	w := watchesAtPace(t, cfg, func(p *pace) { p.openTimeout = time.Minute })
	becomesEqual(t, w, c.Config)
	says := func(reason string) {
		t.Helper()
		eventually(t, w, "namespaces: "+reason, func(s *blocks.Snapshot) bool {
			g, missing := s.Missing(blocks.Namespaces)
			return missing && g.Stale && strings.HasSuffix(g.Reason, ": "+reason)
		})
	}
	hold.Store(true)
	proxy.CloseClientConnections()
	says("the API server ended the watch")
	close(refuse)
	says("EOF")
	close(answer)
	says("the API server answered 401 Unauthorized")
}

// A single refusal deletes no objects: they are kept, and are current again with the next
// response.
func TestWatchIsRefusedOnce(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			c := cached(t)
			var expire, refuse atomic.Bool
			proxy, cfg := before(t, c, func(w http.ResponseWriter, r *http.Request, _ int) bool {
				switch q := r.URL.Query(); {
				case r.URL.Path != namespacePath:
					return false
				case q.Has("watch") && expire.CompareAndSwap(true, false):
					expired(w)
				case q.Get("limit") == "7" && refuse.CompareAndSwap(true, false):
					w.WriteHeader(code)
				default:
					return false
				}
				return true
			})
			w, _ := watching(t, cfg)
			whole := becomesEqual(t, w, c.Config)
			expire.Store(true)
			refuse.Store(true)
			proxy.CloseClientConnections()
			eventually(t, w, "the list was refused, and the namespaces are current", func(s *blocks.Snapshot) bool {
				if len(s.Namespaces) != len(whole.Namespaces) {
					t.Fatalf("%d namespaces, had %d", len(s.Namespaces), len(whole.Namespaces))
				}
				if g, missing := s.Missing(blocks.Namespaces); missing && !g.Stale {
					t.Fatalf("gap %v", g)
				}
				return !refuse.Load() && len(s.Gaps) == 0 && s.Cluster.TakenAt.After(whole.Cluster.TakenAt.Add(2*time.Second))
			})
		})
	}
}
