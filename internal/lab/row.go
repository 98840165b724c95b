package lab

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// Row holds the measurements of one borrowed address in one topology, and calico-audit's
// verdicts about it.
type Row struct {
	Topology string
	Addr     netip.Addr
	// Kernel is the owner kernel's routing decision for the address.
	Kernel string
	// FromPod, FromOwner, FromRouter and FromThird report whether packets arrive from a
	// pod of the owner, the owner itself, the router, and a pod of a third node.
	FromPod, FromOwner, FromRouter, FromThird bool
	// Split reports whether the third node and the borrower have several paths in either
	// direction, chosen by flow.
	Split bool
	// Seen is the audit's reading of the owner's host view.
	Seen hosts.Answer
	// Predicted is the audit's prediction from the datastore, without host views.
	Predicted affinity.Prediction
	// ByTopology and ByView are the severities of the finding without and with a host
	// view; "none" without a finding.
	ByTopology, ByView string
}

// Measure sends packets to the borrower's addresses and scans the owner. Then it audits
// the datastore without and with the scan. It returns one row per family.
func (l *Lab) Measure(ctx context.Context) ([]Row, error) {
	view, err := l.View(ctx, Owner)
	if err != nil {
		return nil, err
	}
	alone := state.New(l.with(nil), state.Options{})
	joined := state.New(l.with(view), state.Options{})
	var rows []Row
	for _, addr := range l.Borrowed() {
		r := Row{Topology: l.Topology.Name, Addr: addr}
		if r.Kernel, err = l.Nodes[Owner].Verdict(ctx, addr); err != nil {
			return nil, err
		}
		for _, from := range []struct {
			ns      Namespace
			reached *bool
		}{
			{l.Workloads[Owner].Namespace, &r.FromPod}, {l.Nodes[Owner].Namespace, &r.FromOwner},
			{l.Router, &r.FromRouter}, {l.Workloads[Third].Namespace, &r.FromThird},
		} {
			if *from.reached, err = from.ns.Ping(ctx, addr); err != nil {
				return nil, err
			}
		}
		if r.Split, err = l.split(ctx, addr); err != nil {
			return nil, err
		}
		borrow, err := borrowOf(alone, addr)
		if err != nil {
			return nil, err
		}
		r.Predicted = alone.Predict(borrow)
		if borrow, err = borrowOf(joined, addr); err != nil {
			return nil, err
		}
		r.Seen, _ = joined.HostAnswer(borrow)
		r.ByTopology, r.ByView = severity(alone, "route/blackhole", addr.String()), severity(joined, "route/blackhole", addr.String())
		rows = append(rows, r)
	}
	return rows, nil
}

// split reports whether the third node has several paths to an address of the borrower's
// pod, or the borrower has several back to the third node's pod.
func (l *Lab) split(ctx context.Context, addr netip.Addr) (bool, error) {
	there, err := l.Nodes[Third].Split(ctx, addr)
	if err != nil || there {
		return there, err
	}
	for _, back := range l.Workloads[Third].Addrs {
		if back.Is4() == addr.Is4() {
			return l.Nodes[Borrower].Split(ctx, back)
		}
	}
	return false, nil
}

// with returns the plan's snapshot with the given host views. It skips nil views.
func (l *Lab) with(views ...*blocks.HostView) *blocks.Snapshot {
	s := *l.Snapshot
	s.Hosts = blocks.HostReading{Asked: true, Until: time.Now()}
	for _, v := range views {
		if v != nil {
			s.Hosts.Views = append(s.Hosts.Views, *v)
		}
	}
	return &s
}

func borrowOf(st *state.State, addr netip.Addr) (*state.Borrow, error) {
	for _, b := range st.Borrows {
		if b.Addr == addr {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%s is not borrowed", addr)
}

// severity returns the severity of a check's finding about an address or CIDR, or "none".
func severity(st *state.State, check, subject string) string {
	for _, f := range findings(st, check) {
		if f.Subject.IP == subject || f.Subject.CIDR == subject {
			return f.Severity.String()
		}
	}
	return "none"
}

// findings returns the findings of one check.
func findings(st *state.State, check string) []audit.Finding {
	for _, c := range checks.All {
		if c.ID == check {
			return audit.Run(st, []*audit.Check{c}).Findings
		}
	}
	return nil
}
