package agents

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
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

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestDeadAgents: agents that hang or send endless responses do not delay healthy agents,
// and few of them are queried at once. Each is a gap with its reason.
func TestDeadAgents(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(t.Context()))
	const hanging, well = 6, 3
	var hung, most, settled atomic.Int64
	var silent atomic.Bool // the first healthy agent stops responding
	answers := make([]atomic.Int64, well)
	agent := func(name string, handler http.HandlerFunc) {
		t.Helper()
		must(t, s.Node(t.Context(), seeding.Node{Name: name}))
		server := httptest.NewTLSServer(handler)
		t.Cleanup(server.Close)
		port := int32(server.Listener.Addr().(*net.TCPAddr).Port)
		pods := c.Kube.CoreV1().Pods("kube-system")
		pod, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "agent-" + name, Labels: map[string]string{"app.kubernetes.io/name": "calico-audit-agent"}},
			Spec:       corev1.PodSpec{NodeName: name, HostNetwork: true, Containers: []corev1.Container{{Name: "agent", Image: "agent", Ports: []corev1.ContainerPort{{Name: "agent", ContainerPort: port, HostPort: port}}}}},
		}, metav1.CreateOptions{})
		must(t, err)
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		must(t, err)
	}
	for i := range hanging {
		agent(fmt.Sprintf("dead-%d", i), func(_ http.ResponseWriter, r *http.Request) {
			if n := hung.Add(1); settled.Load() > 0 && n > most.Load() {
				most.Store(n)
			}
			<-r.Context().Done()
			hung.Add(-1)
		})
	}
	agent("endless", func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 1<<16); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	for i := range well {
		agent(fmt.Sprintf("well-%d", i), func(w http.ResponseWriter, r *http.Request) {
			if i == 0 && silent.Load() {
				<-r.Context().Done()
				return
			}
			answers[i].Add(1)
			_, _ = fmt.Fprintf(w, `{"apiVersion":"calico-audit/v1alpha1","kind":"HostView","node":"well-%d","takenAt":%q,"routes":[],"namespaces":[]}`, i, time.Now().UTC().Format(time.RFC3339Nano))
		})
	}

	watch, err := cluster.NewWatch(c.Config, cluster.WatchOptions{})
	must(t, err)
	w := NewWatch(watch, WatchOptions{
		Options: Options{Selector: DefaultSelector, Timeout: 300 * time.Millisecond, TLS: trustingTestServers(t)}, Interval: 200 * time.Millisecond,
		Reader: func(s *blocks.Snapshot) Reader { return hostviews.OfAgent(s, hostviews.Options{}) },
	})
	w.turn.tick, w.turn.ordinary, w.turn.failing, w.turn.maxAnswer = 10*time.Millisecond, 5, 1, 1<<20
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	awaited := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it did not come about that %s: %+v", what, w.Counts())
			}
		}
	}
	awaited("each was asked once", func() bool { return w.Snapshot() != nil && w.Counts().Asked > hanging+well })
	awaited("those that hang are let go", func() bool { return hung.Load() <= 1 })
	settled.Store(1)
	var before [well]int64
	for i := range answers {
		before[i] = answers[i].Load()
	}
	awaited("those that are well were asked ten times more", func() bool {
		for i := range answers {
			if answers[i].Load() < before[i]+10 {
				return false
			}
		}
		return true
	})
	if n := most.Load(); n > 3 { // one, and those whose end is not noticed yet
		t.Errorf("%d that hang were asked at once", n)
	}
	if got := w.Counts(); got.Views != well || got.Missing != hanging+1 || got.Failed == 0 || got.Oldest.IsZero() {
		t.Errorf("counts: %+v", got)
	}
	var reasons []string
	for _, g := range w.Snapshot().Hosts.Gaps {
		reasons = append(reasons, g.Node+": "+g.Reason)
	}
	text := strings.Join(reasons, "\n")
	if strings.Count(text, "its agent did not answer within 300ms") != hanging || !strings.Contains(text, "endless: its answer has more than 1 MiB") || strings.Contains(text, "well-") {
		t.Errorf("gaps:\n%s", text)
	}

	// A view confirms a finding only if the agent was queried again and responded.
	silent.Store(true)
	again, err := w.Reread(t.Context(), w.Snapshot(), []blocks.Resource{blocks.Blocks}, []string{"well-0", "well-1"})
	must(t, err)
	earlier := map[string]bool{}
	for _, v := range again.Hosts.Views {
		earlier[v.Node] = v.Earlier
	}
	if old, there := earlier["well-0"]; !there || !old || earlier["well-1"] {
		t.Errorf("views of an earlier reading, by node: %v; want well-0 and not well-1", earlier)
	}
	for _, v := range w.Snapshot().Hosts.Views {
		if v.Earlier {
			t.Errorf("the view of %s is of an earlier reading in a snapshot that is not read again", v.Node)
		}
	}
}

// trustingTestServers returns a TLS that trusts the certificate of httptest's servers.
func trustingTestServers(t *testing.T) *TLS {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return &TLS{CAFile: file, ServerName: "example.com"}
}
