package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// StaleRow holds the measurements of the third node's stale affinity to a block of the
// owner. The owner's pod has an address of that block.
type StaleRow struct {
	Topology, State string
	Family          blocks.Family
	// Kernel is the third node kernel's routing decision for the owner's pod.
	Kernel string
	// FromNode and FromOther report whether packets to the owner's pod arrive from the
	// third node and from the borrower. Their pods cannot send instead: they use the
	// owner's addresses, so the owner may drop the answers.
	FromNode, FromOther bool
	// Split reports whether the borrower has two paths to the block, through the owner
	// and the third node, chosen by flow.
	Split bool
	// Announced reports whether the third node announces the owner's block.
	Announced bool
	// NotOwner is the severity of the audit's finding about the affinity, and Effect the
	// effect that it names. ForeignBlackhole is the severity of the finding about the
	// third node's route, with its host view.
	NotOwner, Effect, ForeignBlackhole string
}

// MeasureStale measures the effect of the third node's stale affinity in the topology. It
// returns one row per family.
func (l *Lab) MeasureStale(ctx context.Context) ([]StaleRow, error) {
	view, err := l.View(ctx, Third)
	if err != nil {
		return nil, err
	}
	// The checks ignore affinities younger than the grace period. This one is a few
	// seconds old, so the grace period is a nanosecond.
	snapshot := l.with(view)
	snapshot.Cluster.TakenAt = time.Now()
	st := state.New(snapshot, state.Options{Grace: time.Nanosecond})
	var rows []StaleRow
	for _, addr := range l.Workloads[Owner].Addrs {
		block, err := l.blockOf(addr)
		if err != nil {
			return nil, err
		}
		r := StaleRow{Topology: l.Topology.Name, State: l.Topology.Stale[0].String(), Family: blocks.FamilyOf(addr)}
		if r.Kernel, err = l.Nodes[Third].Verdict(ctx, addr); err != nil {
			return nil, err
		}
		if r.FromNode, err = l.Nodes[Third].Ping(ctx, addr); err != nil {
			return nil, err
		}
		if r.FromOther, err = l.Nodes[Borrower].Ping(ctx, addr); err != nil {
			return nil, err
		}
		if r.Split, err = l.Nodes[Borrower].Split(ctx, addr); err != nil {
			return nil, err
		}
		if r.Announced, err = l.announces(ctx, block); err != nil {
			return nil, err
		}
		r.NotOwner, r.ForeignBlackhole = "none", severity(st, "route/stray-blackhole", block.String())
		for _, f := range findings(st, "affinity/not-owner") {
			if f.Subject.Node == Third && f.Subject.CIDR == block.String() {
				r.NotOwner = f.Severity.String()
				for _, e := range f.Evidence {
					if e.Name == "effect" {
						r.Effect = e.Value
					}
				}
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// fromOther describes whether the borrower's packets arrive.
func (r StaleRow) fromOther() string {
	return flows(r.FromOther, r.Split)
}

// blockOf returns the CIDR of the block that contains an address.
func (l *Lab) blockOf(addr netip.Addr) (netip.Prefix, error) {
	for i := range l.Snapshot.Blocks {
		if cidr := l.Snapshot.Blocks[i].CIDR; cidr.Contains(addr) {
			return cidr, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("%s lies in no block", addr)
}

// announces reports whether the router learned a route to the block from the third node.
// Without a router that speaks BGP, it asks the borrower.
func (l *Lab) announces(ctx context.Context, block netip.Prefix) (bool, error) {
	listener := Borrower
	if l.Topology.Router != nil {
		listener = "router"
	}
	family, program := 0, "bird"
	if block.Addr().Is6() {
		family, program = 1, "bird6"
	}
	from := l.Nodes[Third].Interfaces[family].Addr.Addr()
	for _, b := range l.birds {
		if b.machine != listener || b.program != program {
			continue
		}
		answer, err := b.ask(ctx, fmt.Sprintf("show route %s where from = %s", block, from))
		return strings.Contains(answer, block.String()), err
	}
	return false, fmt.Errorf("%s runs no %s", listener, program)
}

// String returns the affinity's state as the table shows it.
func (s Stale) String() string {
	state := s.State
	if state == "" {
		state = "empty"
	}
	if s.Unlabelled {
		state += ", without labels"
	}
	return state
}

// StaleTopologies returns topologies with a stale affinity of the third node. The router
// or the other nodes learn two routes to the block that differ only in the router ID.
// Each topology occurs twice: the owner has the lower ID in the first, the third node in
// the second. A machine that uses one route, such as the lab's router, takes the one with
// the lower ID. Calico's nodes use both.
func StaleTopologies() []Topology {
	var all []Topology
	for _, way := range []Topology{
		{
			Name:      "eBGP to the router, all nodes in one AS",
			Configure: rack(routerAS, nil),
			Router:    &Router{AS: routerAS, NodeAS: nodesAS},
		},
		{
			Name:      "node-to-node mesh",
			Wiring:    Switched,
			Configure: mesh,
		},
	} {
		for _, stale := range []Stale{
			{State: "confirmed"}, {State: ""}, {State: "pendingDeletion"}, {State: "pending"},
			{State: "confirmed", Unlabelled: true},
		} {
			stale.Node, stale.Of = Third, Owner
			for _, reversed := range []bool{false, true} {
				t := way
				t.Stale, t.Reversed = []Stale{stale}, reversed
				all = append(all, t)
			}
		}
	}
	return all
}
