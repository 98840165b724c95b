package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// reportCommand is the report command with its flags.
type reportCommand struct {
	streams genericiooptions.IOStreams
	program string
	sources sources
	hosts   hostFlags
	mutes   muteFlags

	output       outputFlags
	failOn       string
	checks       []string
	pools, nodes []string
	grace        time.Duration
	noHeaders    bool
	ascii        bool
	journals     []string

	severity state.Severity // of failOn; 0 for none
	stored   *audit.Report  // the report that -f names; nil if it names objects
}

// auditRun is what the flags of a report come to.
type auditRun struct {
	reader  reader
	journal *journalReader // the reader, if journals are given; else nil
	outputs outputs[*audit.Report]
	checks  []*audit.Check
	// failOn is the severity that fails the run; 0 for none.
	failOn   state.Severity
	mutes    *audit.Mutes
	known    []*audit.Report // the baselines of mutes
	progress *view.ProgressLine
}

func newReport(program string, streams genericiooptions.IOStreams) *cobra.Command {
	r := &reportCommand{program: program, streams: streams}
	c := &cobra.Command{
		Use:   "report",
		Short: "Read everything, run all checks, print the report",
		Long: `Read what Calico's IPAM holds from a running cluster or from files, run all checks,
and print what was found, worst first. Nothing is ever changed.

Without -f the cluster of the kubeconfig is read, or, in a pod, the cluster the pod
runs in. The rights it takes are in examples/kubernetes/rbac. A report that -o json,
yaml or html wrote may be given to -f, too, and is printed as it was made.

Exit codes: 0 it ran; 1 there are findings at or above --fail-on; 2 the command line
makes no sense, or a file cannot be read or holds nothing that an audit reads; 3 the
cluster could not be read or has no Calico, or it or a snapshot of it was read only in
part (the report says "complete": false); 5 a failure inside the program. Where several
hold, the first of 5, 2, 3, 1 counts.`,
		Example: strings.ReplaceAll(`  # The cluster that kubectl talks to
  PROGRAM report

  # Files that "kubectl get -o yaml" wrote
  PROGRAM report -f dump/ --at 2026-01-31T08:00:00Z

  # The map of all blocks: how full, whose, what is broken
  PROGRAM report -o map

  # Everything about one pool
  PROGRAM report -o wide --pool default-ipv4-ippool

  # With proof from the nodes: their own routes, and the addresses in use there
  PROGRAM report --agents
  PROGRAM report -f dump/ --host-views views/

  # A page to keep and pass on; it holds the report, which is read back out of it
  PROGRAM report -o html=report.html
  PROGRAM report -f report.html

  # For a script: fail on errors, keep the report
  PROGRAM report --fail-on error -o json=report.json -o table

  # In CI: test results, and failure only for what is not known
  PROGRAM report -o junit=audit.xml --fail-on warning --baseline known.json \
    --ignore check=block/empty --ignore node=lab-1,until=2026-03-31

  # One line per finding
  PROGRAM report -o custom-columns=CHECK:.check,ABOUT:.subject.name,MESSAGE:.message`, "PROGRAM", program),
		Args: cobra.NoArgs,
	}
	r.sources.addFlags(c)
	r.hosts.addFlags(c)
	fs := c.Flags()
	addOutputFlags(c, &r.output, reportFormats, "the severities ")
	addFailOn(c, &r.failOn, "there is a finding at or above this `SEVERITY`")
	fs.StringSliceVar(&r.checks, "check", nil, "run only the check, or group of checks, of this `ID`, such as ip/borrowed or pool; repeatable, or joined by commas")
	fs.StringSliceVar(&r.pools, "pool", nil, "show only what concerns the pool of this `NAME`; repeatable, or joined by commas")
	fs.StringSliceVar(&r.nodes, "node", nil, "show only what concerns the node of this `NAME`; repeatable, or joined by commas")
	r.mutes.addFlags(c)
	fs.DurationVar(&r.grace, "grace", state.DefaultGrace, "how long a state must have held before it counts as lasting")
	fs.StringArrayVar(&r.journals, "journal", nil, "report at once what the run that wrote this `JOURNAL` of a repair left half-done; repeatable")
	fs.BoolVar(&r.ascii, "ascii", false, "draw with ASCII characters only; also where the locale is none of UTF-8, or TERM=dumb")
	fs.BoolVar(&r.noHeaders, "no-headers", false, "leave out the heading of custom-columns")

	_ = c.RegisterFlagCompletionFunc("check", completeChecks)
	for _, flag := range []string{"pool", "node", "grace", "at"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	c.RunE = run(func(c *cobra.Command, _ []string) error {
		a, err := r.complete()
		if err != nil {
			return err
		}
		return r.run(c.Context(), a)
	})
	return c
}

// complete checks the flags and makes a run of them. All its errors are errors of
// usage, found before anything is read.
func (r *reportCommand) complete() (*auditRun, error) {
	a := &auditRun{progress: view.NewProgressLine(nil)}
	var err error
	if a.failOn, err = parseFailOn(r.failOn); err != nil {
		return nil, err
	}
	r.severity = a.failOn
	if r.grace < 0 {
		return nil, usagef("--grace %s is negative", r.grace)
	}
	if a.checks, err = checks.All.Select(r.checks); err != nil {
		return nil, usageError(err)
	}
	if r.stored, err = r.storedReport(a.checks); err != nil {
		return nil, err
	}
	if a.outputs, err = parseOutputs(reportFormats, &r.output, places{}); err != nil {
		return nil, err
	}
	if a.mutes, a.known, err = r.mutes.read(r.streams.In); err != nil {
		return nil, err
	}
	a.progress = progressLine(r.streams)
	from, err := r.sources.open(r.streams, a.progress.Show)
	if err != nil {
		return nil, err
	}
	if from, err = r.hosts.wrap(from, a.progress.Show); err != nil {
		return nil, err
	}
	a.reader = from
	if len(r.journals) > 0 {
		a.journal, err = r.journalReader(from)
		a.reader = a.journal
	}
	return a, err
}

// viewOptions returns the options of an output.
func (r *reportCommand) viewOptions(toStdout bool) view.Options {
	o := view.Options{
		NoHeaders: r.noHeaders, Program: r.program, Source: r.sources.describe(), ReportArgs: strings.TrimSpace(r.sources.arguments() + r.hosts.arguments()),
		Now: time.Now(), FailOn: r.severity, ASCII: r.ascii || toStdout && asciiOnly(r.streams.Out),
	}
	if r.stored != nil {
		o.ReportArgs = "" // the other commands read objects, not reports
	}
	return r.output.display(o, r.streams, toStdout)
}

// run reads, judges and prints.
func (r *reportCommand) run(ctx context.Context, a *auditRun) error {
	rep, err := r.stored, error(nil)
	if rep == nil {
		rep, err = r.audit(ctx, a)
	}
	a.progress.Clear()
	if err != nil {
		return err
	}
	warnings, err := checkNames(rep, r.pools, r.nodes)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		say(r.streams, "warning: %s", w)
	}
	rep.Filter(r.pools, r.nodes)
	rep.Scope = r.scope(a, rep.Scope)
	if a.mutes != nil {
		rep.Mute(a.mutes)
		r.warnMuted(rep, a.known)
	}
	errs := []error{a.outputs.write(r.streams, "report", rep, r.viewOptions)}
	if !rep.Complete {
		errs = append(errs, unreadError(incomplete("report", rep.Gaps)))
	}
	if a.failOn != 0 && rep.AtOrAbove(a.failOn) {
		errs = append(errs, findingsError(fmt.Errorf("there are findings at or above --fail-on %s", a.failOn)))
	}
	return together(errs...)
}

