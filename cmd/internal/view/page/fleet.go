package page

import (
	"bytes"
	"fmt"
	"html/template"
	"io"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

var fleetStyle = MapStyle + asset("page.css", "fleet.css")

// fleetContent is what the page of several clusters shows.
type fleetContent struct {
	*view.FleetReport
	Policy   string
	Style    template.HTML // ours, written as it is
	Clusters []fleetCluster
}

// fleetCluster is one of them.
type fleetCluster struct {
	*view.FleetItem
	ID      string // of its section
	Verdict verdict
	Groups  [][]audit.Finding
	Pools   []poolBars
}

// Fleet writes the reports of several clusters as one page that needs nothing else, and no
// script.
func Fleet(w io.Writer, f *view.FleetReport, o view.Options) error {
	c := fleetContent{
		FleetReport: f, Policy: "default-src 'none'; style-src " + hashSource(fleetStyle) + "; base-uri 'none'; form-action 'none'",
		Style: template.HTML("<style>" + fleetStyle + "</style>"), //nolint:gosec // our own
	}
	for i := range f.Items {
		x := &f.Items[i]
		one := fleetCluster{FleetItem: x, ID: fmt.Sprintf("cluster-%d", i+1)}
		if x.Report != nil {
			po := Options{Options: x.Options(o.Defaults())}
			if po.ReportArgs != po.PortableArgs {
				po.source, po.ReportArgs = po.ReportArgs, po.PortableArgs
			}
			one.Verdict, one.Groups = newVerdict(x.Report, po), view.Groups(x.Report.Findings)
			for j := range x.Report.Pools {
				one.Pools = append(one.Pools, newPoolBars(x.Report, &x.Report.Pools[j]))
			}
		}
		c.Clusters = append(c.Clusters, one)
	}
	var buf bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&buf, "fleet.html", &c); err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	_, err := w.Write(buf.Bytes())
	return err
}
