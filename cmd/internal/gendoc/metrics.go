package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/metrics"
)

// labelMeanings describes the values of labels.
var labelMeanings = [][2]string{
	{"ippool", "the name of an IPPool; `none` without one"},
	{"ip_family", "`IPv4` or `IPv6`"},
	{"node", "the name of a Kubernetes node, as Calico's IPAM has it"},
	{"state", "of a block: `claimed`, `free` or `reserved`"},
	{"block_owner", "`self`, `other` or `none`, as seen from the node"},
	{"cidr", "the CIDR of a pool"},
	{"block_size", "the prefix length of a pool's blocks"},
	{"workloads", "`true` or `false`"},
	{"whereabouts_pool", "the namespace and name of an IPPool of Whereabouts'"},
	{"network", "the name of a secondary network (`network_name`); empty for the one without"},
	{"check", "the ID of a check, such as `pool/no-free-blocks`"},
	{"severity", strings.Replace(codes(state.SeverityNames()), ", `info`", " or `info`", 1)},
	{"resource", "a kind of object, by its plural in the older API group, such as `ipamblocks`"},
	{"version", "the version of calico-audit"},
	{"revision", "the commit it was built from"},
	{"goversion", "the version of Go it was built with"},
	{"type", "of a route: `unicast`, `blackhole` and the like"},
	{"protocol", "what made a route, such as `bird`, or its number"},
}

// families returns METRICS.md.
func families() []byte {
	var b bytes.Buffer
	b.WriteString(`# Metrics

` + "`calico-audit exporter` and `calico-audit agent`" + ` serve these metrics under ` + "`/metrics`" + `. All numbers of one scrape
come from one audit of one state, so the series of a deleted node or pool end with the next
scrape. No label holds an address, a pod or a block.

If a read fails, the metrics that need it are absent, not 0, and ` + "`calico_audit_snapshot_complete`" + ` is 0.
The column "needs" names the reads of each family.

"stable" families keep their names, labels and meaning; families marked "may change" may not.
`)
	for _, g := range metrics.Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| name | type | labels | unit | meaning | needs | |\n|---|---|---|---|---|---|---|\n", g.Title, g.About)
		for _, f := range g.Families {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", f.Name, typeName(f.Type), codes(f.Labels), f.Unit, inCell(f.Help), codes(f.Requires), stability(f))
		}
	}
	b.WriteString("\n## Labels\n\n| label | values |\n|---|---|\n")
	for _, l := range labelMeanings {
		fmt.Fprintf(&b, "| `%s` | %s |\n", l[0], l[1])
	}
	return b.Bytes()
}

func typeName(t prometheus.ValueType) string {
	if t == prometheus.CounterValue {
		return "counter"
	}
	return "gauge"
}

func stability(f *metrics.Family) string {
	if f.Stable {
		return "stable"
	}
	return "may change"
}

// codes formats words as code.
func codes[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "`" + string(w) + "`"
	}
	return strings.Join(out, ", ")
}

// inCell escapes Markdown in table cells.
var inCell = strings.NewReplacer("|", "\\|", "*", "\\*", "_", "\\_", "<", "&lt;").Replace
