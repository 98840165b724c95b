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
	fs.StringVar(&f.options.URL, "prometheus", "", "the `URL` of a Prometheus that scrapes the exporter: by what was left of each pool before, it is estimated when its blocks and addresses run out")
	fs.StringVar(&f.options.Selector, "prometheus-selector", "", "the `MATCHERS` that choose the series of this cluster, such as cluster=\"a\", where that Prometheus has several clusters")
	fs.StringVar(&f.window, "prometheus-window", "30d", "how far back samples are read, as a `DURATION` of at least a day; samples of a week are needed, or there is no date")
	fs.StringVar(&f.options.CAFile, "prometheus-ca-file", "", "`FILE` of the CA certificates that the certificate of Prometheus is signed by (default: those of the system)")
	fs.StringVar(&f.options.TokenFile, "prometheus-token-file", "", "`FILE` with a bearer token for Prometheus; sent over https only")
	return []string{"prometheus", "prometheus-selector", "prometheus-window"}
}

// AddSince adds the flag for earlier snapshots.
func (f *Flags) AddSince(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.since, "since", nil, "an earlier snapshot or report `FILE` of the same cluster: by it, it is estimated when blocks and addresses run out; repeatable: one gives a rate alone, several a rate and its range once they are of seven days, this one among them")
}

// Check validates the flags.
func (f *Flags) Check() (err error) {
	if f.options.URL == "" {
		for _, name := range []string{"selector", "window", "ca-file", "token-file"} {
			if f.fs != nil && f.fs.Changed("prometheus-"+name) {
				return fmt.Errorf("--prometheus-%s goes with --prometheus", name)
			}
		}
		return nil
	}
	if len(f.since) > 0 {
		return errors.New("--prometheus and --since are two pasts: give one of them")
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

// Client returns the Prometheus client; nil without --prometheus.
func (f *Flags) Client() *query.Client { return f.client }

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
		return errors.New("no runway without a time: when the files were read is not known, and --at says it")
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
			return fmt.Errorf("--since %s is of cluster %s, and this is %s", path, a, b)
		case !before.Cluster.TakenAt.Before(at):
			return fmt.Errorf("--since %s is of %s, which is not before %s", path,
				cmp.Or(before.Cluster.TakenAt.Format(time.RFC3339), "an unknown time"), at.Format(time.RFC3339))
		}
		before.Remember(h)
	}
	r.AddRunway(h)
	return nil
}
