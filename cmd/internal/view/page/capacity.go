package page

import (
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// still is the common content of static pages.
type still struct {
	head
	// About is the subject in the top line.
	About, Heading string
}

// capacityContent is the content of a capacity page.
type capacityContent struct {
	still
	*view.CapacityReport
	Source, Taken, Scenario string
	Served, Lines, Changes  []string
	Headroom, Nodes, Pools  *view.Table
	More                    int
	Charts                  []chart
}

// Capacity writes a capacity report as a self-contained page without scripts.
func Capacity(w io.Writer, r *view.CapacityReport, o view.Options) error {
	return writePage(w, "capacity.html", newCapacityContent(r, o))
}

func newCapacityContent(r *view.CapacityReport, o view.Options) *capacityContent {
	c := &capacityContent{
		still:          still{head: newHead("calico-audit: capacity of cluster "+r.Cluster.GUID, pageStyle+asset("capacity.css"), "", false), About: "capacity"},
		CapacityReport: r, Source: o.Source, Taken: r.Cluster.TakenAt.String(),
	}
	c.Headroom, c.Heading = view.HeadroomTable(r), "What still fits"
	if r.Inconclusive == "" {
		c.Served = view.DemandLines(r)
	}
	switch out := r.Outcome; {
	case r.Inconclusive != "":
		c.Heading = "Inconclusive"
	case out != nil:
		c.Heading = map[bool]string{true: "It fits", false: "It does not fit"}[out.Fits]
		c.Nodes, c.Pools = view.NodesTable(out, listed), view.PoolsTable(out)
		c.Scenario, c.Lines, c.Changes = view.ScenarioText(r.Scenario), view.OutcomeLines(r), view.ChangeLines(out)
		c.More = len(out.Nodes) - len(c.Nodes.Rows)
	}
	for i := range r.Curve {
		c.Charts = append(c.Charts, newChart(&r.Curve[i], r.Scenario))
	}
	return c
}

// The size of a chart, in its own units. It is as narrow as a phone, so that its text is
// readable there, and scales with the page.
const (
	chartWidth, chartHeight = 380, 230
	chartLeft, chartRight   = 46, 12
	chartTop, chartBottom   = 16, 40
)

// chart is a drawn curve.
type chart struct {
	Family  blocks.Family
	Caption string
	// Claimed is the path of the claimed blocks. Short is the path of the part where
	// joining nodes get no block.
	Claimed, Short string
	// CapacityY is the height of the capacity line, 0 if it is off the chart. AskedX is the
	// position of the scenario's number of nodes, 0 if it adds none.
	CapacityY, AskedX float64
	Capacity          string
	X, Y              []tick
	Width, Height     int
	Left, Right       float64
	Top, Bottom       float64
}

// tick is a label of an axis.
type tick struct {
	At   float64
	Text string
}

func newChart(c *capacity.Curve, q *capacity.Scenario) chart {
	last := c.Points[len(c.Points)-1]
	top := max(last.Blocks, 1)
	whole, known := c.Capacity.Int()
	if known = known && whole <= 4*top; known {
		top = max(top, whole)
	}
	out := chart{
		Family: c.Family, Capacity: c.Capacity.String(), Width: chartWidth, Height: chartHeight,
		Left: chartLeft, Right: chartWidth - chartRight, Top: chartTop, Bottom: chartHeight - chartBottom,
	}
	x := func(n int) float64 { return out.Left + float64(n)/float64(last.Nodes)*(out.Right-out.Left) }
	y := func(n int) float64 { return out.Bottom - float64(n)/(float64(top)*1.08)*(out.Bottom-out.Top) }
	var claimed, short strings.Builder
	first := -1
	for i, p := range c.Points {
		if i == 0 {
			fmt.Fprintf(&claimed, "M%.1f %.1f", x(0), y(p.Blocks))
		} else {
			fmt.Fprintf(&claimed, "H%.1fV%.1f", x(p.Nodes), y(p.Blocks))
		}
		if p.WithoutBlock > 0 {
			if first < 0 {
				first = p.Nodes
				fmt.Fprintf(&short, "M%.1f %.1f", x(p.Nodes-1), y(p.Blocks))
			}
			fmt.Fprintf(&short, "H%.1fV%.1f", x(p.Nodes), y(p.Blocks))
		}
	}
	out.Claimed, out.Short = claimed.String(), short.String()
	if known {
		out.CapacityY = y(whole)
	}
	if q != nil && q.AddNodes > 0 {
		out.AskedX = x(min(q.AddNodes, last.Nodes))
	}
	for _, n := range steps(last.Nodes) {
		out.X = append(out.X, tick{x(n), fmt.Sprint(n)})
	}
	for _, n := range steps(top) {
		out.Y = append(out.Y, tick{y(n), fmt.Sprint(n)})
	}
	switch {
	case first == 1:
		out.Caption = "No node that joins gets a block."
	case first > 0:
		out.Caption = fmt.Sprintf("%s can join; node %d gets no block.", phrase.Plural(first-1, "node"), first)
	default:
		out.Caption = fmt.Sprintf("Each of %d nodes that join gets a block.", last.Nodes)
	}
	return out
}

// steps returns four to six round numbers from 0 to at most to.
func steps(to int) (out []int) {
	step := 1
	for _, by := range []int{1, 2, 5} {
		for s := by; s <= to; s *= 10 {
			if to/s >= 4 {
				step = max(step, s)
			}
		}
	}
	for n := 0; n <= to; n += step {
		out = append(out, n)
	}
	return out
}
