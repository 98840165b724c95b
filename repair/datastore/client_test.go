package datastore_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/planner"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answering returns a writer whose requests are answered by a function or, if that
// returns nil, by memory.
func (s *small) answering(answer func(r *http.Request) *http.Response) *datastore.Writer {
	s.t.Helper()
	return s.failing(func(r *http.Request) (*http.Response, error) { return answer(r), nil })
}

// failing is answering with a function that may also return an error instead of an
// answer.
func (s *small) failing(answer func(r *http.Request) (*http.Response, error)) *datastore.Writer {
	s.t.Helper()
	cfg := &rest.Config{Host: "http://memory.invalid"}
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if resp, err := answer(r); resp != nil || err != nil {
				return resp, err
			}
			return s.RoundTrip(r)
		})
	})
	k, err := datastore.New(cfg, string(s.group), datastore.Options{})
	must(s.t, err)
	return k.Impatient()
}

// endless is a very long body. If breaks is set, the connection breaks after that many
// bytes.
type endless struct{ read, breaks int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.breaks > 0 && e.read > e.breaks {
		return 0, errors.New("connection reset")
	}
	if e.read > 64<<20 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func (e *endless) Close() error { return nil }

// TestRefusedByTheAnswersCode checks that a 403 response to a write proves that it was
// not carried out, with any body. The write is not retried, and only the necessary part
// of the body is read.
func TestRefusedByTheAnswersCode(t *testing.T) {
	text := func(s string) func() io.ReadCloser {
		return func() io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
	}
	for name, c := range map[string]struct {
		body func() io.ReadCloser
		want string
	}{
		"a Status":                       {text(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no way","code":403}`), "no way"},
		"a Status without a code":        {text(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no way"}`), "no way"},
		"a Status with another code":     {text(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no way","code":500}`), "no way"},
		"a Status that says nothing":     {text(`{"kind":"Status"}`), ""},
		"no Status":                      {text(`{"error":"no way"}`), ""},
		"text":                           {text("no way"), ""},
		"nothing":                        {text(""), ""},
		"an endless body":                {func() io.ReadCloser { return &endless{} }, ""},
		"a body that breaks off":         {func() io.ReadCloser { return &endless{breaks: 1} }, ""},
		"a body that breaks off further": {func() io.ReadCloser { return &endless{breaks: 100_000} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, sent, body := newSmall(t, testcluster.CRDv1), 0, c.body()
			k := s.answering(func(r *http.Request) *http.Response {
				if r.Method == http.MethodGet {
					return nil
				}
				sent++
				return &http.Response{StatusCode: http.StatusForbidden, Body: body, Header: http.Header{"Content-Type": {"application/json"}}}
			})
			err := k.DeleteHandle(t.Context(), s.ref(blocks.Handles, orphan))
			if err == nil || !strings.Contains(err.Error(), "was refused: the API server answered 403 Forbidden") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if sent != 1 {
				t.Errorf("it was sent %d times", sent)
			}
			if e, ok := body.(*endless); ok && e.read > 2<<20 {
				t.Errorf("%d bytes of the error were read", e.read)
			}
		})
	}
}

// TestRetryAfterIsHeeded checks that a request to a busy server is retried after the time
// in the header or in the Status.
func TestRetryAfterIsHeeded(t *testing.T) {
	for name, body := range map[string]string{
		"a Status without details": `{"kind":"Status","apiVersion":"v1","status":"Failure","code":429}`,
		"a Status with details":    `{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"details":{"retryAfterSeconds":1}}`,
		"text":                     `too many requests`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSmall(t, testcluster.CRDv1)
			var asked []time.Time
			k := s.answering(func(*http.Request) *http.Response {
				if asked = append(asked, time.Now()); len(asked) > 1 {
					return nil
				}
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Body: io.NopCloser(strings.NewReader(body)),
					Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"1"}},
				}
			})
			must(t, k.DeleteHandle(t.Context(), s.ref(blocks.Handles, orphan)))
			if len(asked) < 2 || asked[1].Sub(asked[0]) < time.Second {
				t.Errorf("asked at %v", asked)
			}
		})
	}
}

// TestReadsOutliveFaults checks that reads before and after a write are retried without a
// Retry-After header, if the response is a server error or there is no response.
func TestReadsOutliveFaults(t *testing.T) {
	for name, answer := range map[string]func() (*http.Response, error){
		"an error without Retry-After": func() (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody, Header: http.Header{}}, nil
		},
		"a connection that is refused": func() (*http.Response, error) { return nil, syscall.ECONNREFUSED },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSmall(t, testcluster.CRDv1)
			reads := 0
			k := s.failing(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet {
					return nil, nil
				}
				if reads++; reads%3 == 0 {
					return nil, nil
				}
				return answer()
			})
			must(t, k.DeleteHandle(t.Context(), s.ref(blocks.Handles, orphan)))
			if reads < 3 {
				t.Errorf("%d reads", reads)
			}
		})
	}
}

