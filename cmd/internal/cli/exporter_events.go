package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/metrics"
	"github.com/calico-audit/calico-audit/metrics/events"
)

// eventsLease is the default name of the Lease by which replicas agree on who writes.
const eventsLease = "calico-audit-exporter"

// eventFlags are the flags about Kubernetes Events.
type eventFlags struct {
	enabled                            bool
	severity, object, namespace, lease string
	refresh                            time.Duration
}

func (f *eventFlags) addFlags(c *cobra.Command) {
	fs := c.Flags()
	fs.BoolVar(&f.enabled, "events", false, "write Kubernetes Events about findings, so that \"kubectl describe node\" shows them")
	fs.StringVar(&f.severity, "events-severity", state.Error.String(), "with --events, report findings of this `SEVERITY` and worse: "+strings.Join(state.SeverityNames(), "|"))
	fs.StringVar(&f.object, "events-object", "", "with --events, the `OBJECT` that Events are about that concern no node: TYPE[.GROUP]/[NAMESPACE/]NAME (default: the Lease)")
	fs.StringVar(&f.namespace, "events-namespace", "", "with --events, the `NAMESPACE` of the Lease (default: the pod's own, or that of the kubeconfig's context)")
	fs.StringVar(&f.lease, "events-lease", eventsLease, "with --events, the `NAME` of the Lease that the one replica holds that writes")
	fs.DurationVar(&f.refresh, "events-refresh", events.DefaultRefresh, "with --events, how often the Event of a finding that stays is written again; less than the API server's --event-ttl")
	flags.OneOf(c, "events-severity", state.SeverityNames()...)
	flags.NoFiles(c, "events-object", "events-namespace", "events-lease", "events-refresh")
}

// options checks the flags. All its errors are errors of usage. It returns nil
// without --events.
func (f *eventFlags) options(c *cobra.Command) (*events.Options, error) {
	if !f.enabled {
		for _, changed := range flags.Changed(c.Flags()) {
			if strings.HasPrefix(changed.Name, "events-") {
				return nil, exit.Usagef("--%s goes with --events", changed.Name)
			}
		}
		return nil, nil
	}
	o := &events.Options{Namespace: f.namespace, Lease: f.lease, Refresh: f.refresh}
	var err error
	if o.Severity, err = state.ParseSeverity(f.severity); err != nil {
		return nil, exit.Usagef("reading --events-severity: %w", err)
	}
	if f.object != "" {
		if o.Object, err = events.ParseObject(f.object); err != nil {
			return nil, exit.Usagef("reading --events-object: %w", err)
		}
	}
	switch {
	case f.lease == "":
		return nil, exit.Usagef("--events-lease is empty")
	case f.refresh < time.Minute:
		return nil, exit.Usagef("--events-refresh %s is less than a minute", f.refresh)
	}
	return o, nil
}

// tellByEvents has an exporter tell of each audit by Events, and returns what writes them
// until its context ends. Without --events that is nothing.
func (e *exporterCommand) tellByEvents(c *cobra.Command, cfg *rest.Config, o *metrics.ExporterOptions) (func(context.Context), error) {
	opts, err := e.events.options(c)
	if err != nil || opts == nil {
		return func(context.Context) {}, err
	}
	if opts.Namespace == "" {
		if opts.Namespace, _, err = e.sources.Cluster.ToRawKubeConfigLoader().Namespace(); err != nil {
			return nil, exit.Usagef("the namespace of the Lease is not known: give --events-namespace (%w)", err)
		}
	}
	opts.Log = o.Log.With(slog.String("part", "events"))
	writer, err := events.New(cfg, *opts)
	if err != nil {
		return nil, exit.Usage(err)
	}
	o.After = func(_ context.Context, a *metrics.Audit) { writer.Tell(a.Report) }
	o.Events = writer.Stats
	return writer.Run, nil
}

// both runs work, and beside it what must not disturb it. It returns when both have
// ended.
func both(ctx context.Context, beside func(context.Context), work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() { beside(ctx) })
	err := work(ctx)
	cancel()
	wait.Wait()
	return err
}
