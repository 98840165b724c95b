package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/fleet"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

var fleetFormats = view.FleetFormats(page.Fleet)

// completeFleet checks --contexts and what it goes together with, before anything is read.
func (r *reportCommand) completeFleet() (err error) {
	if err := fleet.CheckFlags(r.flags); err != nil {
		return usageError(err)
	}
	if r.fleetOutputs, err = parseOutputs(fleetFormats, &r.output, places{}); err != nil {
		return err
	}
	if r.muted, _, err = r.mutes.read(r.streams.In); err != nil {
		return err
	}
	if _, err = r.hosts.options(); err != nil {
		return err
	}
	config, err := r.sources.cluster.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return usagef("reading the cluster's configuration: %w", err)
	}
	if r.members, err = fleet.Members(config, r.contexts); err != nil {
		return usageError(err)
	}
	return nil
}

// of returns the command for one cluster of the fleet, which reads what r does.
func (r *reportCommand) of(m fleet.Member, warnings *fleet.Warnings) (*reportCommand, error) {
	one := *r
	one.members, one.progress, one.streams.ErrOut, one.sources = nil, view.NewProgressLine(nil), warnings.Of(m.Context), sources{}
	one.sources.addFlags(&cobra.Command{})
	return &one, errors.Join(fleet.CopyFlags(r.sources.clusterFlags, one.sources.clusterFlags), one.sources.clusterFlags.Set("context", m.Context))
}

// runFleet reads, evaluates and prints all clusters.
func (r *reportCommand) runFleet(ctx context.Context) error {
	warnings := fleet.NewWarnings(r.streams.ErrOut, r.progress.Clear)
	var ones []*reportCommand
	var readers []fleet.Reader
	for _, m := range r.members {
		one, err := r.of(m, warnings)
		if err != nil {
			return err
		}
		ones = append(ones, one)
		o := one.viewOptions(false)
		readers = append(readers, fleet.Reader{
			FleetItem: view.FleetItem{Context: m.Context, Same: m.Same, Args: o.ReportArgs, PortableArgs: o.PortableArgs},
			Read: func(ctx context.Context) (_ *audit.Report, err error) {
				if m.Broken != nil {
					return nil, usageError(m.Broken)
				}
				if one.reader, err = openSource(&one.sources, one.hosts, one.streams, one.progress.Show); err != nil {
					return nil, err
				}
				return one.audit(ctx)
			},
		})
	}
	items, errs := fleet.Read(ctx, readers, r.progress.Show)
	r.progress.Clear()
	if err := r.checkSeen(fleet.Names(items), r.pools, r.nodes); err != nil {
		return err
	}
	var failing []string
	for i, x := range items {
		if errs[i] != nil {
			code := ExitFailure
			if known := new(exitError); errors.As(errs[i], &known) {
				code = exitCode(errs[i])
			}
			errs[i] = &exitError{code: code, err: fmt.Errorf("context %s: %w", x.Context, errs[i])}
			continue
		}
		ones[i].narrow(x.Report)
		if !x.Report.Complete {
			errs[i] = unreadError(incomplete("report of context "+x.Context, x.Report.Gaps))
		}
		if sev := r.fail.severity; sev != 0 && x.Report.AtOrAbove(sev) {
			failing = append(failing, x.Context)
		}
	}
	errs = append(errs, r.fleetOutputs.write(r.streams, "report", fleet.Report(items), r.viewOptions))
	if len(failing) > 0 {
		errs = append(errs, findingsError(fmt.Errorf("there are findings at or above --fail-on %s: %s", r.fail.severity, strings.Join(failing, ", "))))
	}
	return together(errs...)
}