// TestAbsentByTheAnswersCode checks that a 404 that names the object means that it does
// not exist, even if the Status is incomplete or contradictory.
func TestAbsentByTheAnswersCode(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	for _, body := range []string{
		`{"kind":"Status","apiVersion":"v1","status":"Failure","details":{"name":"` + orphan + `"}}`,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","details":{"name":"` + orphan + `"},"code":500}`,
	} {
		k := s.answering(func(*http.Request) *http.Response { return response(http.StatusNotFound, body) })
		if err := k.DeleteHandle(t.Context(), s.ref(blocks.Handles, orphan)); !errors.Is(err, repair.ErrChanged) {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

// TestCreatedByAnother checks that a 409 response to a create means that the object
// exists, even if it is deleted or unreadable a moment later.
func TestCreatedByAnother(t *testing.T) {
	for _, then := range []int{http.StatusNotFound, http.StatusForbidden} {
		s := newSmall(t, testcluster.CRDv1)
		path, tried := s.path(blocks.Affinities, blocks.AffinityName("n2", lost)), false
		k := s.answering(func(r *http.Request) *http.Response {
			switch {
			case r.Method == http.MethodPost:
				tried = true
				return refusal(http.StatusConflict, path)
			case tried && r.URL.Path == path:
				return refusal(then, path)
			}
			return nil
		})
		err := k.RestoreAffinity(t.Context(), s.blockRef(lost))
		if !errors.Is(err, repair.ErrChanged) || !strings.Contains(err.Error(), "exists by now") {
			t.Errorf("and then %d: got %v", then, err)
		}
	}
}

// TestRightsOfTakingBack checks that restoring an affinity's state uses only the declared
// rights, even if another client releases and claims the block meanwhile.
func TestRightsOfTakingBack(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	path := s.path(blocks.Blocks, blocks.BlockName(contested))
	block := s.get(path)
	s.before = func(n int, _ string) {
		switch n {
		case 1:
			delete(s.objects, path)
		case 4: // deletion of the affinity
			s.put(path, block)
		}
	}
	if err := calls["PutAffinityState"](s, s.writer(s.group)); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("got %v", err)
	}
	verbs := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete"}
	var needed []string
	for _, w := range s.writes {
		method, _, _ := strings.Cut(w.what, " ")
		needed = append(needed, verbs[method])
	}
	slices.Sort(needed)
	if needed = slices.Compact(needed); !slices.Equal(needed, []string{"create", "delete", "patch"}) {
		t.Errorf("it wrote %v", s.writes)
	}
	for _, right := range planner.KindOf(repair.DeleteAffinity).UndoRights {
		if right.Resource != blocks.Affinities {
			continue
		}
		for _, verb := range needed {
			if !slices.Contains(right.Verbs, verb) {
				t.Errorf("the right to %s is not asked for", verb)
			}
		}
	}
}

// TestManyHandlesOfASlowServer checks that lowering each handle has a full time limit of
// its own. If the server is unreachable, the step does not wait for that time for every
// handle.
func TestManyHandlesOfASlowServer(t *testing.T) {
	const addresses, step = 8, 5 * time.Second // [datastore.Writer.Impatient]
	for _, deleted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, of, all := newSmall(t, testcluster.CRDv1), map[int]string{}, []repair.ReleaseOptions(nil)
			for i := range addresses {
				of[i] = fmt.Sprint("left-", i)
				s.handle(of[i], inUse, 1)
				all = append(all, repair.ReleaseOptions{Ordinal: i, Handle: of[i], Sequence: uint64(i)})
			}
			s.taken(blocks.Blocks, blocks.BlockName(inUse))
			s.block(inUse, "host:n1", of)
			k := s.answering(func(r *http.Request) *http.Response {
				time.Sleep(time.Second)
				if deleted && strings.Contains(r.URL.Path, "left-") {
					<-r.Context().Done()
					return refusal(http.StatusGatewayTimeout, r.URL.Path)
				}
				return nil
			})
			began := time.Now()
			for i, err := range k.ReleaseIPs(t.Context(), s.blockRef(inUse), all) {
				var left *repair.LeftBehindError
				if is := s.get(s.path(blocks.Handles, of[i])) != nil; is != deleted || errors.As(err, &left) != deleted {
					t.Errorf("gone %v: handle %d exists %v, got %v", deleted, i, is, err)
				}
			}
			if took := time.Since(began); deleted == (took > 2*step) {
				t.Errorf("gone %v: it took %s", deleted, took)
			}
		})
	}
}

