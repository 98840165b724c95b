package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

func newReport(e env) *cobra.Command {
	r := &reportCommand{env: e, hosts: &source.HostFlags{}, progress: terminal.NewProgress(nil)}
	c := e.command(&cobra.Command{
		Use:   "report",
		Short: "Run all checks and print the report",
		Args:  filesByFlag,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := r.complete(); err != nil {
				return err
			}
			if r.ofFleet() {
				return r.runFleet(c.Context())
			}
			return r.run(c.Context())
		},
	})
	fs := c.Flags()
	r.fleet.addFlags(c)
	r.sources.AddTo(c)
	r.hosts.AddTo(c)
	r.past.addFlags(c)
	addOutputFlags(c, &r.output, reportFormats, "the severities ")
	r.fail.addFlag(c, "there is a finding at or above this `SEVERITY`")
	r.check.addFlag(c, "run")
	fs.StringSliceVar(&r.pools, "pool", nil, "show only the pool with this `NAME` and its findings; repeatable or comma-separated")
	fs.StringSliceVar(&r.nodes, "node", nil, "show only the node with this `NAME` and its findings; repeatable or comma-separated")
	r.mutes.addFlags(c)
	r.grace.addFlag(c, "time that a state must last before it counts")
	fs.StringArrayVar(&r.journals, "journal", nil, "report half-done steps of the repair run that wrote this `JOURNAL`, regardless of --grace; repeatable")
	fs.DurationVar(&r.every, "watch", 0, "keep running: read again every `INTERVAL` and print the changes, until interrupted; --watch without a value means every "+watchInterval)
	fs.Lookup("watch").NoOptDefVal = watchInterval
	fs.BoolVar(&r.ascii, "ascii", false, "draw with ASCII characters only (default: if the locale is not UTF-8, or TERM=dumb)")
	fs.BoolVar(&r.noHeaders, "no-headers", false, "omit the header line of custom-columns")
	flags.NoFiles(c, "watch")
	r.sources.CompleteNames(c, "pool", "pool", "secondary pool")
	r.sources.CompleteNames(c, "node", "node")
	r.sources.WarnIgnored, r.sources.Services = true, true
	return c
}

// complete validates the flags, before anything is read. All its errors are usage errors.
func (r *reportCommand) complete() (err error) {
	if err := cmp.Or(r.fail.parse(), r.grace.check(), r.check.parse(), r.past.check()); err != nil {
		return err
	}
	r.progress = terminal.ProgressOn(r.streams)
	if err = r.fleet.complete(&r.sources); err != nil {
		return err
	}
	if err = r.readStored(); err != nil {
		return err
	}
	if r.ofFleet() {
		r.fleetOutputs, err = parseOutputs(fleetFormats, &r.output, places{})
	} else {
		r.outputs, err = parseOutputs(reportFormats, &r.output, places{})
	}
	if err != nil {
		return err
	}
	if err := r.checkWatch(); err != nil {
		return err
	}
	if r.muted, r.known, err = r.mutes.read(r.streams.In); err != nil {
		return err
	}
	if r.ofFleet() {
		_, err = r.hosts.Options()
		return err
	}
	if r.reader, err = r.sources.OpenWith(r.hosts, r.streams, r.progress.Show); err != nil || len(r.journals) == 0 {
		return err
	}
	r.reader, err = r.journalReader(r.reader)
	return err
}

func (r *reportCommand) run(ctx context.Context) error {
	rep, err := r.read(ctx)
	if err != nil {
		return err
	}
	errs := []error{r.outputs.write(r.streams, "report", rep, r.viewOptions)}
	if r.every > 0 && errs[0] == nil {
		return r.watch(ctx, rep)
	}
	if !rep.Complete {
		errs = append(errs, exit.Unread(incomplete("report", rep.Gaps)))
	}
	if sev := r.fail.severity; sev != 0 && rep.AtOrAbove(sev) {
		errs = append(errs, exit.Findings(fmt.Errorf("there are findings at or above --fail-on %s", sev)))
	}
	return errors.Join(errs...)
}

// read returns the report, filtered and muted.
func (r *reportCommand) read(ctx context.Context) (*audit.Report, error) {
	rep, err := r.stored, error(nil)
	if rep == nil {
		rep, err = r.audit(ctx)
	}
	r.progress.Clear()
	if err != nil {
		return nil, err
	}
	if err := r.checkSeen(rep, r.pools, r.nodes); err != nil {
		return nil, err
	}
	if err := r.past.addTo(ctx, rep, r.env, r.grace, r.progress); err != nil {
		return nil, err
	}
	r.narrow(rep)
	return rep, nil
}

// readStored reads the report or fleet report in the file of -f, as written by -o json, yaml or
// html; it ignores other sources. A stored report is shown as it is, except for the filters of
// checks and muted findings.
func (r *reportCommand) readStored() error {
	if len(r.sources.Files) != 1 || r.sources.Files[0] == "-" {
		return nil
	}
	path := r.sources.Files[0]
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil // the next reader returns the error
	}
	text, head, done, err := document.Open(path, nil)
	if err != nil {
		return exit.Usagef("reading %s: %w", path, err)
	}
	defer done()
	version, kind := document.Identity(head)
	if !page.Is(head) && !document.IsReport(version, kind) && kind != view.FleetKind {
		return nil
	}
	switch {
	case r.sources.At != "":
		return exit.Usagef("--at cannot be used with %s: it is a report, which records its time", path)
	case len(r.hosts.Changed()) > 0:
		return exit.Usagef("--%s cannot be used with %s: it is already a report", r.hosts.Changed()[0].Name, path)
	case len(r.journals) > 0:
		return exit.Usagef("--journal cannot be used with %s: it is already a report", path)
	case len(r.pools)+len(r.nodes) > 0:
		return exit.Usagef("--pool and --node cannot be used with %s: it is already a report, which does not record the pools and nodes of each finding", path)
	case kind == view.FleetKind && r.past.Asked():
		return exit.Usagef("--prometheus and --since apply to one cluster: %s holds the reports of several", path)
	case kind == view.FleetKind:
		r.storedFleet, err = document.DecodeFleet(path, text)
	default:
		r.stored, err = document.DecodeReport(path, head, text)
	}
	if err != nil {
		return exit.Usage(err)
	}
	if r.stored != nil {
		r.check.keep(r.stored)
	}
	return nil
}
