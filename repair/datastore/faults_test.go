package datastore_test

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// fault is a way in which a request of a step fails.
type fault struct {
	name string
	// later is "writes" if all later writes fail, too, and "requests" if all later requests do.
	later string
	// lost requests get no answer; others are refused.
	lost bool
	// carriedOut is true if the request itself, a write, is carried out, and its answer is lost.
	carriedOut bool
}

var faults = []fault{
	{name: "refused"},
	{name: "refused, and all writes after it", later: "writes"},
	{name: "refused, and all requests after it", later: "requests"},
	{name: "lost, and all requests after it", later: "requests", lost: true},
	{name: "lost, and all writes after it", later: "writes", lost: true},
	{name: "carried out, and its answer and all requests after it are lost", later: "requests", lost: true, carriedOut: true},
	{name: "carried out, its answer is lost, and all requests after it are refused", later: "requests", carriedOut: true},
}

// answer answers request n if the fault is at request at; nil if the request goes to the server.
func (f fault) answer(s *small, at, n int, r *http.Request) (*http.Response, error) {
	read := r.Method == http.MethodGet
	switch {
	case n < at, n > at && (f.later == "" || f.later == "writes" && read):
		return nil, nil
	case n == at && f.carriedOut && !read:
		_, err := s.RoundTrip(r)
		return nil, errors.Join(err, errDead)
	case f.lost:
		return nil, errDead
	}
	return refusal(http.StatusForbidden, r.URL.Path), nil
}

type leftState struct {
	text *regexp.Regexp
	is   func(spec map[string]any) bool // nil if the object does not exist
}

// leftStates are the texts for objects that a step leaves behind, each with a test of its truth.
var leftStates = []leftState{
	{regexp.MustCompile(`^is left marked deleted`), func(o map[string]any) bool { return o != nil && fmt.Sprint(o["deleted"]) == "true" }},
	{regexp.MustCompile(`^is left pendingDeletion`), func(o map[string]any) bool { return o != nil && o["state"] == "pendingDeletion" }},
	{regexp.MustCompile(`^is left pending,`), func(o map[string]any) bool { return o != nil && o["state"] == "pending" }},
	{regexp.MustCompile(`^(is left, |is left counting|is left claimed|is left without|was created, |exists again|has its former state|may count)`), func(o map[string]any) bool { return o != nil }},
	{regexp.MustCompile(`^may not exist`), func(map[string]any) bool { return true }},
	{regexp.MustCompile(`^is deleted, `), func(o map[string]any) bool { return o == nil }},
}

// play calls a method on small, with a fault at a request if f is not nil. It returns small, the
// requests, the contents before the first of them, and the error. meanwhile is called before each write
// with its number, from 1.
func play(t *testing.T, call func(*small, *datastore.Writer) error, f *fault, at int, meanwhile func(s *small, n int, path string)) (s *small, requests []string, before map[string]any, err error) {
	s = newSmall(t, testcluster.CRDv1)
	if meanwhile != nil {
		s.before = func(n int, path string) { meanwhile(s, n, path) }
	}
	err = call(s, s.failing(func(r *http.Request) (*http.Response, error) {
		if requests = append(requests, r.Method+" "+path.Base(r.URL.Path)); before == nil {
			before = s.contents()
		}
		if f == nil {
			return nil, nil
		}
		return f.answer(s, at, len(requests)-1, r)
	}))
	return s, requests, before, err
}

// TestEveryFault fails each request of each step, alone or with all that follow. No other client
// writes meanwhile. A step without an error has its result. A step with an error has written
// nothing, or its error names each object that is neither as before nor as meant, and describes
// it. It never claims that another client has changed an object.
func TestEveryFault(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			s, requests, before, err := play(t, call, nil, 0, nil)
			must(t, err)
			want := s.contents()
			for at, request := range requests {
				for _, f := range faults {
					s, _, _, err := play(t, call, &f, at, nil)
					wrong := wrongAfter(s, err, "", []map[string]any{before}, want)
					if errors.Is(err, repair.ErrChanged) {
						wrong = "no other client has changed anything"
					}
					if wrong != "" {
						t.Errorf("request %d (%s) %s: %v: %s", at+1, request, f.name, err, wrong)
					}
				}
			}
		})
	}
}

