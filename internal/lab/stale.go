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

// StaleRow is what was measured of an affinity of the third node to a block of the
// owner, in which the owner's pod has its address.
type StaleRow struct {
	Topology, State string
	Family          blocks.Family
	// Kernel is the answer of the third node's kernel to where the owner's pod lies.
	Kernel string
	// FromNode and FromOther tell whether packets to the owner's pod arrive that are
	// sent by the third node and by the borrower. (Their pods would not do: their
	// addresses are the owner's, who may drop the answers.)
	FromNode, FromOther bool
	// Split reports whether the borrower has two ways to the block, by the owner and by
	// the third node, and takes one or the other depending on the flow.
	Split bool
	// Announced reports whether the third node announces the owner's block.
	Announced bool
	// NotOwner is the severity of the audit's finding about the affinity, Effect what it
	// says that it does, and Stray the severity of that about the third node's route,
	// with its host view.
	NotOwner, Effect, ForeignBlackhole string
}

// MeasureStale measures what the topology's stale affinity of the third node does. It
// returns a row for each family.
func (l *Lab) MeasureStale(ctx context.Context) ([]StaleRow, error) {
	view, err := l.View(ctx, Third)
	if err != nil {
		return nil, err
	}
	// The checks leave claims in flight alone. This one is a few seconds old, which is
	// taken for long enough.
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

// fromOther says what becomes of the borrower's packets.
func (r StaleRow) fromOther() string {
	return flows(r.FromOther, r.Split)
}

// blockOf is the CIDR of the block that an address lies in.
func (l *Lab) blockOf(addr netip.Addr) (netip.Prefix, error) {
	for i := range l.Snapshot.Blocks {
		if cidr := l.Snapshot.Blocks[i].CIDR; cidr.Contains(addr) {
			return cidr, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("%s lies in no block", addr)
}

// announces reports whether another machine has heard of a block from the third node:
// the router, or the borrower where the router does not listen.
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

// String says the affinity's state.
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

// StaleTopologies are those in which the third node has a stale affinity. The router,
// or the other nodes, learn of the block twice, by routes that are alike but for the
// router ID: once with the owner's the lower, and once with the third node's. Who
// takes one route only, as the lab's router does, takes that one. Calico's nodes take
// both.
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
