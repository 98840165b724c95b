package source

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
)

type aNode struct{}

func (aNode) Read(context.Context) (*blocks.Snapshot, error) {
	s := &blocks.Snapshot{Nodes: []blocks.Node{{Meta: blocks.Meta{Name: "n1"}}}}
	s.Cluster.Live, s.Cluster.TakenAt = true, time.Now()
	return s, nil
}

func (n aNode) Reread(ctx context.Context, _ *blocks.Snapshot, _ []blocks.Resource) (*blocks.Snapshot, error) {
	return n.Read(ctx)
}

// TestSourcesOfViewsAreReadApart: if a file is missing at the second reading, agents are
// still asked again. Before a write, earlier views are not used.
func TestSourcesOfViewsAreReadApart(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/pods") {
			asked.Add(1)
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	k, err := cluster.NewKubernetes(&rest.Config{Host: server.URL}, cluster.KubernetesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "n1.json")
	if err := os.WriteFile(path, []byte(`[{"dst":"10.0.0.0/26","gateway":"192.0.2.1","dev":"eth0","protocol":"bird"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &HostReader{inner: aNode{}, paths: []string{path}, agents: k, ask: agents.Options{Timeout: time.Second}, show: func(string) {}}
	r.opts.At = time.Now()
	first, err := r.Read(t.Context())
	if err != nil || len(first.Hosts.Views) != 1 || len(first.Hosts.Gaps) != 1 {
		t.Fatalf("%v, %+v", err, first)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	before, viewed := asked.Load(), r.viewed
	second, err := r.Reread(t.Context(), first, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h := second.Hosts; asked.Load() == before || len(h.Gaps) != 2 || len(h.Views) != 1 || !h.Views[0].Earlier {
		t.Errorf("agents were asked %d times, then %d: %+v", before, asked.Load(), h)
	}
	if r.viewed != viewed {
		t.Error("views of the first reading serve as new ones")
	}
	r.viewed = time.Time{}
	if err := r.Renew(t.Context(), second, second); err == nil {
		t.Error("views that could not be read again were renewed")
	}
}

// TestAgentsAreAskedForNewerViews: a view that an agent returns twice confirms nothing, and
// counts as an earlier one.
func TestAgentsAreAskedForNewerViews(t *testing.T) {
	taken := time.Now().UTC().Truncate(time.Second)
	var newerThan string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "/proxy") {
			newerThan = r.URL.Query().Get("newerThan")
			_, _ = fmt.Fprintf(w, `{"apiVersion":"calico-audit/v1alpha1","kind":"HostView","node":"n1","takenAt":%q,"routes":[],"namespaces":[]}`, taken.Format(time.RFC3339Nano))
			return
		}
		_ = json.NewEncoder(w).Encode(corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
			Items: []corev1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"},
				Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 9099}}}}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning},
			}},
		})
	}))
	defer server.Close()
	k, err := cluster.NewKubernetes(&rest.Config{Host: server.URL}, cluster.KubernetesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &HostReader{inner: aNode{}, agents: k, ask: agents.Options{Timeout: time.Minute}, show: func(string) {}}
	s, err := r.Read(t.Context())
	for _, c := range []struct {
		later     time.Duration
		newerThan string
		earlier   bool
	}{{0, "", false}, {0, taken.Format(time.RFC3339Nano), true}, {time.Millisecond, taken.Format(time.RFC3339Nano), false}} {
		if c.newerThan != "" {
			taken = taken.Add(c.later)
			s, err = r.Reread(t.Context(), s, nil)
		}
		if err != nil || len(s.Hosts.Views) != 1 || s.Hosts.Views[0].Earlier != c.earlier || newerThan != c.newerThan {
			t.Fatalf("%+v: %v, asked for newer than %q: %+v", c, err, newerThan, s.Hosts)
		}
	}
}
