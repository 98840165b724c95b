package workloads_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/workloads"
)

// memory answers as an API server with a Lease, a pod of UID u and a node does, and keeps what
// is written to the pod and the node.
type memory struct {
	node   string
	wrote  []string
	bodies [][]byte
	// answer returns the status code of an answer other than the usual one, and its text, or 0.
	answer func(r *http.Request) (code int, text string)
}

func (m *memory) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	code, text := http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	switch isLease := strings.Contains(r.URL.Path, "/leases"); {
	case isLease && r.Method == http.MethodGet:
		code, text = http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	case isLease && r.Method != http.MethodDelete:
		text = string(body)
	case isLease:
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/pods/"):
		text = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"web","uid":"u"}}`
	case r.Method == http.MethodGet:
		text = m.node
	default:
		m.wrote, m.bodies = append(m.wrote, r.Method+" "+r.URL.Path), append(m.bodies, body)
	}
	if m.answer != nil {
		if c, says := m.answer(r); c != 0 {
			code, text = c, says
		}
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (m *memory) client(t *testing.T) *workloads.Client {
	t.Helper()
	return m.recording(t, &taken{})
}

func (m *memory) recording(t *testing.T, j repair.Recorder) *workloads.Client {
	t.Helper()
	cfg := &rest.Config{Host: "http://memory.invalid", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return m })
	w, err := workloads.New(cfg, j)
	must(t, err)
	h, err := w.Impatient().AcquireLease(t.Context(), func(string) {})
	must(t, err)
	t.Cleanup(h.Release)
	return w
}

// TestEvictionNamesThePod: the eviction names the pod's UID, so that a new pod with the same name
// is not evicted.
func TestEvictionNamesThePod(t *testing.T) {
	m := &memory{}
	must(t, m.client(t).Evict(t.Context(), "shop", "web", "u"))
	if len(m.wrote) != 1 || m.wrote[0] != "POST /api/v1/namespaces/shop/pods/web/eviction" {
		t.Fatalf("it wrote %v", m.wrote)
	}
	var e policyv1.Eviction
	must(t, json.Unmarshal(m.bodies[0], &e))
	if o := e.DeleteOptions; o == nil || o.Preconditions == nil || o.Preconditions.UID == nil || *o.Preconditions.UID != "u" {
		t.Errorf("of any UID: %s", m.bodies[0])
	}
}

// TestNodeIsOurs: a cordon is taken back from the node that the plan means, if the node bears
// the mark of the same run, and under the condition that it still does.
func TestNodeIsOurs(t *testing.T) {
	const ours = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"7","annotations":{"calico-audit/consolidation":"a b"}},"spec":{"unschedulable":true}}`
	for name, c := range map[string]struct {
		node    string
		changed bool
		writes  bool
	}{
		"ours":                       {ours, false, true},
		"another run's":              {strings.Replace(ours, "a b", "c d", 1), false, false},
		"people's":                   {strings.Replace(ours, `"calico-audit/consolidation":"a b"`, "", 1), false, false},
		"another node of that name":  {strings.Replace(ours, `"uid":"u"`, `"uid":"v"`, 1), true, false},
		"ours, and uncordoned since": {strings.Replace(ours, `"unschedulable":true`, "", 1), false, true},
	} {
		m := &memory{node: c.node}
		err := m.client(t).Uncordon(t.Context(), repair.ObjectRef{Name: "n1", UID: "u"}, "a b")
		if errors.Is(err, repair.ErrChanged) != c.changed || err != nil && !c.changed || len(m.wrote) > 0 != c.writes {
			t.Errorf("%s: %v, wrote %v", name, err, m.wrote)
		}
		if !c.writes || len(m.bodies) == 0 {
			continue
		}
		for _, test := range []string{`{"op":"test","path":"/metadata/uid","value":"u"}`, `{"op":"test","path":"/metadata/resourceVersion","value":"7"}`, `{"op":"test","path":"/metadata/annotations/calico-audit~1consolidation","value":"a b"}`} {
			if !strings.Contains(string(m.bodies[0]), test) {
				t.Errorf("%s: %s is no condition of %s", name, test, m.bodies[0])
			}
		}
	}
}

// TestOneMarkPerNode: a cordon does not change a cordon by another client, nor the mark of another
// run. That run needs its mark to remove its cordon.
func TestOneMarkPerNode(t *testing.T) {
	const node = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"7","annotations":{%s}},"spec":{%s}}`
	for name, c := range map[string]struct {
		mark, spec      string
		changed, writes bool
	}{
		"unmarked":                      {``, ``, false, true},
		"ours already":                  {`"calico-audit/consolidation":"a b"`, `"unschedulable":true`, false, false},
		"another run's":                 {`"calico-audit/consolidation":"c d"`, `"unschedulable":true`, true, false},
		"another run's, and uncordoned": {`"calico-audit/consolidation":"c d"`, ``, true, false},
		"people's":                      {``, `"unschedulable":true`, true, false},
		"uncordoned, with our mark":     {`"calico-audit/consolidation":"a b"`, ``, true, false},
	} {
		m := &memory{node: fmt.Sprintf(node, c.mark, c.spec)}
		err := m.client(t).Cordon(t.Context(), repair.ObjectRef{Name: "n1", UID: "u"}, "a b")
		if errors.Is(err, repair.ErrChanged) != c.changed || err != nil && !c.changed || len(m.wrote) > 0 != c.writes {
			t.Errorf("%s: %v, wrote %v", name, err, m.wrote)
		}
	}
}

// TestCordonPatches: a cordon adds its mark to the annotations of a node, and creates them for a node
// without any.
func TestCordonPatches(t *testing.T) {
	for annotations, want := range map[string]string{
		``:                         `{"op":"add","path":"/metadata/annotations","value":{"calico-audit/consolidation":"a b"}},{"op":"add","path":"/spec/unschedulable","value":true}]`,
		`,"annotations":{"a":"b"}`: `{"op":"add","path":"/metadata/annotations/calico-audit~1consolidation","value":"a b"},{"op":"add","path":"/spec/unschedulable","value":true}]`,
	} {
		m := &memory{node: `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"7"` + annotations + `}}`}
		must(t, m.client(t).Cordon(t.Context(), repair.ObjectRef{Name: "n1", UID: "u"}, "a b"))
		if got := string(m.bodies[0]); !strings.HasSuffix(got, want) {
			t.Errorf("with %q: %s", annotations, got)
		}
	}
}

// TestNothingWithoutLease: a client without the Lease of a run writes nothing.
func TestNothingWithoutLease(t *testing.T) {
	m := &memory{node: `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"7"}}`}
	cfg := &rest.Config{Host: "http://memory.invalid", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return m })
	w, err := workloads.New(cfg, nil)
	must(t, err)
	w = w.Impatient()
	for what, call := range map[string]func() error{
		"evicting":  func() error { return w.Evict(t.Context(), "shop", "web", "u") },
		"cordoning": func() error { return w.Cordon(t.Context(), repair.ObjectRef{Name: "n1", UID: "u"}, "a b") },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "nothing is written without the Lease") || len(m.wrote) > 0 {
			t.Errorf("%s: %v, wrote %v", what, err, m.wrote)
		}
	}
	h, err := w.AcquireLease(t.Context(), func(string) {})
	must(t, err)
	must(t, w.Evict(t.Context(), "shop", "web", "u")) // without a journal
	h.Release()
	if err := w.Evict(t.Context(), "shop", "web", "u"); err == nil || len(m.wrote) != 1 {
		t.Errorf("after the release: %v, wrote %v", err, m.wrote)
	}
}
