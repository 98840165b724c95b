package workloads_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/workloads"
)

// leaseServer is an API server in memory that holds one Lease.
type leaseServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	// refuse returns the status code with which a request is refused, or 0.
	refuse func(method string) int
}

func (s *leaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	code, text := s.handle(r.Method, body)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (s *leaseServer) handle(method string, body []byte) (int, string) {
	if s.refuse != nil {
		if code := s.refuse(method); code != 0 {
			return code, status(code)
		}
	}
	var sent coordinationv1.Lease
	_ = json.Unmarshal(body, &sent)
	switch {
	case method == http.MethodPost && s.lease != nil:
		return http.StatusConflict, strings.Replace(status(http.StatusConflict), "Conflict", "AlreadyExists", 1)
	case method != http.MethodPost && s.lease == nil:
		return http.StatusNotFound, status(http.StatusNotFound)
	case method == http.MethodPut && sent.ResourceVersion != s.lease.ResourceVersion:
		return http.StatusConflict, status(http.StatusConflict)
	case method == http.MethodDelete:
		var options struct {
			Preconditions struct{ ResourceVersion string }
		}
		if _ = json.Unmarshal(body, &options); options.Preconditions.ResourceVersion != s.lease.ResourceVersion {
			return http.StatusConflict, status(http.StatusConflict)
		}
		s.lease = nil
		return http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	case method != http.MethodGet:
		s.store(&sent)
	}
	text, _ := json.Marshal(s.lease)
	return http.StatusOK, string(text)
}

func (s *leaseServer) store(l *coordinationv1.Lease) {
	s.version++
	l.APIVersion, l.Kind, l.ResourceVersion = "coordination.k8s.io/v1", "Lease", fmt.Sprint(s.version)
	s.lease = l
}

// ownedBy stores the Lease of another run.
func (s *leaseServer) ownedBy(holder string, seconds *int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: seconds}}
	if l.Name = repair.LeaseName; holder != "" {
		l.Spec.HolderIdentity = &holder
	}
	s.store(l)
}

func (s *leaseServer) stored() coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return coordinationv1.Lease{}
	}
	return *s.lease.DeepCopy()
}

func (s *leaseServer) client(t *testing.T) *workloads.Client {
	t.Helper()
	cfg := &rest.Config{Host: "http://memory.invalid", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return s })
	w, err := workloads.New(cfg, &taken{})
	must(t, err)
	return w.Impatient()
}

