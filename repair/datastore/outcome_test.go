package datastore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// hiccups are faults of a write that the writer survives.
var hiccups = []struct {
	name   string
	after  bool // the write was carried out
	answer func() (*http.Response, error)
}{
	{"a connection that breaks before the request arrives", false, func() (*http.Response, error) { return nil, errors.New("connection reset") }},
	{"a connection that breaks before the answer", true, func() (*http.Response, error) { return nil, errors.New("connection reset") }},
	{"a server that fails after it wrote", true, status(http.StatusInternalServerError)},
	{"a server that gives up waiting for itself", true, status(http.StatusGatewayTimeout)},
	{"a server that has too much to do", false, status(http.StatusTooManyRequests)},
	{"an answer that is cut off", true, func() (*http.Response, error) { return response(http.StatusOK, `{"metadata":{"na`), nil }},
}

func status(code int) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return response(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"as the test wants it"}`, code)), nil
	}
}

func response(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Content-Type": {"application/json"}}}
}

// TestHiccups checks that the writer finds out whether a write was carried out, with any
// answer. Every step must end with the same result, with each write recorded once.
func TestHiccups(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		for _, s := range someSteps(t) {
			t.Run(s.name, func(t *testing.T) {
				w := w.in(t)
				w.restoreFor(s)
				whole, taken := &tap{}, &journal{}
				must(t, s.do(w, w.writer(whole.wrap, taken)))
				want := w.contents()
				wanted := sampled(t, 8)
				for k := range whole.writes {
					for _, h := range hiccups {
						if !wanted() {
							continue
						}
						w.restoreFor(s)
						what, again := fmt.Sprintf("write %d, %s", k+1, h.name), &journal{}
						x := &tap{dieAt: k + 1, after: h.after, answer: h.answer}
						if err := s.do(w, w.writer(x.wrap, again)); err != nil {
							t.Errorf("%s: %v", what, err)
						}
						same(t, what, want, w.contents())
						if again.String() != taken.String() {
							t.Errorf("%s: the journal has %s, and without it %s", what, again, taken)
						}
					}
				}
			})
		}
	})
}

// TestInterrupted checks that a step writes nothing if its context ends before its first
// write, and is finished if the context ends later.
func TestInterrupted(t *testing.T) {
	w := newWorld(t, "crd.projectcalico.org/v1")
	for _, s := range someSteps(t) {
		if s.name == twoCalls {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			w := w.in(t)
			w.restoreFor(s)
			untouched, whole := w.contents(), &tap{}
			must(t, s.do(w, w.writer(whole.wrap, nil)))
			want := w.contents()
			for n := range whole.sent {
				w.restoreFor(s)
				ctx, cancel := context.WithCancel(t.Context())
				x := &tap{before: func(i int, _ *http.Request) {
					if i == n {
						cancel()
					}
				}}
				w.interrupted = ctx
				err := s.do(w, w.writer(x.wrap, nil))
				w.interrupted = nil
				cancel()
				switch {
				case len(x.writes) == 0:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("interrupted at request %d, before any write: %v", n, err)
					}
					same(t, "what was not begun", untouched, w.contents())
				case err != nil:
					t.Errorf("interrupted at request %d (%s): %v", n, x.sent[n], err)
				default:
					same(t, fmt.Sprintf("interrupted at request %d (%s)", n, x.sent[n]), want, w.contents())
				}
			}
		})
	}
}

// refusing is a transport that rejects the write with number at, from 1, or also all
// later writes.
type refusing struct {
	next     http.RoundTripper
	at, n    int
	forGood  bool
	refusals int
}

func (p *refusing) wrap(next http.RoundTripper) http.RoundTripper {
	p.next = next
	return p
}

// RoundTrip forwards or rejects a request.
func (p *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if p.n++; p.n == p.at || p.forGood && p.n > p.at {
			p.refusals++
			return status(http.StatusForbidden)()
		}
	}
	return p.next.RoundTrip(r)
}

// TestLeftBehind rejects a later write of each step, alone or with all following writes.
// Either the step's writes are reverted, or the error names an object that remains and
// describes it correctly.
func TestLeftBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: needs an etcd and a kube-apiserver")
	}
	said := map[string]bool{}
	inBothGroups(t, func(t *testing.T, w *world) {
		for _, s := range someSteps(t) {
			if s.name == twoCalls {
				continue // a run verifies the result of the first call
			}
			t.Run(s.name, func(t *testing.T) {
				w := w.in(t)
				w.restoreFor(s)
				before, whole := w.contents(), &tap{}
				must(t, s.do(w, w.writer(whole.wrap, nil)))
				want := w.contents()
				for k := 1; k <= len(whole.writes); k++ {
					for _, forGood := range []bool{false, true} {
						w.restoreFor(s)
						x, when := &refusing{at: k, forGood: forGood}, fmt.Sprintf("write %d (%s) refused, for good %t", k, whole.writes[k-1], forGood)
						err := s.do(w, w.writer(x.wrap, nil))
						now := w.contents()
						w.unharmed(when)
						var left *repair.LeftBehindError
						switch {
						case err == nil:
							t.Errorf("%s: no error", when)
						case errors.Is(err, repair.ErrChanged):
							t.Errorf("%s: %v", when, err)
						case errors.As(err, &left):
							said[s.name] = true
							id := string(left.Resource) + "/" + left.Name
							// A handle is written before the block of its address. Its
							// count is correct only after the block is written.
							first := s.kind == repair.RecordIP && left.Resource == blocks.Handles && now[id] != before[id]
							if now[id] == want[id] && !first || !strings.Contains(err.Error(), left.State) {
								t.Errorf("%s: %v, and it is not: %s", when, err, now[id])
							}
						case !maps.Equal(now, before):
							t.Errorf("%s: something is left, and it is not said: %v\n%s", when, err, cmp.Diff(before, now))
						}
					}
				}
			})
		}
	})
	least := 1
	if testenv.EveryCase() {
		least = 8
	}
	if len(said) < least {
		t.Errorf("something is left of %d steps alone: %v", len(said), slices.Sorted(maps.Keys(said)))
	}
}