// changes are what another client may do to an object right before a step writes it.
var changes = map[string]func(s *small, path string){
	"writes":  func(s *small, path string) { s.edit(path, func(o map[string]any) { writtenByOther(o) }) },
	"deletes": func(s *small, path string) { delete(s.objects, path) },
	"marks":   func(s *small, path string) { s.edit(path, s.mark) },
	"recreates": func(s *small, path string) {
		o := s.get(path)
		delete(s.objects, path)
		s.put(path, o)
	},
	"confirms, or takes": func(s *small, path string) {
		s.edit(path, func(o map[string]any) {
			switch spec := o["spec"].(map[string]any); {
			case spec["state"] != nil:
				spec["state"] = "confirmed"
			case spec["allocations"] != nil:
				spec["affinity"] = "host:n2"
			}
		})
	},
}

// TestEveryFaultBesideAnother is TestEveryFault while another client changes an object right before
// the step writes it. A step that returns ErrChanged leaves every object as before, as the other
// client made it, or as it is without a fault.
func TestEveryFaultBesideAnother(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			whole, _, before, err := play(t, call, nil, 0, nil)
			must(t, err)
			want := whole.contents()
			for i, w := range whole.writes {
				method, at, _ := strings.Cut(w.what, " ")
				if method == http.MethodPost {
					continue
				}
				for does, change := range changes {
					var made map[string]any
					var first int // the first request after the change
					meanwhile := func(s *small, n int, _ string) {
						if n == i+1 && s.objects[at] != nil {
							change(s, at)
							made = s.contents()
						}
					}
					s, requests, _, err := play(t, call, nil, 0, meanwhile)
					result := s.contents()
					if wrong := wrongAfter(s, err, at, []map[string]any{before, made}, want, result); wrong != "" {
						t.Errorf("another client %s %s before write %d: %v: %s", does, at, i+1, err, wrong)
					}
					for n := 0; n <= i; first++ {
						if !strings.HasPrefix(requests[first], http.MethodGet) {
							n++
						}
					}
					for k := first; k < len(requests); k++ {
						for _, f := range faults[1:3] {
							s, _, _, err := play(t, call, &f, k, meanwhile)
							if wrong := wrongAfter(s, err, at, []map[string]any{before, made}, want, result); wrong != "" {
								t.Errorf("another client %s %s before write %d, and request %d (%s) %s: %v: %s", does, at, i+1, k+1, requests[k], f.name, err, wrong)
							}
						}
					}
				}
			}
		})
	}
}

// wrongAfter explains what is wrong with the end of a step, or returns "". before are the contents
// before it, and after another client's change of the object at changed, if any. Without an error,
// the contents must be those of the last of ends. With an error, an object must be as in one of
// ends or before, or be named.
func wrongAfter(s *small, err error, changed string, before []map[string]any, ends ...map[string]any) string {
	now := s.contents()
	if err == nil {
		return cmp.Diff(ends[len(ends)-1], now)
	}
	var left *repair.LeftBehindError
	if errors.As(err, &left) {
		// After an error, the step may not know that another client has changed the object.
		at := s.path(left.Resource, left.Name)
		spec, _ := now[at].(map[string]any)
		if at != changed && !slices.ContainsFunc(leftStates, func(l leftState) bool { return l.text.MatchString(left.State) && l.is(spec) }) {
			return fmt.Sprintf("it is not %q: %v", left.State, spec)
		}
	}
	if left != nil && errors.Is(err, repair.ErrChanged) {
		return "something is left, and it counts as not written"
	}
	// A step may not know whether its last request was carried out, or what it missed meanwhile.
	said := left != nil || strings.Contains(err.Error(), "not known") || strings.Contains(err.Error(), "owner has changed")
	for at := range mergeKeys(append(append(ends, before...), now)...) {
		is := func(o map[string]any) bool { return reflect.DeepEqual(o[at], now[at]) }
		switch {
		case slices.ContainsFunc(before, is):
		case errors.Is(err, repair.ErrChanged):
			if !slices.ContainsFunc(ends, is) {
				return fmt.Sprintf("%s is changed: %v", at, now[at])
			}
		case !slices.ContainsFunc(ends, is) && !strings.Contains(err.Error(), path.Base(at)):
			return fmt.Sprintf("%s is not named: %v", at, now[at])
		case !said:
			return fmt.Sprintf("%s is left, and it is not said: %v", at, now[at])
		}
	}
	return ""
}

// contents is [small.specs], for many comparisons: equal texts have the same value.
func (s *small) contents() map[string]any {
	out := map[string]any{}
	for path, text := range s.objects {
		key := path + string(text)
		if specsOf[key] == nil {
			specsOf[key] = s.specs()[path]
		}
		out[path] = specsOf[key]
	}
	return out
}

var specsOf = map[string]any{}

func mergeKeys(all ...map[string]any) map[string]bool {
	out := map[string]bool{}
	for _, m := range all {
		for key := range m {
			out[key] = true
		}
	}
	return out
}