// TestLeaseIsTaken: a run takes a Lease that is free, given up or not renewed, and no other.
func TestLeaseIsTaken(t *testing.T) {
	second := int32(1)
	for name, c := range map[string]struct {
		before func(s *leaseServer)
		want   string // a part of the error; "" if it is taken
		waits  bool
	}{
		"free":               {func(*leaseServer) {}, "", false},
		"given up":           {func(s *leaseServer) { s.ownedBy("", &second) }, "", false},
		"not renewed":        {func(s *leaseServer) { s.ownedBy("dead", &second) }, "", true},
		"without a duration": {func(s *leaseServer) { s.ownedBy("dead", nil) }, "", true},
		"taken at that moment": {func(s *leaseServer) {
			s.refuse = once(http.MethodPost, 0, func() { s.store(&coordinationv1.Lease{}) })
		}, "", false},
		"given up, and taken at that moment": {func(s *leaseServer) {
			s.ownedBy("", &second)
			s.refuse = once(http.MethodPut, 0, func() { s.store(s.lease) })
		}, "", false},
		"renewed at the last moment": {func(s *leaseServer) {
			s.ownedBy("alive", &second)
			began := time.Now()
			s.refuse = func(method string) int {
				if method == http.MethodGet && time.Since(began) > time.Second {
					s.store(s.lease)
				}
				return 0
			}
		}, repair.ErrOtherRun.Error(), true},
		"renewed": {func(s *leaseServer) {
			s.ownedBy("alive", &second)
			reads := 0
			s.refuse = func(method string) int {
				if reads++; method == http.MethodGet && reads > 1 {
					s.store(s.lease)
				}
				return 0
			}
		}, repair.ErrOtherRun.Error(), true},
		"it may not be read":    {func(s *leaseServer) { s.refuse = once(http.MethodGet, 403, nil) }, "reading the Lease", false},
		"it may not be written": {func(s *leaseServer) { s.refuse = once(http.MethodPost, 403, nil) }, "taking the Lease", false},
	} {
		test := func(t *testing.T) {
			s := &leaseServer{}
			c.before(s)
			said, began := "", time.Now()
			h, err := s.client(t).AcquireLease(t.Context(), func(text string) { said += text })
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if (said != "") != c.waits {
				t.Errorf("it says %q", said)
			}
			if name == "not renewed" && time.Since(began) <= time.Second {
				t.Errorf("it is taken after %s", time.Since(began))
			}
			if err != nil {
				return
			}
			now := s.stored()
			if now.Spec.HolderIdentity == nil || *now.Spec.HolderIdentity == "dead" || now.Spec.AcquireTime == nil || *now.Spec.LeaseDurationSeconds != 5 {
				t.Errorf("it is %+v", now.Spec)
			}
			must(t, h.Check(t.Context()))
			h.Release()
			if left := s.stored(); left.Name != "" {
				t.Errorf("it is left: %+v", left)
			}
		}
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestLeaseIsNotAwaited: an interrupted run stops waiting for another run's Lease.
func TestLeaseIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, second := &leaseServer{}, int32(1)
		s.ownedBy("alive", &second)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := s.client(t).AcquireLease(ctx, func(string) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestLeaseIsChecked: a Lease that was renewed lately needs no request. An older one is renewed first.
// Once another run has it, it is lost for good, and so is the context of a request.
func TestLeaseIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, requests := &leaseServer{}, 0
		h, err := s.client(t).AcquireLease(t.Context(), func(string) {})
		must(t, err)
		code := 0
		s.refuse = func(method string) int {
			requests++
			return map[bool]int{true: code}[method == http.MethodPut]
		}
		check := func(want error, asks int) {
			t.Helper()
			synctest.Wait()
			before := requests
			err := h.Check(t.Context())
			if (err == nil) != (want == nil) || want != nil && !errors.Is(err, want) && !errors.Is(want, errors.ErrUnsupported) {
				t.Errorf("got %v, want %v", err, want)
			}
			if unknown := err != nil && strings.Contains(err.Error(), "is not known"); unknown != errors.Is(want, errors.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			if requests-before != asks {
				t.Errorf("it sent %d requests, not %d", requests-before, asks)
			}
		}
		check(nil, 0)
		time.Sleep(time.Minute) // it is renewed meanwhile
		check(nil, 0)
		time.Sleep(time.Millisecond)
		code = http.StatusInternalServerError
		time.Sleep(1100 * time.Millisecond)
		check(nil, 0)
		time.Sleep(2 * time.Second)
		check(errors.ErrUnsupported, 5)
		code = 0
		check(nil, 1)
		check(nil, 0)
		s.ownedBy("another", nil)
		time.Sleep(2 * time.Second)
		check(repair.ErrOtherRun, 0)
		s.lease = nil
		check(repair.ErrOtherRun, 0)
		h.Release()
	})
}

// once calls do and then refuses the request, for the first request of a method.
func once(method string, code int, do func()) func(string) int {
	done := false
	return func(m string) int {
		if done || m != method {
			return 0
		}
		if done = true; do != nil {
			do()
		}
		return code
	}
}

// TestLeaseIsKept: a run that writes confirms its Lease first. It keeps the Lease through failures of
// the server, and never writes after another run took it.
func TestLeaseIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *leaseServer)
		want      error // nil if the run may write
		says      string
		kept      bool // the Lease is the run's at the end
	}{
		"nothing happens":    {func(*leaseServer) {}, nil, "", true},
		"someone deleted it": {func(s *leaseServer) { s.lease = nil }, nil, "", true},
		"the answer is lost": {func(s *leaseServer) { s.refuse = once(http.MethodPut, 500, func() { s.store(s.lease) }) }, nil, "", true},
		"it conflicts, and may not be read once": {func(s *leaseServer) {
			put, get := once(http.MethodPut, 409, nil), once(http.MethodGet, 403, nil)
			s.refuse = func(method string) int { return max(put(method), get(method)) }
		}, nil, "", true},
		"it is refused once":     {func(s *leaseServer) { s.refuse = once(http.MethodPut, 403, nil) }, nil, "", true},
		"it is always refused":   {func(s *leaseServer) { s.refuse = always(http.MethodPut, 403) }, blocks.ErrDenied, "to renew its Lease", true},
		"it is never authorized": {func(s *leaseServer) { s.refuse = always(http.MethodPut, 401) }, blocks.ErrDenied, "to renew its Lease", true},
		"the server is away":     {func(s *leaseServer) { s.refuse = always(http.MethodPut, 500) }, errors.ErrUnsupported, "whether another run now moves pods is not known", true},
		"another run took it": {func(s *leaseServer) {
			s.lease.Spec.HolderIdentity = new("another")
			s.store(s.lease)
		}, repair.ErrOtherRun, "another", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, evicted := &leaseServer{}, 0
			cfg := &rest.Config{Host: "http://memory.invalid", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
			pods := &memory{}
			cfg.Wrap(func(http.RoundTripper) http.RoundTripper {
				return transport(func(r *http.Request) (*http.Response, error) {
					if strings.Contains(r.URL.Path, "/leases") {
						return s.RoundTrip(r)
					}
					if r.Method == http.MethodPost {
						evicted++
					}
					return pods.RoundTrip(r)
				})
			})
			w, err := workloads.New(cfg, &taken{})
			must(t, err)
			h, err := w.Impatient().AcquireLease(t.Context(), func(string) {})
			must(t, err)
			holder, acquired := *s.stored().Spec.HolderIdentity, s.stored().Spec.AcquireTime
			s.mu.Lock()
			c.meanwhile(s)
			s.mu.Unlock()
			err = w.Evict(t.Context(), "shop", "web", "u")
			if (err == nil) != (c.want == nil) || err != nil && (!errors.Is(err, c.want) && !errors.Is(c.want, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %v (%s)", err, c.want, c.says)
			}
			if evicted != map[bool]int{true: 1, false: 0}[c.want == nil] {
				t.Errorf("%d pods were evicted", evicted)
			}
			now := s.stored()
			if is := now.Spec.HolderIdentity != nil && *now.Spec.HolderIdentity == holder; is != c.kept {
				t.Errorf("the Lease is %v's", now.Spec.HolderIdentity)
			}
			if c.kept && name != "someone deleted it" && !now.Spec.AcquireTime.Equal(acquired) {
				t.Errorf("a renewal looks like another run's: acquired at %v and at %v", acquired, now.Spec.AcquireTime)
			}
			s.mu.Lock()
			s.refuse = nil
			s.mu.Unlock()
			if h.Release(); (s.stored().Name == "") != c.kept {
				t.Errorf("after its release the Lease is %+v", s.stored())
			}
		})
	}
}

