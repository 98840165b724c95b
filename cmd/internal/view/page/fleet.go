package page

import (
	"fmt"
	"io"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// fleetContent is the content of the page of several clusters.
type fleetContent struct {
	still
	Clusters []fleetCluster
}

// fleetCluster is a cluster of the page: its report or its capacity.
type fleetCluster struct {
	view.FleetCluster
	ID, Class, Word, Line string // ID and Class are those of the cluster's section.
	Report                *fleetReport
	Capacity              *capacityContent
}

// fleetReport is a report on the page of several clusters.
type fleetReport struct {
	*audit.Report
	Verdict verdict
	Groups  [][]audit.Finding
	Pools   []poolBars
}

// Fleet writes the reports of several clusters as a self-contained page. Its script only
// copies commands.
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

// FleetCapacity writes the capacity of several clusters as a self-contained page.
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
