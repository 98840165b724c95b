package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
	"github.com/calico-audit/calico-audit/metrics"
)

// exporterListen is the exporter's default address. The port is below Kubernetes' NodePort
// range, is that of the agent (19098) plus one, and is not used by Calico: Felix has 9091
// and 9099, Typha 9093 and 9098, kube-controllers 9094. The exporter can run as a sidecar
// of kube-controllers.
const exporterListen = ":19099"

// exporterGCPercent is the garbage collector's target for the exporter. Most of its heap is
// long-lived, and each audit leaves garbage. At 50 percent its resident memory was over
// half of kube-controllers', at 25 percent well below
// (BenchmarkExporterBesideKubeControllers).
const exporterGCPercent = 25

type exporterCommand struct {
	env
	sources source.Flags
	serving serveFlags
	logs    logFlag
	mutes   muteFlags
	grace   graceFlag
	agents  source.AgentFlags

	interval, maxAge, agentsInterval time.Duration
	nodeMetrics                      bool
	maxNodes                         int
}

func newExporter(env env) *cobra.Command {
	e := &exporterCommand{env: env}
	c := env.command(&cobra.Command{
		Use:   "exporter",
		Short: "Watch a cluster and serve metrics, health and the live report",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return e.run(c) },
	})
	e.sources.AddClusterTo(c)
	fs := c.Flags()
	fs.DurationVar(&e.interval, "interval", metrics.DefaultInterval, "audit at least this often, even without changes")
	fs.DurationVar(&e.maxAge, "max-age", metrics.DefaultMaxAge, "maximum age of the data; with older data the exporter is not ready and its numbers count as incomplete")
	fs.BoolVar(&e.nodeMetrics, "node-metrics", true, "serve series per node and pool; =false omits them")
	fs.IntVar(&e.maxNodes, "max-nodes", 0, "the largest `NUMBER` of nodes that the cluster may have, such as the autoscaler's maximum; an alert fires if fewer blocks are left than nodes may still join")
	e.agents.AddTo(c)
	fs.DurationVar(&e.agentsInterval, "agents-interval", agents.DefaultInterval, "ask each agent at least this often")
	e.grace.addFlag(c, "time that a state must last before it counts")
	e.mutes.addRuleFlags(c)
	e.serving.addFlags(c, exporterListen)
	e.logs.addFlag(c)
	flags.NoFiles(c, "interval", "max-age", "max-nodes", "agents-interval")
	return c
}

// minInterval is the minimum of --interval, because audits are at least that far apart.
// freshness is the interval between probes whether the state is current; --max-age must be
// longer. maxAgentsInterval is short enough that after one failed request an agent still
// has a recent view.
const (
	minInterval       = time.Second
	freshness         = 5 * time.Second
	maxAgentsInterval = 5 * time.Minute
)

// minAgentsInterval is the minimum of --agents-interval; tests lower it.
var minAgentsInterval = 10 * time.Second

// options validates the flags. All its errors are usage errors.
func (e *exporterCommand) options() (metrics.ExporterOptions, error) {
	o := metrics.ExporterOptions{
		Interval: e.interval, MaxAge: e.maxAge, Grace: e.grace.options().Grace, NodeMetrics: e.nodeMetrics, MaxNodes: e.maxNodes, Pprof: e.serving.pprof, Build: builtFrom(),
		JSON: func(w io.Writer, r *audit.Report) error {
			return view.WriteJSON(w, r.WithCommands(e.viewOptions().Command))
		},
		HTML: func(w io.Writer, r *audit.Report) error {
			return page.Write(w, r, page.Options{Options: e.viewOptions(), Live: true})
		},
	}
	switch {
	case e.interval < minInterval:
		return o, exit.Usagef("--interval %s is less than %s", e.interval, minInterval)
	case e.maxNodes < 0:
		return o, exit.Usagef("--max-nodes %d is negative", e.maxNodes)
	case e.maxAge <= freshness:
		return o, exit.Usagef("--max-age %s is too short: freshness is probed every %s, want more", e.maxAge, freshness)
	}
	if err := e.grace.check(); err != nil {
		return o, err
	}
	wide, err := reportFormats.Named("wide")
	if err != nil {
		return o, err
	}
	o.Text = func(w io.Writer, r *audit.Report) error { return wide.Write(w, r, e.viewOptions()) }
	if o.Log, err = e.logs.logger(e.streams.ErrOut, slog.LevelInfo); err != nil {
		return o, err
	}
	if o.Mutes, _, err = e.mutes.read(e.streams.In); err != nil {
		return o, err
	}
	return o, nil
}

