package view

import (
	"encoding/xml"
	"regexp"
	"strings"
	"testing"
)

func testFleet(t *testing.T) *FleetReport {
	t.Helper()
	item := func(context, report string) FleetItem[ClusterReport] {
		return FleetItem[ClusterReport]{FleetCluster: FleetCluster{Context: context, Args: "--context " + context, PortableArgs: "--context " + context}, Of: ClusterReport{loadReport(t, report)}}
	}
	prod := item("prod", "story")
	prod.Same = []string{"prod-admin"}
	return NewFleet(FleetKind, []FleetItem[ClusterReport]{{FleetCluster: FleetCluster{Context: "dead\x1b[31m", Error: "connection refused"}}, prod, item("partial", "incomplete"), item("lab", "healthy")})
}

// TestFleetGolden: one line a cluster, then the problems of each.
func TestFleetGolden(t *testing.T) {
	formats := FleetFormats(nil)
	golden(t, "fleet.table.80", written(t, formats, "table", testFleet(t), testOptions(80)))
	golden(t, "fleet.markdown", written(t, formats, "markdown", testFleet(t), testOptions(80)))
	coloured := testOptions(80)
	coloured.Color = true
	if got := regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(written(t, formats, "table", testFleet(t), coloured), ""); got != written(t, formats, "table", testFleet(t), testOptions(80)) {
		t.Errorf("something is said by colour alone:\n%s", got)
	}
	if got := written(t, formats, "wide", testFleet(t), testOptions(80)); !strings.Contains(got, written(t, ReportFormats(nil), "wide", loadReport(t, "healthy"), testFleet(t).Items[3].Options(testOptions(80)))) {
		t.Errorf("-o wide does not hold a cluster's own:\n%s", got)
	}
}

// TestFleetJUnit: the totals match the sums over the suites.
func TestFleetJUnit(t *testing.T) {
	var got struct {
		Tests    int `xml:"tests,attr"`
		Errors   int `xml:"errors,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Name     string `xml:"name,attr"`
			Tests    int    `xml:"tests,attr"`
			Errors   int    `xml:"errors,attr"`
			Failures int    `xml:"failures,attr"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(written(t, FleetFormats(nil), "junit", testFleet(t), Options{})), &got); err != nil {
		t.Fatal(err)
	}
	tests, errs, failures := 0, 0, 0
	for _, s := range got.Suites {
		tests, errs, failures = tests+s.Tests, errs+s.Errors, failures+s.Failures
	}
	if len(got.Suites) != 4 || got.Tests != tests || got.Errors != errs || got.Failures != failures || failures == 0 || got.Suites[0].Errors != 1 || got.Suites[2].Errors == 0 {
		t.Errorf("%+v", got)
	}
}

// TestFleetCommands: commands in data formats read the cluster of their item.
func TestFleetCommands(t *testing.T) {
	got := written(t, FleetFormats(nil), `jsonpath={range .items[1].findings[*]}{.fix.command}{"\n"}{end}`, testFleet(t), Options{Program: "kubectl calico-audit"})
	ours := 0
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "kubectl calico-audit ") {
			ours++
			if strings.Count(line, " --context prod ") != 1 {
				t.Errorf("%q", line)
			}
		}
	}
	if ours == 0 {
		t.Errorf("the commands are %q", got)
	}
}
