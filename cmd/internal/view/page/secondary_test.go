package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

const withWhereabouts = `
nad shop/storage 10.99.0.0/24 exclude=10.99.0.248/29
nad shop/six fd99::/64 network=six
nad shop/fast 10.98.0.0/16 network=fast sliced
nad shop/wide 10.96.0.0/22 network=wide
wslices fast n1@10.98.0.0/28
wpool 10.99.0.0-24 10.99.0.0/24
walloc 10.99.0.0-24 10.99.0.1 default/a id=c0 if=net1
walloc 10.99.0.0-24 10.99.0.2 default/gone id=c1 if=net1
walloc 10.99.0.0-24 10.99.0.40
wres 10.99.0.1 default/a if=net1
wpool six-fd99---64 fd99::/64
walloc six-fd99---64 fd99::7 default/a id=c0 if=net2
wpool fast-n1-10.98.0.0-28 10.98.0.0/28
wpool wide-10.96.0.0-22 10.96.0.0/22
walloc wide-10.96.0.0-22 10.96.1.200 default/a id=c0 if=net3
`

const withoutWhereabouts = `
controllers grace=15m
pool pods 10.0.0.0/24
node n1
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
pod default/a n1 10.0.0.1 nets=shop/storage@10.99.0.1,shop/six@fd99::7,shop/wide@10.96.1.200
`

func secondaryReport(t *testing.T, text string) *audit.Report {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(s, state.Options{})
	return audit.NewReport(st, audit.Run(st, checks.All))
}

// TestSecondaryPools: small Whereabouts pools are drawn address by address. The page of a
// cluster without Whereabouts does not mention it.
func TestSecondaryPools(t *testing.T) {
	text := htmlOf(t, secondaryReport(t, withoutWhereabouts+withWhereabouts), Options{})
	for _, want := range []string{
		`<a href="#whereabouts">Whereabouts</a>`, "<span>10.99.0.0/24, assigned by shop/storage</span>",
		"3 of 247 in use (1%), 244 available", "10.99.0.1: default/a", "10.99.0.2: default/gone, which no longer exists or no longer uses it", "10.99.0.40: no pod recorded",
		"fd99::/64, network six", "10.98.0.0/28, network fast, of node n1", "10.96.1.200: default/a", "practically unlimited",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	section := text[strings.Index(text, `id="whereabouts"`):strings.Index(text, `<section id="map"`)]
	if n := strings.Count(section, `<svg class="base"`); n != 3 {
		t.Errorf("%d ranges are drawn, not the three small ones", n)
	}
	again, _, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if second := htmlOf(t, again, Options{}); second != text {
		t.Error("the page of what was read back is another")
	}
	if none := htmlOf(t, secondaryReport(t, withoutWhereabouts), Options{}); strings.Contains(strings.ToLower(none), `"#whereabouts"`) || strings.Contains(none, "Whereabouts</h2>") {
		t.Error("the page of a cluster without Whereabouts has a section for it")
	}
}

// TestSecondaryPoolsInBrowser: the page never scrolls sideways, cells are aligned with the
// labels of their rows, and the browser reports no errors.
func TestSecondaryPoolsInBrowser(t *testing.T) {
	b := startBrowser(t)
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(htmlOf(t, secondaryReport(t, withoutWhereabouts+withWhereabouts), Options{})), 0o600); err != nil {
		t.Fatal(err)
	}
	x := b.open(t, "file://"+path)
	for _, width := range []int64{1440, 390} {
		for _, scheme := range []string{"light", "dark"} {
			x.run(chromedp.EmulateViewport(width, 900), media(scheme))
			if got := eval[int64](x, `document.documentElement.scrollWidth`); got > width {
				t.Errorf("at %d the page is %d wide", width, got)
			}
			if !eval[bool](x, `[...document.querySelectorAll(".pools .sheet")].every((s) => Math.abs(s.querySelector(".labels").getBoundingClientRect().height - s.querySelector("svg").getBoundingClientRect().height) < 2)`) {
				t.Errorf("at %d labels do not lie beside their rows", width)
			}
		}
	}
	if len(x.faults) > 0 || len(x.requests) > 0 {
		t.Errorf("faults %q, requests %q", x.faults, x.requests)
	}
}
