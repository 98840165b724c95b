package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
)

// The machines of a storm, their agents' host views, and how repairs get them.

// machine is the machine of a node. It outlives the Node object.
type machine struct {
	mu      sync.Mutex
	boot    int  // number of boots
	runs    bool // started processes are still running
	answers bool // its agent answers
	last    *blocks.HostView
}

// set sets whether the machine runs and whether it answers. A machine that starts to run
// again was booted.
func (m *machine) set(runs, answers bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if runs && !m.runs {
		m.boot++
	}
	m.runs, m.answers = runs, answers
}

// view returns the host view of a node's machine. If the machine does not answer, it
// sometimes returns an earlier view, and sometimes a view that someone made by hand; if r
// is nil, it returns nil.
func (w *World) view(n *node, r *rand.Rand) *blocks.HostView {
	m := &n.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.answers {
		how := 7
		if r != nil {
			how = r.IntN(8)
		}
		switch {
		case how == 0:
			return m.last
		case how > 1 || !m.runs:
			return nil
		}
	}
	begun, ended := n.begun.Load(), n.ended.Load()
	boot := fmt.Sprintf("%s-boot-%d", n.name, m.boot)
	v := &blocks.HostView{
		APIVersion: "v1", Kind: blocks.HostViewKind, Node: n.name, BootID: boot, Machine: boot, TakenAt: time.Now(),
		NamespacesComplete: true, Authenticated: true, RulesKnown: true, Source: "the agent of " + n.name,
	}
	own := blocks.HostNamespace{ID: "1", Host: true, HostInterfaces: []string{}, Processes: 1}
	for i, h := range w.checker.On(n.name) {
		one := netip.PrefixFrom(h.Addr, h.Addr.BitLen())
		if h.Device {
			own.Addresses = append(own.Addresses, one)
			continue
		}
		v.Namespaces = append(v.Namespaces, blocks.HostNamespace{
			ID: fmt.Sprint(100 + i), Addresses: []netip.Prefix{one}, HostInterfaces: []string{fmt.Sprintf("cali%d", i)},
			Pids: []int{1000 + i}, States: []string{"S"}, Processes: 1,
		})
	}
	v.Namespaces = append(v.Namespaces, own)
	// A view may lack an address that is already assigned but not yet configured. An orphan uses
	// the address only after another view was requested. But this view must not be served again
	// later.
	if begun == ended && n.begun.Load() == begun {
		m.last = v
	}
	return v
}

// views returns the host views of all machines.
func (w *World) views(r *rand.Rand) blocks.HostReading {
	out := blocks.HostReading{Asked: true}
	for _, n := range w.machines() {
		if v := w.view(n, r); v != nil {
			out.Views = append(out.Views, *v)
		}
	}
	return out
}

// machines returns all nodes, including those that never leave.
func (w *World) machines() []*node {
	if w.windows == nil {
		return w.nodes
	}
	return append(w.nodes[:len(w.nodes):len(w.nodes)], w.windows)
}

// seeing reads a cluster and its nodes. It requests the host views first. An address that
// is assigned afterwards is newer than the view, and an address that was assigned before
// is in the view.
type seeing struct {
	*cluster.Kubernetes
	views func() blocks.HostReading
}

func (s *seeing) with(read func() (*blocks.Snapshot, error)) (*blocks.Snapshot, error) {
	hosts := s.views()
	snapshot, err := read()
	if err == nil {
		hosts.Until = time.Now()
		snapshot.Hosts = blocks.JoinHostReadings(hosts)
	}
	return snapshot, err
}

// Read reads all objects.
func (s *seeing) Read(ctx context.Context) (*blocks.Snapshot, error) {
	return s.with(func() (*blocks.Snapshot, error) { return s.Kubernetes.Read(ctx) })
}

// Refresh reads some objects again.
func (s *seeing) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	return s.with(func() (*blocks.Snapshot, error) { return s.Kubernetes.Refresh(ctx, prev, refs) })
}

// tool returns the repair tool for a storm: it reads host views, and the checker checks
// its verdicts.
func (w *World) tool(proxy *FaultProxy, r *rand.Rand) (*tool, error) {
	config := w.cluster.Config
	if proxy != nil {
		config = proxy.Config()
	}
	reader, err := cluster.NewKubernetes(config, cluster.KubernetesOptions{})
	if err != nil {
		return nil, err
	}
	t := &tool{config: config, reader: &seeing{Kubernetes: reader, views: func() blocks.HostReading { return w.views(r) }}}
	t.heard = func(st *state.State, begun time.Time) { w.checker.Hear(st, begun) }
	return t, nil
}
