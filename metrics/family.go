package metrics

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/calico-audit/calico-audit/blocks"
)

// Family describes a metric family. Its documentation in METRICS.md is generated from this
// value.
type Family struct {
	Name string
	// Help explains the value.
	Help   string
	Type   prometheus.ValueType
	Unit   string
	Labels []string
	// Stable is true for families that dashboards and alerts may rely on. Other families
	// may change between releases.
	Stable bool
	// Requires are the resources that the numbers need. The family is absent while one of
	// them has a gap.
	Requires []blocks.Resource

	desc *prometheus.Desc
}

// with sets the required resources.
func (f *Family) with(requires ...blocks.Resource) *Family {
	f.Requires = requires
	return f
}

// Group is a section of METRICS.md.
type Group struct {
	// Title is the heading; About is the text before the families.
	Title, About string
	Families     []*Family

	prefix string
	stable bool
}

func (g *Group) gauge(name, unit, help string, labels ...string) *Family {
	return g.add(prometheus.GaugeValue, name, unit, help, labels)
}

func (g *Group) counter(name, unit, help string, labels ...string) *Family {
	return g.add(prometheus.CounterValue, name, unit, help, labels)
}

func (f *Family) unstable() *Family {
	f.Stable = false
	return f
}

func (g *Group) add(t prometheus.ValueType, name, unit, help string, labels []string) *Family {
	f := &Family{Name: g.prefix + name, Help: help, Type: t, Unit: unit, Labels: labels, Stable: g.stable}
	f.desc = prometheus.NewDesc(f.Name, help, labels, nil)
	g.Families = append(g.Families, f)
	return f
}

// samples are the metrics of one moment.
type samples []prometheus.Metric

// add adds a sample. Label values are in the order of Family.Labels.
func (s *samples) add(f *Family, value float64, labels ...string) {
	values := make([]string, len(labels))
	for i, l := range labels {
		values[i] = strings.ToValidUTF8(l, "�") // a block's owner may be any string
	}
	*s = append(*s, prometheus.MustNewConstMetric(f.desc, f.Type, value, values...))
}

// collector is a [prometheus.Collector] of the metrics of the moment of a scrape.
type collector func() samples

// Describe implements [prometheus.Collector]. It names no family, because the set of families
// depends on the reads that succeeded.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, m := range c() {
		to <- m
	}
}

// registry returns a registry of the metrics, with the standard metrics of Go programs and processes.
func (c collector) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// handler serves metrics in any of Prometheus' formats.
func (c collector) handler(log *slog.Logger) http.HandlerFunc {
	return promhttp.HandlerFor(c.registry(), promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
	}).ServeHTTP
}
