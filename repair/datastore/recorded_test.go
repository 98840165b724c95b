package datastore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// recorderFunc is a [repair.Recorder].
type recorderFunc func(repair.Change) error

func (f recorderFunc) Record(c repair.Change) error { return f(c) }

// recording returns a writer with a recorder. written is called before each write.
func (s *small) recording(r repair.Recorder, written func(r *http.Request)) *datastore.Writer {
	cfg := &rest.Config{Host: "http://memory.invalid"}
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				written(r)
			}
			return s.RoundTrip(r)
		})
	})
	k, err := datastore.New(cfg, string(s.group), datastore.Options{Recorder: r})
	must(s.t, err)
	return k.Impatient()
}

// TestEachWriteIsRecorded: a step records each write right before it is sent, with the object as it
// is stored and as it will be. A write of several steps is recorded for each of them. If the
// journal cannot record a write, it is not sent, except to revert an earlier one.
func TestEachWriteIsRecorded(t *testing.T) {
	verbs := map[string]string{repair.VerbCreate: http.MethodPost, repair.VerbPatch: http.MethodPatch, repair.VerbDelete: http.MethodDelete}
	each(t, func(t *testing.T, world func(*testing.T) *small, call func(*small, *datastore.Writer) error) {
		s, all, recorded := world(t), 0, []repair.Change(nil)
		steps := []string{""}
		if strings.HasSuffix(t.Name(), "two_addresses") {
			steps = []string{"1", "2"}
		}
		must(t, call(s, s.recording(recorderFunc(func(c repair.Change) error {
			recorded, all = append(recorded, c), all+1
			return nil
		}), func(r *http.Request) {
			if len(recorded) == 0 {
				t.Fatalf("%s %s is not recorded", r.Method, r.URL.Path)
			}
			var of []string
			for _, c := range recorded {
				of = append(of, c.Step)
				at := s.path(c.Resource, c.Name)
				sent := r.URL.Path
				if r.Method == http.MethodPost {
					sent += "/" + path.Base(c.Name)
				}
				if verbs[c.Verb] != r.Method || at != sent || c.Back {
					t.Errorf("recorded is %s %s, back %t, and sent %s %s", c.Verb, at, c.Back, r.Method, r.URL.Path)
				}
				if !bytes.Equal(c.Before, s.objects[at]) {
					t.Errorf("%s %s: recorded before is %s, and stored is %s", c.Verb, at, c.Before, s.objects[at])
				}
				if (c.After == nil) != (c.Verb == repair.VerbDelete) {
					t.Errorf("%s %s: recorded after is %s", c.Verb, at, c.After)
				}
			}
			if !slices.Equal(of, steps) && (len(of) != 1 || !slices.Contains(steps, of[0])) {
				t.Errorf("%s %s is recorded for the steps %v", r.Method, r.URL.Path, of)
			}
			last := recorded[len(recorded)-1]
			recorded = nil
			if last.After == nil {
				return
			}
			// The write is carried out on a copy.
			body, err := io.ReadAll(r.Body)
			must(t, err)
			r.Body = io.NopCloser(bytes.NewReader(body))
			other := &small{&memory{t: t, objects: map[string]json.RawMessage{}}, s.group}
			for at, o := range s.objects {
				other.objects[at] = o
			}
			if code, _ := other.write(r.Method, r.URL.Path, body); code >= 300 {
				t.Errorf("%s %s: %d", r.Method, r.URL.Path, code)
			}
			at := s.path(last.Resource, last.Name)
			var after map[string]any
			must(t, json.Unmarshal(last.After, &after))
			if got := other.get(at)["spec"]; !reflect.DeepEqual(got, after["spec"]) {
				t.Errorf("%s %s: recorded after is %v, and written is %v", last.Verb, at, after["spec"], got)
			}
		})))
		for n := range all {
			s, k, failed := world(t), 0, false
			err := call(s, s.recording(recorderFunc(func(c repair.Change) error {
				if k++; k > n && !c.Back {
					failed = true
					return errors.New("the disk is full")
				}
				return nil
			}), func(r *http.Request) {
				if failed && r.Method != http.MethodPatch {
					t.Errorf("after record %d failed, it sent %s %s", n+1, r.Method, r.URL.Path)
				}
			}))
			if err == nil || !strings.Contains(err.Error(), "the disk is full") || errors.Is(err, repair.ErrChanged) {
				t.Errorf("record %d fails: got %v", n+1, err)
			}
		}
	})
}

