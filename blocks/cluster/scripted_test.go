package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// scripted is an API server with scripted responses, for cases that a real one produces
// only after hours, or never. It records its requests.
type scripted struct {
	*httptest.Server
	asked chan string
}

// script starts a server that gives the answers in order. An answer is a status code and a
// body; after "hold" the connection stays open. After the last answer, the server is
// silent.
func script(t *testing.T, answers ...string) *scripted {
	t.Helper()
	s := &scripted{asked: make(chan string, 100)}
	next := make(chan string, len(answers))
	for _, a := range answers {
		next <- a
	}
	ctx, end := context.WithCancel(context.Background())
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		what := "list"
		if q.Has("watch") {
			what = "watch from " + q.Get("resourceVersion")
		} else if c := q.Get("continue"); c != "" {
			what = "list on from " + c
		}
		s.asked <- what
		select {
		case a := <-next:
			code, body, _ := strings.Cut(a, " ")
			body, held := strings.CutSuffix(body, " hold")
			w.Header().Set("Content-Type", "application/json")
			var n int
			_, _ = fmt.Sscan(code, &n)
			w.WriteHeader(n)
			_, _ = fmt.Fprint(w, body)
			if !held {
				return
			}
			w.(http.Flusher).Flush()
		default:
		}
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	}))
	t.Cleanup(func() { end(); s.Close() })
	return s
}

