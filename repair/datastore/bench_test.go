package datastore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// Most tests of this package write to a real API server; see internal/testcluster.

// sampled returns a function that selects one in n cases at random. The seed is logged.
func sampled(t *testing.T, n int) func() bool {
	t.Helper()
	if testenv.EveryCase() {
		return func() bool { return true }
	}
	r := testenv.Rand(t)
	return func() bool { return r.IntN(n) == 0 }
}

// someSteps returns all steps, or a third of them as a sample.
func someSteps(t *testing.T) []step {
	t.Helper()
	return testenv.Sample(t, len(steps)/3, steps)
}

// bench is a cluster to write to, in one of Calico's API groups.
type bench struct {
	*testing.T
	*testcluster.Cluster
	group testcluster.Group
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func calicoNet(p netip.Prefix) cnet.IPNet {
	_, n, err := cnet.ParseCIDR(p.String())
	if err != nil {
		panic(err)
	}
	return *n
}

// writer returns a writer, with an optional transport for the test. Each of its writes
// must be conditional.
func (b *bench) writer(wrap func(http.RoundTripper) http.RoundTripper, recorder repair.Recorder) *datastore.Writer {
	b.Helper()
	cfg := rest.CopyConfig(b.Config)
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	cfg.Wrap(testcluster.Conditional(b.T))
	k, err := datastore.New(cfg, string(b.group), datastore.Options{Recorder: recorder})
	must(b.T, err)
	return k.Impatient()
}

// ref pins an object in its current version. A missing object gets made-up values.
func (b *bench) ref(r blocks.Resource, name string) repair.ObjectRef {
	b.Helper()
	o, err := b.Get(context.WithoutCancel(b.Context()), b.group.Resource(string(r)), "", name)
	if apierrors.IsNotFound(err) {
		return repair.ObjectRef{Resource: r, Name: name, UID: "gone", ResourceVersion: "1"}
	}
	must(b.T, err)
	return repair.ObjectRef{Resource: r, Name: name, UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}
}

func (b *bench) has(r blocks.Resource, name string) bool {
	b.Helper()
	for got := range b.contents() {
		if got == string(r)+"/"+name {
			return true
		}
	}
	return false
}

// claim creates a host's affinity by hand.
func (b *bench) claim(host string, cidr netip.Prefix, state blocks.AffinityState) {
	b.Helper()
	var deleted any = false
	if b.group == testcluster.CRDv1 {
		deleted = "false"
	}
	must(b.T, b.Create(b.Context(), b.group.Resource("blockaffinities"), map[string]any{
		"metadata": map[string]any{"name": blocks.AffinityName(host, cidr)},
		"spec": map[string]any{
			"cidr": cidr.String(), "node": host, "type": "host", "state": string(state), "deleted": deleted,
		},
	}))
}

// edit changes the spec of an object by hand.
func (b *bench) edit(r blocks.Resource, name string, change func(spec map[string]any)) {
	b.Helper()
	must(b.T, b.Edit(b.Context(), b.group.Resource(string(r)), "", name, func(o map[string]any) { change(o["spec"].(map[string]any)) }))
}

// spec returns the spec of an object.
func (b *bench) spec(r blocks.Resource, name string) map[string]any {
	b.Helper()
	o, err := b.Get(b.Context(), b.group.Resource(string(r)), "", name)
	must(b.T, err)
	return o.Object["spec"].(map[string]any)
}

// contents returns the IPAM objects without the fields that differ between runs: UIDs,
// versions, times and managed fields.
func (b *bench) contents() map[string]string {
	b.Helper()
	out := map[string]string{}
	for _, r := range []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs} {
		all, err := b.List(context.WithoutCancel(b.Context()), b.group.Resource(string(r)))
		must(b.T, err)
		for i := range all {
			o := all[i].Object
			meta := o["metadata"].(map[string]any)
			for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
				delete(meta, field)
			}
			// A new block's sequence number is the time of its claim. An address that is
			// recorded in it immediately has a sequence number relative to that.
			spec, _ := o["spec"].(map[string]any)
			sequences, _ := spec["sequenceNumberForAllocation"].(map[string]any)
			attributes, _ := spec["attributes"].([]any)
			if spec["affinity"] == nil {
				delete(spec, "affinity") // null in etcd
			}
			switch {
			case r != blocks.Blocks || sequences == nil:
			case len(sequences) == 1 && len(attributes) == 1 && attributes[0].(map[string]any)["handle_id"] == restored:
				for ordinal, at := range sequences {
					sequences[ordinal] = spec["sequenceNumber"].(int64) - at.(int64)
				}
				fallthrough
			case len(sequences) == 0:
				delete(spec, "sequenceNumber")
				delete(spec, "affinityClaimTime")
			}
			text, err := json.MarshalIndent(o, "", " ")
			must(b.T, err)
			out[string(r)+"/"+all[i].GetName()] = string(text)
		}
	}
	return out
}

func same(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// tap is a transport that records every request of a writer and can kill the writer.
type tap struct {
	next http.RoundTripper
	// before is called before each request with its number, from 0.
	before func(n int, r *http.Request)
	// dieAt is the number of the write, from 1, at which the writer dies. That write is
	// not sent, or, if after is set, it is sent and its answer is lost. Later requests
	// are not sent.
	dieAt int
	after bool
	// answer replaces the response to write dieAt. The writer then stays alive.
	answer func() (*http.Response, error)

	mu     sync.Mutex
	sent   []string
	writes []string
	dead   bool
}

func (p *tap) wrap(next http.RoundTripper) http.RoundTripper {
	p.next = next
	return p
}

// RoundTrip sends a request unless the writer is dead.
func (p *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	n, dead := len(p.sent), p.dead
	p.sent = append(p.sent, r.Method+" "+r.URL.Path)
	last := false
	if r.Method != http.MethodGet && !dead {
		p.writes = append(p.writes, r.Method+" "+r.URL.Path)
		last = len(p.writes) == p.dieAt
		p.dead = last && p.answer == nil
	}
	p.mu.Unlock()
	if p.before != nil {
		p.before(n, r)
	}
	if dead || last && !p.after {
		return p.lost()
	}
	resp, err := p.next.RoundTrip(r)
	if last {
		if err == nil {
			_ = resp.Body.Close()
		}
		return p.lost()
	}
	return resp, err
}

// lost returns the result for a lost request or response.
func (p *tap) lost() (*http.Response, error) {
	if p.answer != nil {
		return p.answer()
	}
	return nil, errDead
}

var errDead = fmt.Errorf("the writer is dead")

// journal keeps the recorded changes.
type journal struct{ changes []repair.Change }

// Record implements repair.Recorder.
func (j *journal) Record(c repair.Change) error {
	j.changes = append(j.changes, c)
	return nil
}

func (j *journal) String() string {
	var out []string
	for _, c := range j.changes {
		out = append(out, c.Verb+" "+string(c.Resource)+"/"+c.Name)
	}
	return strings.Join(out, ", ")
}
