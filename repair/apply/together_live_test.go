package apply_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// requests counts the requests for single blocks, by block.
type requests struct {
	next http.RoundTripper
	mu   sync.Mutex
	n    map[string]int // by method and block
}

func (c *requests) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, name, ok := strings.Cut(r.URL.Path, "/ipamblocks"); ok {
		name = strings.TrimPrefix(name, "/")
		if selector, err := url.QueryUnescape(r.URL.Query().Get("fieldSelector")); err == nil && name == "" {
			name = strings.TrimPrefix(selector, "metadata.name=")
		}
		c.mu.Lock()
		c.n[r.Method+" "+name]++
		c.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

// TestReleasesTogether: a plan that releases many addresses reads each block a few times and writes
// it once. Each address has its own journal lines, with its change recorded before the write, so
// that it can be undone.
func TestReleasesTogether(t *testing.T) {
	l := newLab(t)
	const each = 12
	for i := range 3 {
		for j := range each {
			name := fmt.Sprintf("leaver-%d-%d", i, j)
			l.pod(fmt.Sprintf("n%d", i+1), name)
			l.must(l.s.DeletePod(t.Context(), "default", name, false))
		}
	}
	l.age()
	count := &requests{n: map[string]int{}}
	cfg := rest.CopyConfig(l.c.Config)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { count.next = rt; return count })
	reader, err := cluster.NewKubernetes(cfg, cluster.KubernetesOptions{})
	l.must(err)
	p := l.planOf(repair.Request{LeakedIPs: true})
	if len(p.Steps) != 3*each {
		t.Fatalf("%d steps, refused %+v", len(p.Steps), p.Refused)
	}
	l.reader.Kubernetes = reader
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	w, err := datastore.New(cfg, string(l.group), datastore.Options{Recorder: j})
	l.must(err)
	r, err := apply.Run(t.Context(), p, l.reader, w, j, apply.Options{Wait: true, Sleep: l.passes})
	l.must(err)
	if r.Count(repair.Done) != 3*each {
		t.Fatal(became(r))
	}
	for i := range 3 {
		name := blocks.BlockName(labBlock(i))
		// Reads happen before and after the wait for the second observation, by the writer, and
		// after the write.
		if reads, writes := count.n["GET "+name], count.n["PATCH "+name]; reads > 4 || writes != 1 {
			t.Errorf("block %s is read %d times and written %d times for %d addresses", name, reads, writes, each)
		}
	}
	t.Logf("requests about blocks: %v", count.n)
	f, err := journal.Read(r.Journal)
	l.must(err)
	for _, s := range p.Steps {
		log := f.Log(s.ID)
		if log.Ended != repair.Done || len(log.Changes) < 2 || log.Changes[0].Resource != blocks.Blocks || !log.Freed {
			t.Errorf("%s: the journal says %s, %d changes, freed %v", s.ID, log.Ended, len(log.Changes), log.Freed)
		}
	}
	l.settled()
	if undone := l.undo(r); undone.Count(repair.Done) != 3*each {
		t.Errorf("taken back: %v", became(undone))
	}
	l.age()
	if again := l.planOf(repair.Request{LeakedIPs: true}); len(again.Steps) != 3*each {
		t.Errorf("found again: %d", len(again.Steps))
	}
}
