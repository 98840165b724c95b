package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-audit/calico-audit/blocks"
)

// Family describes a family of metrics. Its documentation in METRICS.md comes from
// this value, too.
type Family struct {
	Name string
	// Help says what a value means.
	Help string
	Type prometheus.ValueType
	// Unit is what is counted.
	Unit   string
	Labels []string
	// Stable is true for families that dashboards and alerts may rely on. The
	// others may change from one version to the next.
	Stable bool
	// Needs are the resources without which the numbers would be wrong. While one
	// could not be read whole, the family is absent.
	Needs []blocks.Resource

	desc *prometheus.Desc
}

// with returns the family with what its numbers need.
func (f *Family) with(needs ...blocks.Resource) *Family {
	f.Needs = needs
	return f
}

// metric makes a metric of the family. Labels are given in the order of Labels.
func (f *Family) metric(value float64, labels ...string) prometheus.Metric {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "�") // a block may name anything as its owner
	}
	m, err := prometheus.NewConstMetric(f.desc, f.Type, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(f.desc, err)
	}
	return m
}

// Group is a section of METRICS.md.
type Group struct {
	// Title is its heading, and About the text before its families.
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
	f.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	g.Families = append(g.Families, f)
	return f
}
