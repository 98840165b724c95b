package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/fleet"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// fleetFlags are the flags that select several clusters.
type fleetFlags struct {
	contexts []string // nil for one cluster
	limit    time.Duration
	flags    *pflag.FlagSet
	members  []fleet.Member
}

func (f *fleetFlags) addFlags(c *cobra.Command) {
	f.flags = c.Flags()
	fs := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
	fs.StringSliceVar(&f.contexts, "contexts", nil, "read the clusters of these kubeconfig contexts, comma-separated `NAMES` or "+fleet.All+", and print one document")
	fs.DurationVar(&f.limit, "cluster-timeout", 5*time.Minute, "with --contexts, time limit for reading one cluster; 0 sets no limit")
	flags.InGroup(fs, flags.Source)
	c.Flags().AddFlagSet(fs)
	flags.NoFiles(c, "cluster-timeout")
}

// complete validates --contexts with the other flags, and finds the clusters.
func (f *fleetFlags) complete(s *source.Flags) error {
	if f.contexts == nil {
		if f.flags.Changed("cluster-timeout") {
			return exit.Usagef("--cluster-timeout requires --contexts; for one cluster, use --request-timeout")
		}
		return nil
	}
	if f.limit < 0 {
		return exit.Usagef("--cluster-timeout %s is negative", f.limit)
	}
	if err := fleet.CheckFlags(f.flags); err != nil {
		return exit.Usage(err)
	}
	if where, etcd := s.OfEtcd(); etcd {
		return exit.Usagef("--contexts is not supported if Calico keeps its data in its own etcd (%s)", where)
	}
	config, err := s.Cluster.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return exit.Usagef("reading the kubeconfig: %w", err)
	}
	if f.members, err = fleet.Members(config, f.contexts); err != nil {
		return exit.Usage(err)
	}
	return nil
}

// member is a cluster of a fleet with its own source and streams.
type member struct {
	fleet.Member
	sources source.Flags
	streams genericiooptions.IOStreams
}

// readFleet reads all clusters. of returns the function that reads one, with its output
// options.
func readFleet[T view.FleetMember](ctx context.Context, e env, f *fleetFlags, from *source.Flags, progress *terminal.Progress, of func(*member) (view.Options, func(context.Context) (T, error))) ([]view.FleetItem[T], []error, error) {
	warnings := fleet.NewWarnings(e.streams.ErrOut, progress.Clear)
	var readers []fleet.Reader[T]
	for _, m := range f.members {
		one := &member{Member: m, streams: e.streams}
		one.streams.ErrOut = warnings.Of(m.Context)
		one.sources.AddTo(&cobra.Command{})
		flags := one.sources.ClusterFlags
		if err := errors.Join(fleet.CopyFlags(from.ClusterFlags, flags), flags.Set("context", m.Context)); err != nil {
			return nil, nil, err
		}
		o, read := of(one)
		if m.Broken != nil {
			read = func(context.Context) (T, error) { return *new(T), exit.Usage(m.Broken) }
		}
		readers = append(readers, fleet.Reader[T]{
			FleetCluster: view.FleetCluster{Context: m.Context, Same: m.Same, Args: o.ReportArgs, PortableArgs: o.PortableArgs}, Read: read,
		})
	}
	items, errs := fleet.Read(ctx, readers, f.limit, progress.Show)
	progress.Clear()
	for i, err := range errs {
		if err == nil {
			continue
		}
		code := exit.CodeFailure
		if late := new(fleet.TimeoutError); errors.As(err, &late) {
			code = exit.CodeUnread
		} else if known := new(exit.Error); errors.As(err, &known) {
			code = exit.Code(err)
		}
		errs[i] = &exit.Error{Code: code, Err: fmt.Errorf("context %s: %w", items[i].Context, err)}
	}
	return items, errs, nil
}
