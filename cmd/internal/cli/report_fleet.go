package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/fleet"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

var fleetFormats = view.FleetFormats(page.Fleet)

// runFleet makes the reports of all clusters and prints them.
func (r *reportCommand) runFleet(ctx context.Context) error {
	var items []view.FleetItem[view.ClusterReport]
	var errs []error
	if r.storedFleet != nil {
		items = r.storedFleet.Items
		for _, x := range items {
			if x.Error != "" {
				errs = append(errs, exit.Unread(fmt.Errorf("context %s: %s", x.Context, x.Error)))
			} else {
				r.check.keep(x.Of.Report)
			}
		}
	} else {
		var err error
		if items, errs, err = readFleet(ctx, r.env, &r.fleet, &r.sources, r.progress, r.of); err != nil {
			return err
		}
		if err := r.checkSeen(fleet.Names(items), r.pools, r.nodes); err != nil {
			return err
		}
	}
	var failing []string
	for _, x := range items {
		if x.Error != "" {
			continue
		}
		r.narrow(x.Of.Report)
		if !x.Complete() {
			errs = append(errs, exit.Unread(incomplete("report of context "+x.Context, x.Of.Gaps)))
		}
		if sev := r.fail.severity; sev != 0 && x.Of.AtOrAbove(sev) {
			failing = append(failing, x.Context)
		}
	}
	errs = append(errs, r.fleetOutputs.write(r.streams, "report", view.NewFleet(view.FleetKind, fleet.Sort(items)), r.viewOptions))
	if len(failing) > 0 {
		errs = append(errs, exit.Findings(fmt.Errorf("there are findings at or above --fail-on %s: %s", r.fail.severity, strings.Join(failing, ", "))))
	}
	return errors.Join(errs...)
}

func (r *reportCommand) of(m *member) (view.Options, func(context.Context) (view.ClusterReport, error)) {
	one := *r
	one.fleet.members, one.progress, one.streams, one.sources = nil, terminal.NewProgress(nil), m.streams, m.sources
	one.sources.Services = true
	return one.viewOptions(false), func(ctx context.Context) (out view.ClusterReport, err error) {
		if one.reader, err = one.sources.OpenWith(one.hosts, one.streams, one.progress.Show); err == nil {
			out.Report, err = one.audit(ctx)
		}
		return out, err
	}
}