// TestEveryPageIsSearched: the list of affinities comes in pages, and any page may hold another
// affinity to the block. If one does, no affinity is restored and no block is claimed.
func TestEveryPageIsSearched(t *testing.T) {
	for _, what := range []string{"RestoreAffinity", "ClaimBlock"} {
		cidr := map[string]netip.Prefix{"RestoreAffinity": lost, "ClaimBlock": noBlock}[what]
		for another := range 3 { // the page with the other affinity
			s := newSmall(t, testcluster.CRDv1)
			k := s.answering(func(r *http.Request) *http.Response {
				if r.Method != http.MethodGet || path.Base(r.URL.Path) != "blockaffinities" {
					return nil
				}
				page, next, items := len(r.URL.Query().Get("continue")), "", ""
				if page < 2 {
					next = strings.Repeat("x", page+1)
				}
				if page == another {
					items = `{"metadata":{"name":"others"},"spec":{"cidr":"` + cidr.String() + `","node":"n9"}}`
				}
				return response(http.StatusOK, `{"metadata":{"continue":"`+next+`"},"items":[`+items+`]}`)
			})
			if err := calls[what](s, k); !errors.Is(err, repair.ErrChanged) || !strings.Contains(err.Error(), "others claims the block, too") || len(s.writes) > 0 {
				t.Errorf("%s, with another's affinity on page %d: %v, wrote %v", what, another+1, err, s.writes)
			}
		}
	}
}

// TestUnreadableKeptBlock: a block that cannot be read does not count as kept, so no other block of
// its node is released. Before the first write, nothing is written; after it, the affinity gets its
// state back. If the block is deleted already, the error says so.
func TestUnreadableKeptBlock(t *testing.T) {
	for writes, want := range []string{"before anything is written", "once its affinity was written", "", "once the block is gone"} {
		if want == "" {
			continue // between its mark and its deletion the kept block is not read
		}
		s := newSmall(t, testcluster.CRDv1)
		kept, freed, affinity := s.blockRef(inUse), s.blockRef(empty), s.affinityRef("n1", empty)
		blockWas, affinityWas := s.get(s.path(blocks.Blocks, freed.Name)), s.get(s.path(blocks.Affinities, affinity.Name))
		k := s.answering(func(r *http.Request) *http.Response {
			if r.Method == http.MethodGet && r.URL.Path == s.path(blocks.Blocks, kept.Name) && len(s.writes) >= writes {
				return refusal(http.StatusForbidden, r.URL.Path)
			}
			return nil
		})
		err := k.ReleaseBlock(t.Context(), freed, &affinity, &kept)
		var left *repair.LeftBehindError
		if err == nil || errors.As(err, &left) != (writes == 3) || left != nil && left.Name != kept.Name {
			t.Errorf("%s: got %v", want, err)
		}
		if writes == 3 {
			continue
		}
		state := func(o map[string]any) any { return o["spec"].(map[string]any)["state"] }
		if b, a := s.get(s.path(blocks.Blocks, freed.Name)), s.get(s.path(blocks.Affinities, affinity.Name)); b == nil || a == nil || state(a) != state(affinityWas) || !reflect.DeepEqual(b, blockWas) {
			t.Errorf("%s: the block is %v, and its affinity %v, after %v", want, b, a, s.writes)
		}
		if writes == 0 && len(s.writes) > 0 {
			t.Errorf("%s: it wrote %v", want, s.writes)
		}
	}
}

// TestNoKubernetes: without a cluster, as with etcd alone, objects that are not Calico's are neither
// read nor written.
func TestNoKubernetes(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	cfg := &rest.Config{Host: "http://memory.invalid"}
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return s })
	store, err := datastore.NewKubernetes(cfg, string(s.group))
	must(t, err)
	k := datastore.NewWriter(store, nil, datastore.Options{}).Impatient()
	if err := calls["ReleaseWhereabouts"](s, k); err == nil || !strings.Contains(err.Error(), "are in Kubernetes, and no cluster is configured") || len(s.writes) > 0 {
		t.Errorf("got %v, wrote %v", err, s.writes)
	}
	must(t, calls["ReleaseBlock"](s, k))
}