// TestMissingRights: the API server is asked for each right of a kind of step, by the resource's
// name in its group, and each right that it denies is named with its kinds and the reason.
func TestMissingRights(t *testing.T) {
	type review struct {
		Kind string `json:"kind"`
		Spec struct {
			ResourceAttributes struct{ Namespace, Verb, Group, Resource, Subresource, Name string }
		} `json:"spec"`
	}
	for name, c := range map[string]struct {
		kind   repair.Kind
		denied string // the right that is denied
		answer string
		want   string
	}{
		"a handle":                     {repair.DeleteHandle, "delete crd.projectcalico.org/ipamhandles/", `"reason":"no rule"`, "the right to delete ipamhandles.crd.projectcalico.org (for delete-handle): no rule"},
		"an error instead of a reason": {repair.DeleteHandle, "get crd.projectcalico.org/ipamhandles/", `"evaluationError":"no role"`, "the right to get ipamhandles.crd.projectcalico.org (for delete-handle): no role"},
		"no reason":                    {repair.DeleteHandle, "patch crd.projectcalico.org/ipamhandles/", `"reason":""`, "the right to patch ipamhandles.crd.projectcalico.org (for delete-handle)"},
		"an eviction":                  {repair.EvictPod, "create /pods/eviction", `"reason":""`, "the right to create pods/eviction (for evict-pod)"},
		"a new Lease":                  {repair.EvictPod, "create coordination.k8s.io/leases/ in kube-system", `"reason":""`, "the right to create leases.coordination.k8s.io in kube-system (for evict-pod)"},
		"the Lease":                    {repair.EvictPod, "update coordination.k8s.io/leases/ in kube-system named " + repair.LeaseName, `"reason":""`, "the right to update leases.coordination.k8s.io in kube-system (for evict-pod)"},
	} {
		s, asked := newSmall(t, testcluster.CRDv1), false
		answer := func(r *http.Request) *http.Response {
			if path.Base(r.URL.Path) != "selfsubjectaccessreviews" {
				return nil
			}
			var v review
			must(t, json.NewDecoder(r.Body).Decode(&v))
			a := v.Spec.ResourceAttributes
			right := fmt.Sprintf("%s %s/%s/%s", a.Verb, a.Group, a.Resource, a.Subresource)
			if a.Namespace != "" {
				right += " in " + a.Namespace
			}
			if a.Name != "" {
				right += " named " + a.Name
			}
			denied := strings.TrimSuffix(c.denied, "/")
			if strings.TrimSuffix(strings.Replace(right, "/ in", " in", 1), "/") == strings.Replace(denied, "/ in", " in", 1) {
				asked = true
				return response(http.StatusCreated, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false,`+c.answer+`}}`)
			}
			return response(http.StatusCreated, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true,"reason":"a rule"}}`)
		}
		missing, err := s.answering(answer).MissingRights(t.Context(), []*repair.StepKind{planner.KindOf(c.kind)}, false)
		must(t, err)
		var got []string
		for _, m := range missing {
			got = append(got, m.String())
		}
		if !asked || !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: asked %t, got %q", name, asked, got)
		}
	}
	for name, answer := range map[string]func(*http.Request) *http.Response{
		"refused": func(*http.Request) *http.Response { return refusal(http.StatusForbidden, "x") },
		"another object": func(*http.Request) *http.Response {
			return response(http.StatusCreated, `{"kind":"Status","status":{"allowed":true}}`)
		},
		"no object": func(*http.Request) *http.Response { return response(http.StatusCreated, `{`) },
	} {
		s := newSmall(t, testcluster.CRDv1)
		if missing, err := s.answering(answer).MissingRights(t.Context(), []*repair.StepKind{planner.KindOf(repair.DeleteHandle)}, false); err == nil || missing != nil {
			t.Errorf("%s: got %v, %v", name, missing, err)
		}
	}
}

