package metrics

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

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
}

// with returns the family with what its numbers need.
func (f *Family) with(needs ...blocks.Resource) *Family {
	f.Needs = needs
	return f
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
	g.Families = append(g.Families, f)
	return f
}

// samples are samples by the names of their families.
type samples map[string]*dto.MetricFamily

// add adds a sample. Labels are given in the order of the family's.
func (s samples) add(f *Family, value float64, labels ...string) {
	of := s[f.Name]
	if of == nil {
		of = &dto.MetricFamily{Name: &f.Name, Help: &f.Help, Type: f.Type.ToDTO().Enum()}
		s[f.Name] = of
	}
	m := &dto.Metric{Label: make([]*dto.LabelPair, len(labels))}
	for i, l := range labels {
		l = strings.ToValidUTF8(l, "�") // a block may name anything as its owner
		m.Label[i] = &dto.LabelPair{Name: &f.Labels[i], Value: &l}
	}
	slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(*a.Name, *b.Name) })
	if f.Type == prometheus.CounterValue {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	of.Metric = append(of.Metric, m)
}

// families returns them by name, as [prometheus.Gatherer] wants them.
func (s samples) families() []*dto.MetricFamily {
	out := make([]*dto.MetricFamily, 0, len(s))
	for _, name := range slices.Sorted(maps.Keys(s)) {
		out = append(out, s[name])
	}
	return out
}

// encode writes families in Prometheus' text format.
func encode(families []*dto.MetricFamily) ([]byte, error) {
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return bytes.Clone(b.Bytes()), nil
}
