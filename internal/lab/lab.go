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

// Lab is the running network of a topology.
type Lab struct {
	*Plan
	// Router is the router's namespace.
	Router Namespace
	// Nodes holds the nodes by name.
	Nodes map[string]*Node
	// Workloads holds the first pod of each node, by the node's name.
	Workloads map[string]*Workload

	dir   string
	birds []*bird
}

// Start builds a network and its BIRDs, and waits until the routes are stable. The
// network is removed when the test ends.
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

// Limits of the wait for routes. Routes are stable if they do not change on any node for
// longer than BIRD's interval between two scans of the kernel. Sessions that must stay
// down get the time of two connection attempts, by confd's template.
const (
	convergenceTimeout = 90 * time.Second
	restFor            = 2500 * time.Millisecond
	downFor            = 9 * time.Second
	lookEvery          = 250 * time.Millisecond
)

// WaitConverged waits until every BGP session has its expected state, the router has
// routes to the pods, and routes are stable.
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

// ready returns an error until every BGP session has its expected state and the router
// has a route to each pod that is announced to it.
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

// routes returns the routes of all machines as one text.
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

// Borrowed returns the addresses of the borrower's pod, IPv4 first.
func (l *Lab) Borrowed() []netip.Addr { return l.Workloads[Borrower].Addrs }