// expect fails the test unless these are the next requests.
func (s *scripted) expect(t *testing.T, want ...string) {
	t.Helper()
	for i, w := range want {
		select {
		case got := <-s.asked:
			if got != w {
				t.Fatalf("request %d: %s, want %s", i+1, got, w)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("request %d did not come, want %s", i+1, w)
		}
	}
}

// listing returns the answer to a list, at a resourceVersion.
func listing(version int, namespaces ...string) string {
	var items []string
	for _, n := range namespaces {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u","resourceVersion":"1"}}`, n))
	}
	return fmt.Sprintf(`200 {"kind":"NamespaceList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, version, strings.Join(items, ","))
}

const (
	expiredEvent = `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 10 (20)"}}`
	bookmark15   = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"15"}}}`
	added        = `{"type":"ADDED","object":{"metadata":{"name":"c","uid":"u","resourceVersion":"14"}}}`
	deleted      = `{"type":"DELETED","object":{"metadata":{"name":"b","uid":"u","resourceVersion":"14"}}}`
)

// TestExpiredWatch: if the server has forgotten the resourceVersion of a watch (410 Gone),
// the kind is listed again immediately, not after the staleness timeout, because no event
// reports the changes in between. A broken watch resumes where it ended.
func TestExpiredWatch(t *testing.T) {
	for name, c := range map[string]struct {
		answers []string
		asked   []string
		want    []string // the namespaces at the end
	}{
		"an ERROR event of 410": {
			[]string{listing(10, "a"), "200 " + expiredEvent + " hold", listing(20, "b"), "200  hold"},
			[]string{"list", "watch from 10", "list", "watch from 20"}, []string{"b"},
		},
		"an ERROR event of 410 after others": {
			[]string{listing(10, "a"), "200 " + added + bookmark15 + expiredEvent + " hold", listing(20, "b"), "200  hold"},
			[]string{"list", "watch from 10", "list", "watch from 20"}, []string{"b"},
		},
		"the answer 410 to a watch that is taken up": {
			[]string{listing(10, "a"), "200 " + added, `410 {"kind":"Status","code":410}`, listing(20, "b"), "200  hold"},
			[]string{"list", "watch from 10", "watch from 14", "list", "watch from 20"}, []string{"b"},
		},
		"the answer 410 to the first watch": {
			[]string{listing(10, "a"), `410 {"kind":"Status","code":410}`, listing(20, "b"), "200  hold"},
			[]string{"list", "watch from 10", "list", "watch from 20"}, []string{"b"},
		},
		"the answer that the resource version is none of this server's": {
			[]string{listing(10, "a"), "200 " + added, `422 {"kind":"Status","code":422}`, listing(20, "b"), "200  hold"},
			[]string{"list", "watch from 10", "watch from 14", "list", "watch from 20"}, []string{"b"},
		},
		"an answer that says nothing of the resource version": {
			[]string{listing(10, "a"), "200 " + added, `400 {"kind":"Status","code":400}`, `405 {"kind":"Status","code":405}`, `409 {"kind":"Status","code":409}`, "200  hold"},
			[]string{"list", "watch from 10", "watch from 14", "watch from 14", "watch from 14", "watch from 14"}, []string{"a", "c"},
		},
		"a stream that breaks after an event": {
			[]string{listing(10, "a", "b"), "200 " + added + deleted, "200  hold"},
			[]string{"list", "watch from 10", "watch from 14"}, []string{"a", "c"},
		},
		"a stream that breaks after a bookmark": {
			[]string{listing(10, "a"), "200 " + added + bookmark15, "200  hold"},
			[]string{"list", "watch from 10", "watch from 15"}, []string{"a", "c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t, c.answers...)
			w, err := NewWatch(&rest.Config{Host: s.URL}, WatchOptions{})
			must(t, err)
			w.pace.stalenessTimeout, w.pace.backoff, w.pace.maxBackoff = time.Hour, time.Millisecond, time.Millisecond
			ses := &session{w: w, served: &served{group: decode.GroupCRD}, began: time.Now()}
			k := &reflector{w: w, s: ses, kind: decode.KindOf(blocks.Namespaces), store: decode.NewStore(decode.KindOf(blocks.Namespaces)), wake: make(chan struct{}, 1)}
			ses.kinds, w.active = []*reflector{k}, ses
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); k.run(ctx) }()
			s.expect(t, c.asked...)
			eventually(t, w, fmt.Sprintf("the namespaces are %v", c.want), func(s *blocks.Snapshot) bool {
				return slices.EqualFunc(s.Namespaces, c.want, func(n blocks.Namespace, name string) bool { return n.Name == name })
			})
			cancel()
			<-ended
		})
	}
}

// TestStaleIsAGap: if the objects of a kind are not known to be current for longer than the
// staleness timeout, the kind is a gap. It stays a gap until it has caught up with the
// others. The snapshot's time follows the kinds that are current.
func TestStaleIsAGap(t *testing.T) {
	w, err := NewWatch(&rest.Config{Host: "http://unused.invalid"}, WatchOptions{})
	must(t, err)
	w.pace.stalenessTimeout = time.Minute
	ses := &session{w: w, served: &served{group: decode.GroupCRD}, began: time.Now()}
	w.active = ses
	began := time.Now()
	keeps := map[blocks.Resource]*reflector{}
	for _, r := range []blocks.Resource{blocks.Namespaces, blocks.Nodes, blocks.Pods} {
		keeps[r] = &reflector{w: w, s: ses, kind: decode.KindOf(r), store: decode.NewStore(decode.KindOf(r)), known: true, current: began}
		ses.kinds = append(ses.kinds, keeps[r])
	}
	age := func(r blocks.Resource, d time.Duration) { keeps[r].current = began.Add(-d) }
	wants := func(when string, taken time.Duration, gaps ...blocks.Resource) {
		t.Helper()
		s := w.Snapshot()
		if len(s.Gaps) != len(gaps) {
			t.Errorf("%s: gaps %v, want of %v", when, gapTexts(s), gaps)
		}
		for _, r := range gaps {
			if g, missing := s.Missing(r); !missing || !g.Stale {
				t.Errorf("%s: %s is no gap of what is stale: %v", when, r, g)
			}
		}
		if got := w.taken.Sub(began); got != taken {
			t.Errorf("%s: the snapshot is of %v, want %v", when, got, taken)
		}
	}
	age(blocks.Namespaces, 2*time.Minute)
	age(blocks.Nodes, 30*time.Second)
	wants("two minutes, and half a minute", -30*time.Second, blocks.Namespaces)
	age(blocks.Nodes, 0)
	wants("two minutes", 0, blocks.Namespaces)
	age(blocks.Namespaces, 10*time.Second)
	wants("back, and behind", 0, blocks.Namespaces)
	age(blocks.Namespaces, 0)
	wants("caught up", 0)
}

// TestStaleReasonIsTheLatest: the reason of a gap stays while the server's responses are
// alike, and follows a response with another status code. A broken connection does not
// replace it.
func TestStaleReasonIsTheLatest(t *testing.T) {
	k := &reflector{stalled: "not current since then"}
	answer := func(code int32) error { return &request.StatusError{Code: code} }
	for i, step := range []struct {
		trouble error
		want    string
	}{
		{errEnded, "the API server ended the watch"},
		{errSlow, errSlow.Error()},
		{answer(503), "the API server answered 503 Service Unavailable"},
		{errSlow, "the API server answered 503 Service Unavailable"},
		{answer(401), "the API server answered 401 Unauthorized"},
		{&request.StatusError{Code: 401, Message: "again"}, "the API server answered 401 Unauthorized"},
		{nil, "the API server answered 401 Unauthorized"},
	} {
		if k.trouble = step.trouble; k.staleness() != "not current since then: "+step.want {
			t.Errorf("step %d: %s, want %s", i, k.staleness(), step.want)
		}
	}
}

// TestEndOfStream: a stream ends as planned if the server ends it when its time is over. If the watch
// has ended it, the watch's reason counts, even if the server ends it at the same moment.
func TestEndOfStream(t *testing.T) {
	w, err := NewWatch(&rest.Config{Host: "http://unused.invalid"}, WatchOptions{})
	must(t, err)
	for name, c := range map[string]struct {
		cause, read, want error
		lasted            time.Duration
		relists           bool
	}{
		"in time":            {read: io.EOF, lasted: time.Hour},
		"early":              {read: io.EOF, lasted: time.Minute, want: errEnded},
		"cut off":            {read: io.ErrUnexpectedEOF, lasted: time.Hour, want: errEnded},
		"moved":              {cause: errMoved, read: io.EOF, lasted: time.Minute},
		"stale":              {cause: errRelist, read: context.Canceled, lasted: time.Hour, want: errRelist, relists: true},
		"stale, and in time": {cause: errRelist, read: io.EOF, lasted: time.Hour, want: errRelist, relists: true},
	} {
		k := &reflector{w: w, kind: decode.KindOf(blocks.Namespaces)}
		s := &stream{k: k, began: time.Now().Add(-c.lasted), life: time.Hour}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		if c.cause != nil {
			s.cancel(c.cause)
		}
		if what, _, _ := s.end(c.read); !errors.Is(k.trouble, c.want) || (what == watch.Error) != c.relists {
			t.Errorf("%s: it ends with %s and %v", name, what, k.trouble)
		}
	}
}

// TestBookmarksThatStandStill: a quiet kind is listed again if its bookmarks no longer reach the
// revisions of lists, as when its stream is held up. If they never reached them in time, the kind
// is not listed again: the datastore may not report its progress at all.
func TestBookmarksThatStandStill(t *testing.T) {
	for _, report := range []bool{false, true} {
		w, err := NewWatch(&rest.Config{Host: "http://unused.invalid"}, WatchOptions{})
		must(t, err)
		var stopped error
		now := time.Now()
		at := func(ago time.Duration) time.Time { return now.Add(-ago) }
		k := &reflector{w: w, revision: "10", opened: at(time.Hour), stop: func(err error) { stopped = err }}
		probed := func(list string, ago time.Duration) {
			k.prove(&probe{k: k, before: k.revision, list: list, sent: at(ago)}, true)
		}
		bookmark := func(revision string) {
			k.pending.Add(1)
			must(t, k.Bookmark(revision))
		}
		probed("20", time.Minute)
		if bookmark("10"); report {
			bookmark("25")
		}
		probed("30", 50*time.Second)
		k.unmetAt = at(10 * time.Minute)
		if probed("40", 0); errors.Is(stopped, errRelist) != report {
			t.Errorf("bookmarks report progress: %t; the watch ended with %v", report, stopped)
		}
	}
}

// TestListIsWholeOrAGap: an incomplete list keeps its objects, and the kind is a gap, for
// any reason.
func TestListIsWholeOrAGap(t *testing.T) {
	first := `200 {"kind":"NamespaceList","metadata":{"resourceVersion":"10","continue":"x"},"items":[{"metadata":{"name":"a"}}]}`
	for name, c := range map[string]struct {
		answers []string
		names   int
		gap     string // part of its reason; empty for no gap
	}{
		"whole":                       {[]string{first, listing(10, "b")}, 2, ""},
		"empty":                       {[]string{listing(10)}, 0, ""},
		"not served":                  {[]string{`404 {"kind":"Status","code":404}`}, 0, "not served"},
		"forbidden":                   {[]string{`403 {"kind":"Status","code":403}`}, 0, "forbidden: needs the right to list namespaces"},
		"the second page fails":       {[]string{first, `403 {"kind":"Status","code":403}`}, 1, "list broke off after 1 objects"},
		"the same page for ever":      {[]string{first, first}, 2, "same continue token"},
		"no token for the rest":       {[]string{`200 {"kind":"NamespaceList","metadata":{"remainingItemCount":2},"items":[{"metadata":{"name":"a"}}]}`}, 1, "2 objects remain"},
		"expired once":                {[]string{first, `410 {"kind":"Status","code":410}`, listing(20, "b")}, 1, ""},
		"expired twice":               {[]string{first, `410 {"kind":"Status","code":410}`, first, `410 {"kind":"Status","code":410}`, listing(20, "a", "b")}, 2, ""},
		"expired again and again":     {[]string{first, `410 {"kind":"Status","code":410}`, first, `410 {"kind":"Status","code":410}`, first, `410 {"kind":"Status","code":410}`}, 1, "list broke off after 1 objects"},
		"forbidden, without a code":   {[]string{`403 {"kind":"Status","apiVersion":"v1","status":"Failure"}`}, 0, "forbidden: needs the right to list namespaces"},
		"no list but a proxy's page":  {[]string{`200 {"status":"ok"}`}, 0, "not a list"},
		"a page that is cut off":      {[]string{`200 {"kind":"NamespaceList","metadata":{},"items":[{"metadata":{"name":"a"}}`}, 1, "list broke off after 1 objects"},
		"a list of one broken object": {[]string{`200 {"kind":"NamespaceList","metadata":{},"items":[{"metadata":{"name":`}, 0, "not a list"},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t, c.answers...)
			client, err := newAPIClient(&rest.Config{Host: s.URL}, nil)
			must(t, err)
			client.wait.retry, client.wait.probe = nil, 10*time.Millisecond
			l := &lister{client: client, kind: decode.KindOf(blocks.Namespaces), group: decode.GroupCRD, pageSize: 1, strings: &decode.SharedStrings{}}
			must(t, l.run(t.Context()))
			if len(decode.NewSnapshot(l.out).Namespaces) != c.names {
				t.Errorf("%d namespaces, want %d", len(decode.NewSnapshot(l.out).Namespaces), c.names)
			}
			switch {
			case c.gap == "" && len(l.out.Gaps) > 0, c.gap != "" && (len(l.out.Gaps) != 1 || !l.out.Gaps[0].Whole()):
				t.Errorf("gaps %v", l.out.Gaps)
			case c.gap != "" && !strings.Contains(l.out.Gaps[0].Reason, c.gap):
				t.Errorf("the gap is %q, want %q", l.out.Gaps[0].Reason, c.gap)
			}
		})
	}
}
