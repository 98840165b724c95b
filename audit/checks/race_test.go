package checks_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// lateList delays the list of one kind until all others were answered, and changes the cluster in
// between.
type lateList struct {
	next     http.RoundTripper
	late     string
	others   int
	change   func()
	mu       sync.Mutex
	answered map[string]bool
	ready    chan struct{}
	once     sync.Once
}

func (l *lateList) RoundTrip(req *http.Request) (*http.Response, error) {
	kind := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	if req.URL.Query().Get("limit") == "" {
		return l.next.RoundTrip(req) // discovery
	}
	if kind == l.late {
		select {
		case <-l.ready:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		l.once.Do(l.change)
		return l.next.RoundTrip(req)
	}
	resp, err := l.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body) // read completely before the cluster changes
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered[kind] = true; len(l.answered) == l.others {
		select {
		case <-l.ready:
		default:
			close(l.ready)
		}
	}
	return resp, err
}

// TestPodsThatStartWhileReading: after all kinds but one were read, a node joins and pods start
// with addresses of Calico's real IPAM. That must not cause findings, whichever kind was late.
func TestPodsThatStartWhileReading(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	others := -1 // excludes the late kind; KubeVirt's and Whereabouts' are not served
	for _, k := range decode.Kinds {
		if k.Foreign == "" {
			others++
		}
	}
	for _, late := range testenv.Sample(t, 2, []blocks.Resource{blocks.Blocks, blocks.Pods, blocks.Nodes, blocks.Affinities, blocks.Handles}) {
		t.Run(string(late), func(t *testing.T) {
			p := newPlay(t, c)
			p.pool("10.0.0.0/24", nil)
			p.node("n1")
			p.mustPods("n1", 3)
			p.must(c.Backdate(p.ctx, time.Hour))

			lists := &lateList{late: string(late), others: others, answered: map[string]bool{}, ready: make(chan struct{}), change: func() {
				p.node("n2")
				p.mustPods("n2", 9) // a second block of eight, too
				for _, name := range []string{"x", "y", "z"} {
					if _, err := p.pod("n1", name); err != nil {
						t.Error(err)
					}
				}
				p.must(p.s.DeletePod(p.ctx, "default", "n1-0", true))
			}}
			cfg := rest.CopyConfig(c.Config)
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { lists.next = rt; return lists })
			k, err := cluster.NewKubernetes(cfg, cluster.KubernetesOptions{})
			p.must(err)
			snap, err := k.Read(p.ctx)
			p.must(err)
			if !snap.Complete() {
				t.Fatalf("gaps: %v", snap.Gaps)
			}
			r := audit.Run(state.New(snap, state.Options{}), checks.All)
			if again := r.NeedsConfirmation(); len(again) > 0 {
				second, err := k.Reread(p.ctx, snap, again)
				p.must(err)
				r = audit.Confirm(r, audit.Run(state.New(second, state.Options{}), checks.All))
			}
			for _, f := range r.Findings {
				if f.Severity > state.Info {
					t.Errorf("%s %s: %s", f.Severity, f.Check, f.Message)
				}
			}
		})
	}
}
