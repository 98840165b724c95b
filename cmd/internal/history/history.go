// Package history reads the history of pools, for their runway: from a Prometheus that
// scrapes the exporter, or from snapshots and reports.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/runway"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/metrics/query"
)

// Gap is the resource of a gap for a failed query of Prometheus.
const Gap blocks.Resource = "prometheus"

// Flags select the source of the history.
type Flags struct {
	options query.Options
	window  string
	since   []string

	fs     *pflag.FlagSet // nil if no flags were added
	client *query.Client  // nil without --prometheus
}

// AddPrometheus adds the flags for Prometheus. It returns the names of the flags that take
// no file.
func (f *Flags) AddPrometheus(fs *pflag.FlagSet) []string {
	f.fs = fs
	fs.StringVar(&f.options.URL, "prometheus", "", "`URL` of a Prometheus that scrapes the exporter; each pool's history gives an estimate of when its blocks and addresses run out")
	fs.StringVar(&f.options.Selector, "prometheus-selector", "", "`MATCHERS` that select this cluster's series, such as cluster=\"a\", if that Prometheus holds several clusters")
	fs.StringVar(&f.window, "prometheus-window", "30d", "read the samples of this last `DURATION`, at least a day; an estimate needs samples of a week")
	fs.StringVar(&f.options.CAFile, "prometheus-ca-file", "", "`FILE` with the CA certificates of Prometheus (default: the system's)")
	fs.StringVar(&f.options.TokenFile, "prometheus-token-file", "", "`FILE` with a bearer token for Prometheus; sent only over https")
	return []string{"prometheus", "prometheus-selector", "prometheus-window"}
}

// AddSince adds the flag for earlier snapshots.
func (f *Flags) AddSince(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.since, "since", nil, "earlier snapshot or report `FILE` of the same cluster, for an estimate of when blocks and addresses run out; repeatable: samples of seven days, including the current one, give a rate with a range, fewer only a rate")
}

// Check validates the flags.
func (f *Flags) Check() (err error) {
	if f.options.URL == "" {
		for _, name := range []string{"selector", "window", "ca-file", "token-file"} {
			if f.fs != nil && f.fs.Changed("prometheus-"+name) {
				return fmt.Errorf("--prometheus-%s requires --prometheus", name)
			}
		}
		return nil
	}
	if len(f.since) > 0 {
		return errors.New("--prometheus and --since are two sources of history: use one of them")
	}
	window, err := model.ParseDuration(f.window)
	if err != nil {
		return fmt.Errorf("reading --prometheus-window: %q is not a duration such as 30d", f.window)
	}
	f.options.Window = time.Duration(window)
	if f.client, err = query.New(f.options); err != nil {
		return fmt.Errorf("reading --prometheus: %w", err)
	}
	return nil
}

// Asked reports whether a history was requested.
func (f *Flags) Asked() bool { return f.client != nil || len(f.since) > 0 }

// Reader reads an earlier report, or makes one from an earlier snapshot.
type Reader func(ctx context.Context, path string) (*audit.Report, error)

// AddTo adds the runway to a report. It is an error if an earlier report cannot be read, or
// has another cluster or a later time. A failed query of Prometheus becomes a gap of the
// report.
func (f *Flags) AddTo(ctx context.Context, r *audit.Report, read Reader) error {
	if !f.Asked() {
		return nil
	}
	at := r.Cluster.TakenAt.Time
	if at.IsZero() {
		return errors.New("the runway needs the time at which the files were read: set it with --at")
	}
	if f.client != nil {
		h, failed := f.client.History(ctx, at)
		if failed != nil {
			r.Complete, r.Gaps = false, append(r.Gaps, blocks.Gap{Resource: Gap, Reason: failed.Error()})
			return nil //nolint:nilerr // it stands in the report
		}
		r.AddRunway(h)
		return nil
	}
	h := &runway.History{Source: "earlier snapshots", Pools: map[string]runway.Past{}}
	for _, path := range f.since {
		before, err := read(ctx, path)
		if err != nil {
			return err
		}
		a, b := before.Cluster.GUID, r.Cluster.GUID
		switch {
		case a != b && a != "" && b != "":
			return fmt.Errorf("--since %s belongs to cluster %s, this cluster is %s", path, a, b)
		case !before.Cluster.TakenAt.Before(at):
			return fmt.Errorf("--since %s was taken at %s, which is not before %s", path,
				cmp.Or(before.Cluster.TakenAt.Format(time.RFC3339), "an unknown time"), at.Format(time.RFC3339))
		}
		before.Remember(h)
	}
	r.AddRunway(h)
	return nil
}
