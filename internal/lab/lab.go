package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Lab is a topology's network while it runs.
type Lab struct {
	*Plan
	// Router is the router's namespace.
	Router Namespace
	// Nodes are the nodes by name.
	Nodes map[string]*Node
	// Workloads are the first pod of each node, by the node's name.
	Workloads map[string]*Workload

	dir   string
	birds []*bird
}

// Start builds a network, which ends with the test, starts its BIRDs, and waits until
// routes have come to rest.
func Start(tb testing.TB, p *Plan) (*Lab, error) {
	l := &Lab{Plan: p, Nodes: map[string]*Node{}, Workloads: map[string]*Workload{}, dir: tb.TempDir()}
	if err := l.wire(tb); err != nil {
		return nil, err
	}
	for _, node := range NodeNames {
		w, err := l.workload(tb, l.Nodes[node], seeding.SmallStoryPod(node, 0), p.Pods[node])
		if err != nil {
			return nil, err
		}
		l.Workloads[node] = w
	}
	if p.Topology.VXLAN {
		if err := l.felix(tb.Context()); err != nil {
			return nil, err
		}
	}
	for _, node := range NodeNames {
		if err := l.startBIRDs(tb, node, l.Nodes[node].Namespace, p.BIRD[node]); err != nil {
			return nil, err
		}
	}
	if r := p.Topology.Router; r != nil {
		if err := l.startBIRDs(tb, "router", l.Router, r.config(p.Topology)); err != nil {
			return nil, err
		}
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			routes, err := l.routes(context.Background())
			tb.Logf("routes in the end (%v):\n%s", err, routes)
		}
	})
	return l, l.WaitConverged(tb.Context())
}

// Bounds of the wait for routes. They have come to rest when no node's routes
// changed for longer than BIRD's interval between two looks at the kernel. Sessions
// that are to stay down are given the time of two attempts, by confd's template.
const (
	convergenceTimeout = 90 * time.Second
	restFor            = 2500 * time.Millisecond
	downFor            = 9 * time.Second
	lookEvery          = 250 * time.Millisecond
)

// WaitConverged waits until all BGP sessions are as they are to be, the router has learnt of the
// pods, and routes have come to rest.
func (l *Lab) WaitConverged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, convergenceTimeout)
	defer cancel()
	rest := restFor
	if l.Topology.Down != "" {
		rest = downFor
	}
	var last string
	var since time.Time
	for {
		err := l.ready(ctx)
		if err == nil {
			var now string
			if now, err = l.routes(ctx); err == nil && now == last && time.Since(since) > rest {
				return nil
			} else if now != last {
				last, since = now, time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("routes have not come to rest: %w", errors.Join(ctx.Err(), err))
		case <-time.After(lookEvery):
		}
	}
}

// ready is an error while a BGP session is not as it is to be, or the router lacks a route to a pod
// that it is to be told of.
func (l *Lab) ready(ctx context.Context) error {
	for _, b := range l.birds {
		if err := b.sessions(ctx, l.Topology.Down); err != nil {
			return err
		}
	}
	if l.Topology.Router == nil || l.Topology.DisableBGPExport {
		return nil
	}
	for _, node := range NodeNames {
		for _, addr := range l.Workloads[node].Addrs {
			if v, err := l.Router.Verdict(ctx, addr); err != nil || v != "unicast" {
				return fmt.Errorf("the router has no route to %s: %s %w", addr, v, err)
			}
		}
	}
	return nil
}

// routes are the routes of all machines, in one text.
func (l *Lab) routes(ctx context.Context) (string, error) {
	var all string
	for _, ns := range []Namespace{l.Router, l.Nodes[Owner].Namespace, l.Nodes[Borrower].Namespace, l.Nodes[Third].Namespace} {
		all += ns.name + ":\n"
		for _, family := range []string{"-4", "-6"} {
			text, err := output(ctx, "ip", family, "-n", ns.name, "route", "show")
			if err != nil {
				return "", err
			}
			all += text
		}
	}
	return all, nil
}

// Borrowed are the addresses of the borrower's pod, IPv4 and then IPv6.
func (l *Lab) Borrowed() []netip.Addr { return l.Workloads[Borrower].Addrs }
