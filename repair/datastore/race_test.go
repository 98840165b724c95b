package datastore_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
)

// disturbance is a concurrent operation of Calico's own client on the objects of a step.
// It may fail.
type disturbance struct {
	name string
	do   func(w *world)
}

// newcomer starts a pod that requests a certain address.
func newcomer(node, addr string) func(*world) {
	return func(w *world) {
		addrs, err := w.seeder.Pod(w.Context(), seeding.Pod{
			Namespace: "default", Name: "newcomer", Node: node, Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + addr + `"]`},
		})
		if err == nil {
			w.live[addrs[0]] = seeding.Handle("default", "newcomer")
		}
	}
}

func claiming(node string, cidr netip.Prefix) func(*world) {
	return func(w *world) { _ = w.seeder.ClaimBlocks(w.Context(), node, cidr) }
}

func releasing(node string, cidr netip.Prefix) func(*world) {
	return func(w *world) { _ = w.seeder.ReleaseBlocks(w.Context(), node, cidr, true) }
}

func nextPod(node string) func(*world) {
	return func(w *world) {
		addrs, err := w.seeder.Pod(w.Context(), seeding.Pod{Namespace: "default", Name: "next", Node: node})
		if err == nil {
			w.live[addrs[0]] = seeding.Handle("default", "next")
		}
	}
}

// assign assigns an address on n1 under a handle.
func assign(handle string) func(*world) {
	const addr = "10.64.0.9"
	return func(w *world) {
		err := w.seeder.Calico.IPAM().AssignIP(w.Context(), ipam.AssignIPArgs{
			IP: cnet.MustParseIP(addr), HandleID: &handle, Hostname: "n1", Attrs: map[string]string{ipam.AttributeNode: "n1"},
		})
		if err == nil {
			w.live[netip.MustParseAddr(addr)] = handle
		}
	}
}

// both calls two functions in order.
func both(first, second func(*world)) func(*world) {
	return func(w *world) { first(w); second(w) }
}

func freed(addr string) func(*world) {
	return func(w *world) {
		_ = w.seeder.ReleaseIP(w.Context(), netip.MustParseAddr(addr))
		delete(w.live, netip.MustParseAddr(addr))
	}
}

func ended(pod string) func(*world) {
	return func(w *world) {
		must(w.T, w.seeder.DeletePod(w.Context(), "default", pod, true))
		maps.DeleteFunc(w.live, func(_ netip.Addr, h string) bool { return h == seeding.Handle("default", pod) })
	}
}

