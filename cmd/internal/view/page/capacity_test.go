package page

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// TestCapacityPage: the page of a capacity report is readable on a phone, in light and
// dark, and its charts show where nodes get no block.
func TestCapacityPage(t *testing.T) {
	st := state.New(readSnapshot(t, "dual-stack"), state.Options{})
	answer, err := capacity.Ask(t.Context(), st, capacity.Scenario{AddNodes: 20})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "capacity.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Capacity(f, view.NewCapacityReport(st, answer), testOptions().Options); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	x := startBrowser(t).open(t, "file://"+file)
	x.accessible("the page of a capacity report")
	x.run(emulation.SetDeviceMetricsOverride(390, 844, 2, true))
	for _, dark := range []bool{false, true} {
		x.dark(dark)
		if wide := eval[bool](x, `document.documentElement.scrollWidth > innerWidth`); wide {
			t.Error("the page is wider than a telephone")
		}
		if px := eval[float64](x, `Math.min(...[...document.querySelectorAll(".chart svg")].map(s => 11 * s.getBoundingClientRect().width / s.viewBox.baseVal.width))`); px < 9 {
			t.Errorf("the text of a chart is %.1f pixels high", px)
		}
		if dir := os.Getenv("SHOTS"); dir != "" {
			var png []byte
			x.run(chromedp.FullScreenshot(&png, 100))
			_ = os.WriteFile(filepath.Join(dir, map[bool]string{true: "dark.png", false: "light.png"}[dark]), png, 0o600)
		}
	}
	x.accessible("the same on a telephone")
	if got := x.texts("figcaption p"); len(got) != 2 || got[0] != "13 nodes can join; node 14 gets no block." {
		t.Errorf("the charts say %q", got)
	}
	x.sound()
}
