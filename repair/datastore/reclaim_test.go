package datastore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/storm"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
)

// TestUnseenReclaim pauses Calico's own client in the middle of a claim, before each of
// its writes, and resumes it before each request of a step that deletes an affinity. The
// main case is a client that has found the affinity confirmed. It then uses the affinity
// without writing it, so the version does not show it. A failed claim must return an
// error, and a successful claim must have its affinity. At the latest after the node's
// next pod, an audit must find no new problem.
func TestUnseenReclaim(t *testing.T) {
	w := newWorld(t, testcluster.CRDv1)
	client := storm.NewClient(t, w.Cluster, "slow-client")
	ways := map[string]func(ctx context.Context, node string, cidr netip.Prefix) (bool, error){
		"a claim": func(ctx context.Context, node string, cidr netip.Prefix) (bool, error) {
			won, _, err := client.IPAM.ClaimAffinity(ctx, calicoNet(cidr), ipam.AffinityConfig{AffinityType: ipam.AffinityTypeHost, Host: node})
			return len(won) > 0, err
		},
		"an assignment": func(ctx context.Context, node string, _ netip.Prefix) (bool, error) {
			handle := seeding.Handle("default", "slow")
			_, _, err := client.IPAM.AutoAssign(ctx, ipam.AutoAssignArgs{
				Num4: 1, HandleID: &handle, Hostname: node, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
				Attrs: map[string]string{ipam.AttributeNode: node, ipam.AttributePod: "slow", ipam.AttributeNamespace: "default"},
			})
			return false, err
		},
	}
	for _, x := range []struct {
		step int
		node string
		cidr netip.Prefix
	}{{0, "n1", empty}, {2, "n3", noBlock}, {3, "n3", contested}} {
		for name, claim := range ways {
			t.Run(steps[x.step].name+", "+name, func(t *testing.T) {
				w := w.in(t)
				before, wanted := w.found(), sampled(t, 16)
				for write := 1; write <= 4; write++ {
					for gap := range maxRequests {
						if !wanted() {
							continue
						}
						r := &reclaim{world: w.in(t), step: steps[x.step], client: client, node: x.node, cidr: x.cidr, claim: claim}
						if !r.run(write, gap, before) {
							break
						}
					}
				}
			})
		}
	}
}

// maxRequests is more than any step needs.
const maxRequests = 20

type reclaim struct {
	*world
	step   step
	client *storm.Client
	node   string
	cidr   netip.Prefix
	claim  func(context.Context, string, netip.Prefix) (bool, error)
}

// found returns the findings of the restored world.
func (w *world) found() map[string]audit.Finding {
	w.restore()
	return w.findings()
}

// run pauses the client before one of its writes, and resumes it before a request of the
// step. It returns false if the step has fewer requests.
func (r *reclaim) run(write, gap int, before map[string]audit.Finding) bool {
	r.restoreFor(r.step)
	reached, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first := len(r.client.FaultProxy.Writes())
	r.client.FaultProxy.Pause(func(n int, _ storm.Write) bool {
		if n == first+write {
			close(reached)
			<-goOn
		}
		return true
	})
	var won bool
	var claimErr error
	go func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
		defer cancel()
		won, claimErr = r.claim(ctx, r.node, r.cidr)
	}()
	select {
	case <-reached:
	case <-ended: // the client has no such write
	}
	released := false
	release := func() {
		if !released {
			released = true
			close(goOn)
			<-ended
		}
	}
	defer release()
	x := &tap{before: func(n int, _ *http.Request) {
		if n == gap {
			release()
		}
	}}
	err := r.step.do(r.world, r.writer(x.wrap, nil))
	within := released
	release()
	r.client.FaultProxy.Pause(nil)

	when := fmt.Sprintf("the client went on from write %d before request %d", write, gap+1)
	if gap < len(x.sent) {
		when += " (" + x.sent[gap] + ")"
	}
	if err != nil && !errors.Is(err, repair.ErrChanged) {
		r.Errorf("%s: %v", when, err)
	}
	r.unharmed(when)
	if won && claimErr == nil {
		r.owned(when)
	}
	// Start the node's next pod.
	nextPod(r.node)(r.world)
	for _, f := range r.findings() {
		was, known := before[f.Fingerprint]
		// See DeleteAffinity: the client has already ended, so no one can notice this.
		if !within && claimErr != nil && f.Check == "block/no-affinity" && f.Subject.CIDR == r.cidr.String() {
			continue
		}
		if f.Severity >= state.Error && r.integrity(f) && (!known || was.Severity < f.Severity) {
			r.Errorf("%s (%v; the client: %t, %v): %s %s: %s", when, err, won, claimErr, f.Severity, f.Check, f.Message)
		}
	}
	return within
}

