package cluster

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// A notary writes increasing numbers into objects of the cluster, and records when each was
// certainly stored. Any snapshot of a certain time must contain the number of that time.
type notary struct {
	c      *testcluster.Cluster
	client *http.Client
	stop   chan struct{}
	once   sync.Once
	done   sync.WaitGroup

	mu    sync.Mutex
	tried int
	acts  []act
}

// act records that a number was in the datastore by a time of the server's clock.
type act struct {
	number int
	by     time.Time
}

const notaryNamespace = "notary"

// notarize starts a notary, which writes until its end method is called. Writes that fail
// during an outage are skipped.
func notarize(t *testing.T, c *testcluster.Cluster) *notary {
	t.Helper()
	client, err := rest.HTTPClientFor(c.Config)
	must(t, err)
	client.Timeout = 3 * time.Second
	n := &notary{c: c, client: client, stop: make(chan struct{})}
	must(t, c.Create(t.Context(), testcluster.Core[0], map[string]any{"metadata": map[string]any{"name": notaryNamespace}}))
	must(t, c.Create(t.Context(), testcluster.CRDv1.Resource("bgppeers"), map[string]any{
		"metadata": map[string]any{"name": notaryNamespace}, "spec": map[string]any{"peerIP": "172.16.0.9", "asNumber": int64(0)},
	}))
	n.done.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-n.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			n.write(i)
		}
	})
	t.Cleanup(n.end)
	return n
}

func (n *notary) end() {
	n.once.Do(func() { close(n.stop) })
	n.done.Wait()
}

// write writes a number into a BGPPeer, and then into a label of a namespace.
func (n *notary) write(i int) {
	n.mu.Lock()
	n.tried = i
	n.mu.Unlock()
	if _, ok := n.patch("/apis/crd.projectcalico.org/v1/bgppeers/"+notaryNamespace, fmt.Sprintf(`{"spec":{"asNumber":%d}}`, i)); !ok {
		return
	}
	date, ok := n.patch("/api/v1/namespaces/"+notaryNamespace, fmt.Sprintf(`{"metadata":{"labels":{"number":"%d"}}}`, i))
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.acts = append(n.acts, act{i, date.Add(time.Second)}) // the header has whole seconds
}

func (n *notary) patch(path, body string) (time.Time, bool) {
	req, err := http.NewRequest(http.MethodPatch, n.c.Config.Host+path, strings.NewReader(body))
	if err != nil {
		return time.Time{}, false
	}
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := n.client.Do(req)
	if err != nil {
		return time.Time{}, false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	date, err := http.ParseTime(resp.Header.Get("Date"))
	return date, err == nil && resp.StatusCode == http.StatusOK
}

// bounds returns the lowest and the highest number that a state of the given time can have.
func (n *notary) bounds(at time.Time) (least, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.acts {
		if !a.by.After(at) {
			least = a.number
		}
	}
	return least, n.tried
}

// A witness polls a watch's snapshots, and checks their times against the notary.
type witness struct {
	t     *testing.T
	w     *Watch
	n     *notary
	stop  chan struct{}
	done  sync.WaitGroup
	looks int
	last  time.Time
}

func observe(t *testing.T, w *Watch, n *notary) *witness {
	v := &witness{t: t, w: w, n: n, stop: make(chan struct{})}
	v.done.Go(func() {
		for {
			select {
			case <-v.stop:
				return
			case <-time.After(25 * time.Millisecond):
				v.look()
			}
		}
	})
	t.Cleanup(v.end)
	return v
}

func (v *witness) end() {
	select {
	case <-v.stop:
	default:
		close(v.stop)
	}
	v.done.Wait()
}

func (v *witness) look() {
	s := v.w.Snapshot()
	if s == nil {
		return
	}
	at := s.Cluster.TakenAt
	if at.Before(v.last) {
		v.t.Errorf("the clock went from %v back to %v", v.last, at)
	}
	v.last = at
	least, most := v.n.bounds(at)
	check := func(r blocks.Resource, number int) {
		if _, missing := s.Missing(r); !missing && (number < least || number > most) {
			v.t.Errorf("the snapshot of %s has number %d in its %s, want %d to %d", at.Format("15:04:05"), number, r, least, most)
		}
	}
	for i := range s.BGPPeers {
		if p := &s.BGPPeers[i]; p.Name == notaryNamespace {
			check(blocks.BGPPeers, int(p.ASNumber))
			v.looks++
		}
	}
	for i := range s.Namespaces {
		if ns := &s.Namespaces[i]; ns.Name == notaryNamespace {
			number, _ := strconv.Atoi(ns.Labels["number"])
			check(blocks.Namespaces, number)
		}
	}
}

// churnTime returns how long churn lasts: some seconds, or the value of an environment
// variable.
func churnTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("CALICO_AUDIT_CHURN")
	if text == "" {
		return 5 * time.Second // used three times; "make soak" takes longer
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

// churn creates and deletes pods and nodes through Calico's own IPAM until stop is closed.
// It ignores errors, because the server may be unavailable.
func churn(t *testing.T, c *testcluster.Cluster, stop <-chan struct{}) *sync.WaitGroup {
	t.Helper()
	s, err := seeding.New(c)
	must(t, err)
	ctx := t.Context()
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		var pods []seeding.Pod
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-time.After(20 * time.Millisecond): // calls fail at once while the server is away
			}
			node := fmt.Sprintf("n%d", 1+r.IntN(4))
			switch n := r.IntN(12); {
			case n < 5 || len(pods) == 0:
				p := seeding.Pod{Namespace: "shop", Name: fmt.Sprintf("churn-%d", i), Node: node}
				if _, err := s.Pod(ctx, p); err == nil {
					pods = append(pods, p)
				}
			case n < 9:
				k := r.IntN(len(pods))
				if err := s.DeletePod(ctx, pods[k].Namespace, pods[k].Name, n < 8); err == nil {
					pods = append(pods[:k], pods[k+1:]...)
				}
			case n < 10:
				_ = c.Edit(ctx, testcluster.Core[1], "", node, func(o map[string]any) {
					o["metadata"].(map[string]any)["labels"] = map[string]any{"turn": strconv.Itoa(i)}
				})
			case n < 11:
				_ = s.TerminatePod(ctx, "shop", pods[r.IntN(len(pods))].Name, r.IntN(2) == 0)
			default:
				if s.DeleteNode(ctx, "n4") == nil {
					_ = s.Node(ctx, seeding.Node{Name: "n4"})
				}
			}
		}
	})
	return &wg
}

// underChurn checks a watch's clock against a notary during churn. The returned function
// ends the churn, and waits until the watch's snapshot equals a reading.
func underChurn(t *testing.T, w *Watch, c *testcluster.Cluster) (*witness, func() *blocks.Snapshot) {
	t.Helper()
	n := notarize(t, c)
	v := observe(t, w, n)
	stop := make(chan struct{})
	churned := churn(t, c, stop)
	return v, func() *blocks.Snapshot {
		t.Helper()
		close(stop)
		churned.Wait()
		n.end()
		s := becomesEqual(t, w, c.Config)
		v.end()
		return s
	}
}
