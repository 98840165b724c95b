package page

import (
	"fmt"
	"io"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// fleetContent is what the page of several clusters shows.
type fleetContent struct {
	still
	Clusters []fleetCluster
}

// fleetCluster is one of them: its report, or what it has room for.
type fleetCluster struct {
	view.FleetCluster
	ID, Class, Word, Line string // the ID and class of its section
	Report                *fleetReport
	Capacity              *capacityContent
}

// fleetReport is a report as the page of several clusters shows it.
type fleetReport struct {
	*audit.Report
	Verdict verdict
	Groups  [][]audit.Finding
	Pools   []poolBars
}

// Fleet writes the reports of several clusters as one page that needs nothing else; its
// script copies commands.
func Fleet(w io.Writer, f *view.FleetReport, o view.Options) error {
	return writeFleet(w, f, func(x *fleetCluster, r view.ClusterReport) {
		po := Options{Options: x.Options(o)}
		po.carryable()
		x.Report = &fleetReport{Report: r.Report, Verdict: newVerdict(r.Report, po), Groups: view.Groups(r.Findings)}
		for j := range r.Pools {
			x.Report.Pools = append(x.Report.Pools, newPoolBars(r.Report, &r.Pools[j]))
		}
	})
}

// FleetCapacity writes what several clusters have room for as such a page.
func FleetCapacity(w io.Writer, f *view.FleetCapacity, o view.Options) error {
	return writeFleet(w, f, func(x *fleetCluster, r *view.CapacityReport) { x.Capacity = newCapacityContent(r, x.Options(o)) })
}

func writeFleet[T view.FleetMember](w io.Writer, f *view.Fleet[T], fill func(*fleetCluster, T)) error {
	c := fleetContent{still: still{
		head:  newHead("calico-audit: "+f.Headline(), pageStyle+asset("capacity.css", "fleet.css"), script("copy.js"), false),
		About: phrase.Plural(len(f.Items), "cluster"), Heading: f.Headline(),
	}}
	for i := range f.Items {
		x := &f.Items[i]
		one := fleetCluster{FleetCluster: x.FleetCluster, ID: fmt.Sprintf("cluster-%d", i+1), Word: x.Word(), Line: x.Line(), Class: "sev-none"}
		switch s := x.Severity(); {
		case x.Error != "":
			one.Class = "sev-unread"
		case s != 0:
			one.Class = "sev-" + s.String()
		}
		if x.Error == "" {
			fill(&one, x.Of)
		}
		c.Clusters = append(c.Clusters, one)
	}
	return writePage(w, "fleet.html", &c)
}