// disturbances holds the disturbances of each kind of step.
var disturbances = map[repair.Kind][]disturbance{
	repair.ReleaseBlock: {
		{"a pod of the node gets an address of the block", newcomer("n1", "10.64.0.70")},
		{"a pod of another node borrows of the block", newcomer("n2", "10.64.0.70")},
		{"a pod comes and goes", both(newcomer("n1", "10.64.0.70"), func(w *world) {
			if w.live[netip.MustParseAddr("10.64.0.70")] != "" {
				ended("newcomer")(w)
			}
		})},
		{"the node claims the block", claiming("n1", empty)},
		{"another node claims the block", claiming("n3", empty)},
		{"kube-controllers releases the block", releasing("n1", empty)},
		{"the node releases and claims the block", both(releasing("n1", empty), claiming("n1", empty))},
		{"the block goes to another node", both(releasing("n1", empty), claiming("n3", empty))},
		{"the node's next pod", nextPod("n1")},
		{"another node's next pod", nextPod("n3")},
	},
	repair.RecordIP: {
		{"a pod gets the address", newcomer("n1", "10.64.0.20")},
		{"a pod gets another address of the block", newcomer("n1", "10.64.0.9")},
		{"another address under the same handle", assign(restored)},
		{"another node claims the CIDR", claiming("n2", noBlock)},
		{"the node claims the CIDR", claiming("n3", noBlock)},
		{"the node's next pod", nextPod("n3")},
	},
	repair.CreateHandle: {
		{"its address is released", freed("10.64.0.2")},
		{"another address under the same handle", assign(seeding.Handle("default", "b"))},
		{"a pod gets another address of the block", newcomer("n1", "10.64.0.9")},
	},
	repair.DisownBlock: {
		{"a pod of another node borrows of the block", newcomer("n1", "10.66.0.3")},
		{"its last pod ends", ended("e")},
		{"another node claims the block", claiming("n3", orphaned)},
		{"kube-controllers disowns the block", func(w *world) { _ = w.seeder.ReleaseBlocks(w.Context(), "off", orphaned, false) }},
		{"the node is back, and its next pod", func(w *world) {
			must(w.T, w.seeder.Node(w.Context(), seeding.Node{Name: "off"}))
			nextPod("off")(w)
		}},
		{"the node claims the block", claiming("off", orphaned)},
	},
	repair.DeleteAffinity: {
		{"the node claims the CIDR", claiming("n3", noBlock)},
		{"another node claims the CIDR", claiming("n2", noBlock)},
		{"a pod of the node gets an address of the CIDR", newcomer("n3", "10.64.0.200")},
		{"the node's next pod", nextPod("n3")},
		{"the owner's next pod", nextPod("n2")},
		{"the owner loses the block to the claimant", both(ended("c"), both(releasing("n2", contested), claiming("n3", contested)))},
		{"the node releases the CIDR", releasing("n3", noBlock)},
	},
	repair.RestoreAffinity: {
		{"the node claims the block", claiming("n2", lost)},
		{"another node claims the block", claiming("n3", lost)},
		{"a pod of the node gets an address of the block", newcomer("n2", "10.65.0.20")},
		{"a pod of another node borrows of the block", newcomer("n1", "10.65.0.20")},
		{"the last pod ends", ended("d")},
		{"the last pod ends, and the block goes", both(ended("d"), both(claiming("n2", lost), releasing("n2", lost)))},
		{"the block goes to another node", both(ended("d"), both(claiming("n2", lost), both(releasing("n2", lost), claiming("n3", lost))))},
	},
	repair.ReleaseIP: {
		{"the address is released", freed("10.64.0.3")},
		{"the address is released and given to a pod", both(freed("10.64.0.3"), newcomer("n1", "10.64.0.3"))},
		{"the other block's address is released", freed("10.65.0.1")},
		{"the other block's address is released and given to a pod", both(freed("10.65.0.1"), newcomer("n2", "10.65.0.1"))},
		{"a pod gets another address of the block", newcomer("n1", "10.64.0.9")},
		{"a pod gets another address of nobody's block", newcomer("n2", "10.65.0.9")},
		{"a pod of the block ends", ended("b")},
		{"another address under the same handle", assign(seeding.Handle("default", "gone"))},
		{"the handle is released", func(w *world) { _ = w.seeder.ReleaseHandle(w.Context(), seeding.Handle("default", "gone")) }},
	},
	repair.DeleteHandle: {
		{"an address is assigned under the handle", assign(orphan)},
		{"the handle is released", func(w *world) { _ = w.seeder.ReleaseHandle(w.Context(), orphan) }},
	},
	repair.FixHandleCount: {
		{"another address under the same handle", assign(seeding.Handle("default", miscont))},
		{"the pod ends", ended(miscont)},
	},
	repair.FinishDelete: {
		{"the node claims the block", claiming("n2", marked)},
		{"another node claims the block", claiming("n1", marked)},
		{"a pod gets an address of the block", newcomer("n2", "10.65.0.35")},
		{"the claimant claims the CIDR", claiming("n3", forgotten)},
		{"the claimant releases the CIDR", releasing("n3", forgotten)},
		{"an address is assigned under the handle", assign(doomed)},
	},
	repair.SetStrictAffinity: {
		{"a limit of blocks", func(w *world) {
			_ = w.seeder.SetIPAMConfig(w.Context(), ipam.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 3})
		}},
	},
}