func (e *exporterCommand) viewOptions() view.Options {
	agents := e.agents.Portable() // readers do not have the files of the exporter's pod
	return e.env.viewOptions(&e.sources, agents, agents)
}

// askAgents validates the flags for requests to agents. All its errors are usage errors.
func (e *exporterCommand) askAgents(c *cobra.Command) (agents.Options, error) {
	ask, err := e.agents.Options()
	switch {
	case err != nil:
		return ask, err
	case !e.agents.Ask && c.Flags().Changed("agents-interval"):
		return ask, exit.Usagef("--agents-interval requires --agents")
	case e.agentsInterval < minAgentsInterval || e.agentsInterval > maxAgentsInterval:
		return ask, exit.Usagef("--agents-interval %s is not between %s and %s: a host view older than 10 minutes proves nothing", e.agentsInterval, minAgentsInterval, maxAgentsInterval)
	}
	return ask, nil
}

// run watches and serves until ctx ends.
func (e *exporterCommand) run(c *cobra.Command) error {
	o, err := e.options()
	if err != nil {
		return err
	}
	ask, err := e.askAgents(c)
	if err != nil {
		return err
	}
	watch, err := e.watch(o.Log)
	if err != nil {
		return err
	}
	o.Source = watch
	if e.agents.Ask {
		asked := agents.NewWatch(watch, agents.WatchOptions{
			Options: ask, Interval: e.agentsInterval,
			Reader: func(s *blocks.Snapshot) agents.Reader { return hostviews.OfAgent(s, hostviews.Options{}) },
		})
		o.Source = asked
		o.Agents = func() metrics.AgentCounts { return metrics.AgentCounts(asked.Counts()) }
	}
	return e.serve(c.Context(), o)
}

// watch returns a watch of the cluster, joined with Calico's own etcd if it has one.
func (e *exporterCommand) watch(log *slog.Logger) (agents.Watched, error) {
	if where, etcd := e.sources.OfEtcd(); etcd {
		from, err := e.sources.Open(e.streams, func(string) {})
		if err != nil {
			return nil, err
		}
		own := from.(*source.Etcd)
		if e.agents.Ask && !own.Joined() {
			return nil, exit.Usagef("--agents cannot be used without the cluster's kubeconfig: it asks the agents' pods, and the source is Calico's etcd at %s alone", where)
		}
		return own.Watch(log)
	}
	cfg, err := e.sources.RESTConfig(e.streams)
	if err != nil {
		return nil, err
	}
	watch, err := cluster.NewWatch(cfg, cluster.WatchOptions{Log: log})
	if err != nil {
		return nil, exit.Unread(err)
	}
	return watch, nil
}

// serve audits and serves until ctx ends.
func (e *exporterCommand) serve(ctx context.Context, o metrics.ExporterOptions) error {
	if err := e.logs.logLibraryErrors(e.streams.ErrOut); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(exporterGCPercent)
	}
	exporter := metrics.NewExporter(o)
	return e.serving.beside(ctx, o.Log, exporter.Handler(), func(ctx context.Context) error {
		if err := exporter.Run(ctx); err != nil {
			return exit.Unread(err)
		}
		return nil
	})
}
