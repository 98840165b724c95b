package cli

import (
	"context"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

type reportCommand struct {
	env
	sources source.Flags
	hosts   *source.HostFlags
	past    pastFlags
	mutes   muteFlags
	fail    failFlag
	check   checkFlag
	grace   graceFlag
	output  outputFlags

	pools, nodes []string
	noHeaders    bool
	ascii        bool
	journals     []string
	every        time.Duration // --watch; 0 for once
	fleet        fleetFlags

	stored       *audit.Report // the report that -f names; nil if it names objects
	reader       source.Reader
	outputs      outputs[*audit.Report]
	muted        *audit.Mutes
	known        []*audit.Report // the baselines of muted
	progress     *terminal.Progress
	fleetOutputs outputs[*view.FleetReport]
	storedFleet  *view.FleetReport // the fleet report that -f names
}

func (r *reportCommand) viewOptions(toStdout bool) view.Options {
	o := r.env.viewOptions(&r.sources, r.hosts.Arguments()+r.grace.arguments(), r.hosts.Portable()+r.grace.arguments())
	o.NoHeaders, o.FailOn, o.ASCII = r.noHeaders, r.fail.severity, r.ascii || toStdout && terminal.ASCIIOnly(r.streams.Out)
	if r.stored != nil || r.ofFleet() { // other commands read objects, not reports; in a fleet each item has its own arguments
		o.ReportArgs, o.PortableArgs = "", ""
	}
	return r.output.display(o, r.streams, toStdout)
}

func (r *reportCommand) narrow(rep *audit.Report) {
	rep.Filter(r.pools, r.nodes)
	rep.Scope = r.scope(rep.Scope)
	if r.muted != nil {
		rep.Mute(r.muted)
		r.warnMuted(rep)
	}
}

// scope returns the filters of the report; nil for a whole report. before are the filters
// of a stored report.
func (r *reportCommand) scope(before *audit.Scope) *audit.Scope {
	if len(r.check.patterns)+len(r.pools)+len(r.nodes) == 0 {
		return before
	}
	s := &audit.Scope{Pools: r.pools, Nodes: r.nodes}
	if before != nil {
		s.Pools, s.Nodes = before.Pools, before.Nodes
	}
	if len(r.check.patterns) > 0 {
		for _, c := range r.check.checks {
			s.Checks = append(s.Checks, c.ID)
		}
	}
	return s
}

// warnMuted warns of expired rules, and of baselines from other clusters.
func (r *reportCommand) warnMuted(rep *audit.Report) {
	for _, m := range rep.Muted {
		if m.Expired {
			say(r.streams, "warning: the rule %q has expired and no longer mutes findings", m.Rule)
		}
	}
	for i, b := range r.known {
		if guid := b.Cluster.GUID; guid != rep.Cluster.GUID && guid != "" && rep.Cluster.GUID != "" {
			say(r.streams, "warning: the baseline %s belongs to another cluster, %s", r.mutes.baselines[i], guid)
		}
	}
}

// audit reads the source and runs the checks. Findings that need confirmation are read a
// second time.
func (r *reportCommand) audit(ctx context.Context) (*audit.Report, error) {
	j, err := evaluate(ctx, r.reader, r.check.checks, r.grace, r.progress)
	if err != nil {
		return nil, err
	}
	rep := j.report()
	if r.outputs.page() {
		rep.Usage = audit.NewUsage(j.state, j.result)
	}
	return rep, nil
}

// ofFleet reports whether the report is about several clusters.
func (r *reportCommand) ofFleet() bool { return r.fleet.members != nil || r.storedFleet != nil }

// watchInterval is the default of --watch. Each reading lists all resources of an audit, so
// a cluster is read at most every minWatch.
const (
	watchInterval = "30s"
	minWatch      = 5 * time.Second
)