// owned fails the test if the block of a successful claim has no affinity of its node.
func (r *reclaim) owned(when string) {
	r.Helper()
	block, affinity := blocks.BlockName(r.cidr), blocks.AffinityName(r.node, r.cidr)
	if r.has(blocks.Blocks, block) && r.spec(blocks.Blocks, block)["affinity"] == "host:"+r.node && !r.has(blocks.Affinities, affinity) {
		r.Errorf("%s: the claim succeeded, and the block has no affinity", when)
	}
}

// TestAffinityIsKept checks that the same affinity gets its state back if the host turns
// out to own the block right after the affinity was set to pendingDeletion.
func TestAffinityIsKept(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		name := blocks.AffinityName("n3", noBlock)
		before := w.ref(blocks.Affinities, name)
		x := &tap{}
		x.before = func(_ int, r *http.Request) {
			if len(x.writes) == 1 && r.Method == http.MethodGet && !w.has(blocks.Blocks, blocks.BlockName(noBlock)) {
				must(t, w.Create(t.Context(), w.group.Resource("ipamblocks"), map[string]any{
					"metadata": map[string]any{"name": blocks.BlockName(noBlock)},
					"spec": map[string]any{
						"cidr": noBlock.String(), "affinity": "host:n3", "allocations": make([]any, 64), "unallocated": []any{}, "attributes": []any{},
						"sequenceNumber": int64(1), "sequenceNumberForAllocation": map[string]any{}, "deleted": false, "strictAffinity": false,
					},
				}))
			}
		}
		if err := w.drop(w.writer(x.wrap, nil), "n3", noBlock); !errors.Is(err, repair.ErrChanged) {
			t.Errorf("got %v", err)
		}
		if after := w.ref(blocks.Affinities, name); after.UID != before.UID || len(x.writes) != 2 {
			t.Errorf("the affinity was %s and is %s, after %v", before.UID, after.UID, x.writes)
		}
		if state := w.spec(blocks.Affinities, name)["state"]; state != "confirmed" {
			t.Errorf("the affinity is %v", state)
		}
	})
}

// TestDisownedMeanwhile checks an owner that confirms its affinity right before its block
// is disowned. It must not keep an affinity to a block without an owner.
func TestDisownedMeanwhile(t *testing.T) {
	w := newWorld(t, testcluster.CRDv1)
	x, claimed := &tap{}, false
	x.before = func(_ int, r *http.Request) {
		if !claimed && r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/ipamblocks/") {
			claimed = true
			claiming("off", orphaned)(w)
		}
	}
	if err := disown(w, w.writer(x.wrap, nil)); err != nil {
		t.Error(err)
	}
	if !claimed {
		t.Error("the node claimed nothing meanwhile")
	}
	if b := w.spec(blocks.Blocks, blocks.BlockName(orphaned)); b["affinity"] != nil || b["allocations"].([]any)[1] == nil {
		t.Errorf("the block is %v", b)
	}
	if name := blocks.AffinityName("off", orphaned); w.has(blocks.Affinities, name) {
		t.Errorf("the affinity is left: %v", w.spec(blocks.Affinities, name))
	}
	w.unharmed("afterwards")
}