// TestReleasedTogether: of several addresses, each is released unless it has changed itself, and
// each gets an error of its own.
func TestReleasedTogether(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	errs := s.writer(s.group).ReleaseIPs(t.Context(), s.blockRef(inUse), []repair.ReleaseOptions{
		{Step: "1", Ordinal: 1, Handle: "other", Sequence: 1}, {Step: "2", Ordinal: leaked, Handle: "gone", Sequence: leaked}, {Step: "3", Ordinal: leaked, Handle: "gone", Sequence: leaked},
	})
	if errs[1] != nil {
		t.Error(errs[1])
	}
	for i, ordinal := range map[int]int{0: 1, 2: leaked} {
		if !errors.Is(errs[i], repair.ErrChanged) || !strings.Contains(errs[i].Error(), fmt.Sprintf("releasing ordinal %d of block 10-64-0-0-26: ", ordinal)) {
			t.Errorf("address %d: %v", i+1, errs[i])
		}
	}
	spec := s.get(s.path(blocks.Blocks, blocks.BlockName(inUse)))["spec"].(map[string]any)
	if at := spec["allocations"].([]any); at[1] == nil || at[leaked] != nil || len(spec["attributes"].([]any)) != 1 {
		t.Errorf("the block is %v", spec)
	}

	s = newSmall(t, testcluster.CRDv1)
	for i, err := range s.writer(s.group).ReleaseIPs(t.Context(), s.blockRef(inUse), []repair.ReleaseOptions{{Ordinal: 0}, {Ordinal: 2}}) {
		if !errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
			t.Errorf("free address %d: %v, wrote %v", i+1, err, s.writes)
		}
	}
}

// TestHandleOfSeveralBlocks: a handle that counts addresses of another block stays.
func TestHandleOfSeveralBlocks(t *testing.T) {
	s, other := newSmall(t, testcluster.CRDv1), "10.64.3.0/26"
	at := s.path(blocks.Handles, "gone")
	s.edit(at, func(o map[string]any) { o["spec"].(map[string]any)["block"].(map[string]any)[other] = 1 })
	errs := s.writer(s.group).ReleaseIPs(t.Context(), s.blockRef(inUse), []repair.ReleaseOptions{{Ordinal: leaked, Handle: "gone", Sequence: leaked}})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	h := s.get(at)
	if h == nil {
		t.Fatal("the handle is deleted")
	}
	if got := fmt.Sprint(h["spec"].(map[string]any)["block"]); got != "map["+other+":1]" {
		t.Errorf("the handle counts %s", got)
	}
}

// TestUnpinned: an object without a name, UID or resourceVersion is not written.
func TestUnpinned(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	for field, clear := range map[string]func(*repair.ObjectRef){
		"name":            func(r *repair.ObjectRef) { r.Name = "" },
		"UID":             func(r *repair.ObjectRef) { r.UID = "" },
		"resourceVersion": func(r *repair.ObjectRef) { r.ResourceVersion = "" },
	} {
		ref := s.ref(blocks.Handles, orphan)
		clear(&ref)
		if err := s.writer(s.group).DeleteHandle(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "is not pinned") || len(s.writes) > 0 {
			t.Errorf("without %s: %v, wrote %v", field, err, s.writes)
		}
	}
}

// TestReleasedOfLargeBlock: addresses whose release together takes more operations than the API
// server accepts are left for another write.
func TestReleasedOfLargeBlock(t *testing.T) {
	large, of := netip.MustParsePrefix("10.80.0.0/21"), map[int]string{}
	for o := range 2048 {
		of[o] = fmt.Sprint("h", o)
	}
	s := newSmall(t, testcluster.CRDv1)
	s.block(large, "host:n1", of)
	at := s.path(blocks.Blocks, blocks.BlockName(large))
	s.edit(at, func(o map[string]any) { delete(o["spec"].(map[string]any), "unallocated") })
	var all []repair.ReleaseOptions
	for o := range 4 {
		all = append(all, repair.ReleaseOptions{Ordinal: o, Handle: of[o], Sequence: uint64(o)})
	}
	errs := s.writer(s.group).ReleaseIPs(t.Context(), s.blockRef(large), all)
	for o, err := range errs {
		if later := o >= 2; later != (err != nil) || later && !errors.Is(err, repair.ErrChanged) {
			t.Errorf("address %d: %v", o, err)
		}
	}
	spec := s.get(at)["spec"].(map[string]any)
	if got := fmt.Sprint(spec["unallocated"]); got != "[0 1]" {
		t.Errorf("free are %s", got)
	}
	if index := spec["allocations"].([]any)[2]; index != float64(0) || len(spec["attributes"].([]any)) != 2046 {
		t.Errorf("ordinal 2 has attributes %v", index)
	}
}