// scope says what the report was narrowed to; nil for a whole one. before is what a
// stored report was narrowed to when it was made.
func (r *reportCommand) scope(a *auditRun, before *audit.Scope) *audit.Scope {
	if len(r.checks)+len(r.pools)+len(r.nodes) == 0 {
		return before
	}
	s := &audit.Scope{Pools: r.pools, Nodes: r.nodes}
	if before != nil {
		s.Pools, s.Nodes = before.Pools, before.Nodes
	}
	if len(r.checks) > 0 {
		for _, c := range a.checks {
			s.Checks = append(s.Checks, c.ID)
		}
	}
	return s
}

// warnMuted points out rules that have ended, and baselines of other clusters.
func (r *reportCommand) warnMuted(rep *audit.Report, baselines []*audit.Report) {
	for _, m := range rep.Muted {
		if m.Expired {
			say(r.streams, "warning: the rule %q has ended and mutes nothing any more", m.Rule)
		}
	}
	for i, b := range baselines {
		if guid := b.Cluster.GUID; guid != rep.Cluster.GUID && guid != "" && rep.Cluster.GUID != "" {
			say(r.streams, "warning: the baseline %s is of another cluster, %s", r.mutes.baselines[i], guid)
		}
	}
}

// audit reads the source and runs the checks; what must be confirmed is read a
// second time.
func (r *reportCommand) audit(ctx context.Context, a *auditRun) (*audit.Report, error) {
	j, err := judge(ctx, a.reader, a.checks, r.grace, a.progress)
	if err != nil {
		return nil, err
	}
	rep := j.report()
	if a.journal != nil {
		a.journal.fix(rep)
	}
	if a.outputs.page() {
		rep.Usage = audit.NewUsage(j.state, j.result)
	}
	return rep, nil
}

// incomplete says that what is printed is not whole, and the first reason.
func incomplete(what string, gaps []blocks.Gap) error {
	gaps = blocks.NotHeld(gaps)
	switch n := len(gaps); n {
	case 0:
		return fmt.Errorf("the %s is incomplete", what)
	case 1:
		return fmt.Errorf("the %s is incomplete: %s", what, gaps[0])
	default:
		return fmt.Errorf("the %s is incomplete; its gaps list %d reasons, the first is: %s", what, n, gaps[0])
	}
}
