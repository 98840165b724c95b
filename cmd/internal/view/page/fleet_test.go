package page

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// TestFleetPage: the page of several clusters is readable on a phone, in light and dark,
// and its table links to each cluster.
func TestFleetPage(t *testing.T) {
	partial := snapshotReport(t, "story")
	partial.Complete, partial.Gaps = false, []blocks.Gap{{Resource: "pods", Reason: "forbidden: pods is forbidden"}}
	item := func(context string, r *audit.Report) view.FleetItem[view.ClusterReport] {
		return view.FleetItem[view.ClusterReport]{FleetCluster: view.FleetCluster{Context: context, Args: "--kubeconfig /home/me/config --context " + context, PortableArgs: "--context " + context}, Of: view.ClusterReport{Report: r}}
	}
	fleet := view.NewFleet(view.FleetKind, []view.FleetItem[view.ClusterReport]{
		{FleetCluster: view.FleetCluster{Context: "arn:aws:eks:eu-central-1:123456789012:cluster/far-away-and-with-a-long-name", Error: "reading the cluster at 10.0.0.1:6443: dial tcp 10.0.0.1:6443: connect: connection refused", Same: []string{"b"}}},
		item("prod", snapshotReport(t, "story")), item("<b>partial</b>", partial), item("dual", snapshotReport(t, "dual-stack")), item("lab", snapshotReport(t, "healthy")),
	})
	file := filepath.Join(t.TempDir(), "fleet.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Fleet(f, fleet, testOptions().Options); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	x := startBrowser(t).open(t, "file://"+file)
	x.accessible("the page of several clusters")
	shot := func(name string) {
		if dir := os.Getenv("SHOTS"); dir != "" {
			var png []byte
			x.run(chromedp.FullScreenshot(&png, 100))
			_ = os.WriteFile(filepath.Join(dir, name), png, 0o600)
		}
	}
	shot("wide.png")
	x.run(emulation.SetDeviceMetricsOverride(390, 844, 2, true))
	for _, dark := range []bool{false, true} {
		x.dark(dark)
		if wide := eval[bool](x, `document.documentElement.scrollWidth > innerWidth`); wide {
			t.Error("the page is wider than a telephone")
		}
		shot(map[bool]string{true: "dark.png", false: "light.png"}[dark])
	}
	x.accessible("the same on a telephone")
	if got := x.texts(".clusters tbody td.sev"); len(got) != 5 || got[0] != "NOT READ" || got[1] != "CRITICAL" {
		t.Errorf("the clusters are %q", got)
	}
	if lost := eval[int](x, `[...document.querySelectorAll(".clusters a")].filter(a => !document.querySelector(a.getAttribute("href"))).length`); lost != 0 {
		t.Errorf("%d clusters have no section", lost)
	}
	if got := x.texts("#cluster-2 .next code"); len(got) == 0 || got[0] == "" {
		t.Errorf("the remedies' commands are %q", got)
	}
	if n := eval[int](x, `document.querySelectorAll("#cluster-2 .next code").length - [...document.querySelectorAll("#cluster-2 .next code")].filter(c => !/^calico-audit (report|repair|explain) /.test(c.textContent) || c.textContent.includes(" --context prod ") || c.textContent.includes("repair apply")).length`); n != 0 {
		t.Errorf("%d commands do not name their cluster", n)
	}
	if codes, buttons := eval[int](x, `document.querySelectorAll(".next code").length`), eval[int](x, `[...document.querySelectorAll(".next [data-copy]")].filter(b => b.checkVisibility()).length`); codes != buttons {
		t.Errorf("%d commands have %d buttons that copy", codes, buttons)
	}
	eval[bool](x, `document.addEventListener("copy", () => { window.copied = document.activeElement.value }), navigator.clipboard.writeText = () => Promise.reject(new Error("no right")), true`)
	x.run(chromedp.Click("#cluster-2 .next [data-copy]", chromedp.ByQuery))
	x.until(`document.querySelector("#said").textContent === "Copied."`)
	if got, want := eval[string](x, "window.copied"), x.text("#cluster-2 .next code"); got != want {
		t.Errorf("copied %q, want %q", got, want)
	}
	x.sound()
}

// TestFleetCapacityPage: the same for the capacity of several clusters.
func TestFleetCapacityPage(t *testing.T) {
	items := []view.FleetItem[*view.CapacityReport]{{FleetCluster: view.FleetCluster{Context: "gone", Error: "not read within 5m0s (--cluster-timeout)"}}}
	for _, name := range []string{"story-before", "dual-stack", "healthy"} {
		st := state.New(readSnapshot(t, name), state.Options{})
		answer, err := capacity.Ask(t.Context(), st, capacity.Scenario{AddNodes: 2})
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, view.FleetItem[*view.CapacityReport]{FleetCluster: view.FleetCluster{Context: name}, Of: view.NewCapacityReport(st, answer)})
	}
	file := filepath.Join(t.TempDir(), "fleet.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := FleetCapacity(f, view.NewFleet(view.FleetCapacityKind, items), testOptions().Options); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	x := startBrowser(t).open(t, "file://"+file)
	for _, width := range []int64{1440, 390} {
		x.run(emulation.SetDeviceMetricsOverride(width, 900, 1, width < 1000))
		x.accessible(fmt.Sprintf("the page of several clusters' capacity at %d px", width))
		if wide := eval[bool](x, `document.documentElement.scrollWidth > innerWidth`); wide {
			t.Errorf("the page is wider than %d px", width)
		}
		if dir := os.Getenv("SHOTS"); dir != "" {
			var png []byte
			x.run(chromedp.FullScreenshot(&png, 100))
			_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("capacity-%d.png", width)), png, 0o600)
		}
	}
	if got := x.texts(".clusters tbody td.sev"); len(got) != 4 || got[0] != "NOT READ" || got[1] != "DOES NOT FIT" || got[3] != "FITS" {
		t.Errorf("the clusters are %q", got)
	}
	if inside := eval[int](x, `document.querySelectorAll("#cluster-2 .chart svg, #cluster-2 table").length`); inside != 4 {
		t.Errorf("a cluster's section holds %d charts and tables", inside)
	}
	x.sound()
}