// TestLeaseIsReleased: a run deletes its own Lease in the version that it wrote last, also if the answer
// to its last renewal was lost, and never another run's.
func TestLeaseIsReleased(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *leaseServer)
		left      string // the holder of the Lease that is left
		deletes   int
	}{
		"nothing happens":       {func(*leaseServer) {}, "", 1},
		"a lost renewal":        {func(s *leaseServer) { s.store(s.lease) }, "", 2},
		"another run's":         {func(s *leaseServer) { s.ownedBy("another", nil) }, "another", 1},
		"someone deleted it":    {func(s *leaseServer) { s.lease = nil }, "", 1},
		"it may not be deleted": {func(s *leaseServer) { s.refuse = always(http.MethodDelete, 403) }, "me", 1},
		"it conflicts, and is not read": {func(s *leaseServer) {
			s.refuse = func(m string) int { return map[string]int{http.MethodDelete: 409, http.MethodGet: 403}[m] }
		}, "me", 1},
		"it conflicts every time":        {func(s *leaseServer) { s.refuse = always(http.MethodDelete, 409) }, "me", 5},
		"it conflicts, and then is gone": {func(s *leaseServer) { s.refuse = once(http.MethodDelete, 409, func() { s.lease = nil }) }, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, deletes := &leaseServer{}, 0
				h, err := s.client(t).AcquireLease(t.Context(), func(string) {})
				must(t, err)
				me := *s.stored().Spec.HolderIdentity
				c.meanwhile(s)
				refuse := s.refuse
				s.refuse = func(method string) int {
					if method == http.MethodDelete {
						deletes++
					}
					if refuse == nil {
						return 0
					}
					return refuse(method)
				}
				h.Release()
				left := ""
				if l := s.stored(); l.Spec.HolderIdentity != nil {
					if left = *l.Spec.HolderIdentity; left == me {
						left = "me"
					}
				}
				if left != c.left || deletes != c.deletes {
					t.Errorf("left is %q's, want %q; %d deletions, want %d", left, c.left, deletes, c.deletes)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a lost Lease is not deleted
		s := &leaseServer{}
		h, err := s.client(t).AcquireLease(t.Context(), func(string) {})
		must(t, err)
		s.ownedBy("another", nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.refuse = func(method string) int {
			t.Errorf("it sent %s", method)
			return 0
		}
		h.Release()
	})
}

// TestRequestEndsWithLease: a request that takes long is cancelled as soon as another run may have the
// Lease, and not earlier.
func TestRequestEndsWithLease(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *leaseServer)
		says      string
		after     time.Duration // since the last renewal
	}{
		"the server does not renew it": {func(s *leaseServer) { s.refuse = always(http.MethodPut, 500) }, "whether another run now moves pods is not known", 5 * time.Second},
		"another run takes it":         {func(s *leaseServer) { s.ownedBy("another", nil) }, repair.ErrOtherRun.Error(), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, pods := &leaseServer{}, &memory{}
				cfg := &rest.Config{Host: "http://memory.invalid", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
				var began time.Time
				cfg.Wrap(func(http.RoundTripper) http.RoundTripper {
					return transport(func(r *http.Request) (*http.Response, error) {
						switch {
						case strings.Contains(r.URL.Path, "/leases"):
							return s.RoundTrip(r)
						case r.Method != http.MethodPost:
							return pods.RoundTrip(r)
						}
						time.Sleep(20 * time.Second) // the Lease is renewed meanwhile
						if r.Context().Err() != nil {
							t.Error("the request is cancelled while the run has the Lease")
						}
						synctest.Wait()
						began = time.Now()
						c.meanwhile(s)
						<-r.Context().Done()
						return nil, r.Context().Err()
					})
				})
				w, err := workloads.New(cfg, &taken{})
				must(t, err)
				h, err := w.Impatient().AcquireLease(t.Context(), func(string) {})
				must(t, err)
				err = w.Evict(t.Context(), "shop", "web", "u")
				if took := time.Since(began); err == nil || !strings.Contains(err.Error(), c.says) || took > c.after+time.Second || took < c.after-time.Second {
					t.Errorf("after %s: %v", took, err)
				}
				h.Release()
			})
		})
	}
}

func always(method string, code int) func(string) int {
	return func(m string) int { return map[bool]int{true: code}[m == method] }
}
