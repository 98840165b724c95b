package metrics

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

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

	// order holds the indexes of Labels, sorted by name, as they are written.
	order []int
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
	for i := range labels {
		f.order = append(f.order, i)
	}
	slices.SortFunc(f.order, func(a, b int) int { return cmp.Compare(labels[a], labels[b]) })
	g.Families = append(g.Families, f)
	return f
}

// samples holds samples in Prometheus' text format, by family. There are several for each
// node, so they are formatted directly.
type samples map[*Family][]byte

var escaped = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// add adds a sample. Label values are in the order of Family.Labels.
func (s samples) add(f *Family, value float64, labels ...string) {
	line := s[f]
	line = append(line, f.Name...)
	for n, i := range f.order {
		line = append(line, "{,"[min(n, 1)])
		line = append(append(line, f.Labels[i]...), `="`...)
		line = append(line, escaped.Replace(strings.ToValidUTF8(labels[i], "�"))...) // a block's owner may be any string
		line = append(line, '"')
	}
	if len(f.Labels) > 0 {
		line = append(line, '}')
	}
	line = strconv.AppendFloat(append(line, ' '), value, 'g', -1, 64)
	s[f] = append(line, '\n')
}

// text returns the samples in Prometheus' text format, by family name.
func (s samples) text() []byte {
	order := slices.SortedFunc(maps.Keys(s), func(a, b *Family) int { return cmp.Compare(a.Name, b.Name) })
	size := 0
	for _, f := range order {
		size += len(s[f]) + 512
	}
	out := make([]byte, 0, size)
	for _, f := range order {
		kind := "gauge"
		if f.Type == prometheus.CounterValue {
			kind = "counter"
		}
		out = fmt.Appendf(out, "# HELP %s %s\n# TYPE %s %s\n", f.Name, strings.ReplaceAll(f.Help, `\`, `\\`), f.Name, kind)
		out = append(out, s[f]...)
	}
	return out
}

// parse parses Prometheus' text format into families, sorted by name.
func parse(text []byte) ([]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	named, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	var out []*dto.MetricFamily
	for _, name := range slices.Sorted(maps.Keys(named)) {
		out = append(out, named[name])
	}
	return out, err
}
