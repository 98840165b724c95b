package view

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// FleetCapacityKind is the kind of a FleetCapacity.
const FleetCapacityKind = "FleetCapacityReport"

// FleetCapacity holds the capacity of several clusters.
type FleetCapacity = Fleet[*CapacityReport]

// FleetFit counts clusters by whether the scenario fits or, without a scenario, by whether another
// node would get a block.
type FleetFit struct {
	Fits         int `json:"fit"`
	Short        int `json:"doNotFit"`
	Inconclusive int `json:"inconclusive,omitempty"`
}

// String returns the counts in words; "" if all are zero.
func (r *FleetFit) String() string {
	var out blocks.Names
	for _, x := range []struct {
		n    int
		text string
	}{{r.Short, "without room"}, {r.Fits, "with room"}, {r.Inconclusive, "inconclusive"}} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", x.n, x.text))
		}
	}
	return out.String()
}

func (r *CapacityReport) of() *audit.ReportCluster { return &r.Cluster }
func (r *CapacityReport) whole() bool              { return r.Complete && r.Inconclusive == "" }

// worst returns error if pods get no address, including waiting ones, or their traffic is
// dropped. It returns warning if pods borrow, or if the next node gets no block.
func (r *CapacityReport) worst() state.Severity {
	switch o := r.Outcome; {
	case r.Inconclusive != "":
		return state.Warning
	case r.Demand.PodsLeft > 0:
		return state.Error
	case o == nil && r.joins() == 0:
		return state.Warning
	case o == nil || o.Fits:
		return 0
	case o.Refused > 0 || o.Borrowed > 0 && (o.Traffic == nil || o.Traffic.Outcome != "delivered"):
		return state.Error
	}
	return state.Warning
}

func (r *CapacityReport) word() string {
	switch {
	case r.Inconclusive != "":
		return "inconclusive"
	case r.Outcome == nil && r.joins() == 0:
		return "full"
	case r.Outcome == nil:
		return "ok"
	case r.Outcome.Fits:
		return "fits"
	}
	return "does not fit"
}

// joins returns how many nodes can join and get a block in each family.
func (r *CapacityReport) joins() int {
	families := map[blocks.Family]blocks.Count{}
	for i := range r.Today {
		families[r.Today[i].Family] = families[r.Today[i].Family].Add(r.Today[i].Nodes)
	}
	if len(families) == 0 {
		return 0
	}
	least := math.MaxInt
	for _, n := range families {
		if n, ok := n.Int(); ok {
			least = min(least, n)
		}
	}
	return least
}

func (r *CapacityReport) numbers() []int {
	if o := r.Outcome; o != nil {
		return []int{r.Demand.PodsLeft, o.Refused, o.Borrowed, len(o.WithoutBlock)}
	}
	return []int{r.Demand.PodsLeft, -r.joins()}
}

// shownPools limits the pools in a cluster's line.
const shownPools = 3

func (r *CapacityReport) lines() (out []string) {
	if d := &r.Demand; d.PodsLeft+len(d.NodesLeft) > 0 {
		out = []string{strings.TrimSuffix(DemandLines(r)[0], ".")}
	}
	switch o := r.Outcome; {
	case r.Inconclusive != "":
		return []string{r.Inconclusive}
	case o != nil && !o.Fits:
		for _, x := range []struct {
			n    int
			what string
		}{{len(o.WithoutBlock), "nodes that get no block"}, {o.Borrowed, "borrowed addresses"}, {o.Refused, "pods that get no address"}} {
			if x.n > 0 {
				out = append(out, fmt.Sprintf("%s: %d", x.what, x.n))
			}
		}
		if t := o.Traffic; t != nil {
			out = append(out, "their traffic is "+t.Outcome)
		}
		if len(o.Changes) > 0 {
			out = append(out, "it fits with this change: "+o.Changes[0].Title)
		}
	default:
		for i := range r.Today[:min(len(r.Today), shownPools)] {
			h := &r.Today[i]
			out = append(out, fmt.Sprintf("%s: %s can join, %s can start", h.Pool, phrase.PluralCount(h.Nodes, "node"), phrase.PluralCount(h.Pods, "pod")))
		}
		if more := len(r.Today) - shownPools; more > 0 {
			out = append(out, phrase.Plural(more, "more pool"))
		}
	}
	return append(out, notWhole(r.Complete, r.Gaps)...)
}

func (r *CapacityReport) addTo(f *FleetSummary) {
	switch {
	case f.FleetFit == nil:
		f.FleetFit = &FleetFit{}
	case r.Inconclusive != "":
		f.Inconclusive++
	case r.worst() != 0:
		f.Short++
	default:
		f.Fits++
	}
}

// withCommands returns the report itself: it contains no commands.
func (r *CapacityReport) withCommands(func(string) string) FleetMember { return r }
func (r *CapacityReport) print(p *printer)                             { p.capacity(r) }

func (r *CapacityReport) markdown(w io.Writer, o Options) error {
	return asMarkdown[*CapacityReport]("capacity")(w, r, o)
}

// FleetCapacityFormats returns the formats of a FleetCapacity. page writes it as HTML.
func FleetCapacityFormats(page func(io.Writer, *FleetCapacity, Options) error) Formats[*FleetCapacity] {
	return fleetFormats(page)
}