// TestRaces performs each disturbance in each gap of each step's protocol: before every
// request and after the last. No live pod may lose its address, and the step must be done
// or return ErrChanged. An hour later, an audit may find only problems that the step or
// the disturbance alone would have caused.
func TestRaces(t *testing.T) {
	w := newWorld(t, testcluster.CRDv1)
	for _, s := range someSteps(t) {
		t.Run(s.name, func(t *testing.T) {
			w := w.in(t)
			w.restoreFor(s)
			before := w.findings()
			w.restoreFor(s)
			alone := &tap{}
			must(t, s.do(w, w.writer(alone.wrap, nil)))
			gaps := alone.sent
			meant := w.findings()
			for _, d := range disturbances[s.kind] {
				t.Run(d.name, func(t *testing.T) { w.in(t).race(s, d, gaps, before, meant) })
			}
		})
	}
}

// findings returns the findings of an audit an hour later.
func (w *world) findings() map[string]audit.Finding {
	w.Helper()
	must(w.T, w.Backdate(w.Context(), time.Hour))
	out := map[string]audit.Finding{}
	for _, f := range audit.Run(state.New(read(w.bench), state.Options{}), checks.All).Findings {
		out[f.Fingerprint] = f
	}
	return out
}

// integrity reports whether a finding means that objects contradict each other or the
// pods. The number of free blocks and addresses depends on the order of events. A claim
// by Calico's own client that meets a block marked deleted stops and leaves its affinity
// pending; the node continues the claim when it needs an address. A pod whose only request met the
// repair waits: the kubelet, which does not run here, would ask again.
func (w *world) integrity(f audit.Finding) bool {
	switch kind, _, _ := strings.Cut(f.Check, "/"); {
	case kind == "pool", kind == "node", kind == "config", f.Check == "pod/waiting", f.Check == "block/empty":
		return false
	case f.Check == "affinity/no-block":
		return w.spec(blocks.Affinities, f.Subject.Name)["state"] != string(blocks.Pending)
	}
	return true
}

func (w *world) race(s step, d disturbance, gaps []string, before, meant map[string]audit.Finding) {
	wanted, tried := sampled(w.T, 20), []int{}
	for n := range len(gaps) + 1 {
		if wanted() {
			tried = append(tried, n)
		}
	}
	if len(tried) == 0 {
		return
	}
	live := maps.Clone(w.live)
	begin := func() {
		w.restoreFor(s)
		clear(w.live)
		maps.Copy(w.live, live)
	}
	begin()
	d.do(w)
	disturbed := w.findings()
	explained := func(f audit.Finding) bool {
		for _, of := range []map[string]audit.Finding{before, disturbed, meant} {
			if was, ok := of[f.Fingerprint]; ok && was.Severity >= f.Severity {
				return true
			}
		}
		return f.Severity < state.Warning || !w.integrity(f)
	}
	for _, n := range tried {
		begin()
		when := "after all requests"
		if n < len(gaps) {
			when = fmt.Sprintf("before request %d (%s)", n+1, gaps[n])
		}
		done := false
		disturb := func() {
			if !done {
				done = true
				d.do(w)
			}
		}
		x := &tap{before: func(i int, _ *http.Request) {
			if i == n {
				disturb()
			}
		}}
		err := s.do(w, w.writer(x.wrap, nil))
		disturb()
		if err != nil && !errors.Is(err, repair.ErrChanged) {
			w.Errorf("%s: %v", when, err)
		}
		w.unharmed(when)
		for _, f := range slices.Collect(maps.Values(w.findings())) {
			if !explained(f) {
				w.Errorf("%s (%v): %s %s: %s", when, err, f.Severity, f.Check, f.Message)
			}
		}
	}
}
