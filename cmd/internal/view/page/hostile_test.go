package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// hostileNames are malicious names. The API server would reject some of them, but a file
// may contain them.
var hostileNames = map[string]string{
	"hostile-one":   `<script>window.pwned=1</script>`,
	"hostile-two":   `"'><img src=x onerror=window.pwned=2>`,
	"hostile-three": strings.Repeat("long-", 50) + "end",
	"hostile-four":  "\u0645\u0631\u062d\u0628\u0627\u202ecod.evil",
	"hostile-five":  "</script><svg onload=window.pwned=5>\u0000{{.}}${1}",
	"hostile-pod":   "</textarea><b>`javascript:window.pwned=6`",
}

// hostileReport contains the hostile names in every field.
func hostileReport(t testing.TB) *audit.Report {
	t.Helper()
	s, err := statedsl.Parse(`
pool hostile-five 10.0.0.0/24
node hostile-one
node hostile-two
node hostile-three
node hostile-four
block 10.0.0.0/26 hostile-one age=2h
block 10.0.0.64/26 hostile-two age=2h
block 10.0.0.128/26 hostile-three age=2h
block 10.0.0.192/26 hostile-gone age=2h
affinity 10.0.0.0/26 hostile-one age=2h
affinity 10.0.0.64/26 hostile-two age=2h
affinity 10.0.0.128/26 hostile-three age=2h
use 10.0.0.1 hostile-ns/hostile-pod hostile-one
use 10.0.0.65 hostile-ns/hostile-pod-2 hostile-four
use 10.0.0.129 hostile-ns/hostile-pod-3 hostile-three
alloc 10.0.0.193 pod=hostile-ns/hostile-pod-4 node=hostile-two handle=hostile-one
`)
	if err != nil {
		t.Fatal(err)
	}
	r := auditedWhole(s)
	renamed := func(v, into any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for from, to := range hostileNames {
			escaped, _ := json.Marshal(to)
			text = strings.ReplaceAll(text, from, strings.Trim(string(escaped), `"`))
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	out := new(audit.Report)
	renamed(r, out)
	renamed(r.Usage, &out.Usage)
	return out
}

// TestPageHostile: names in the page stay text. They cannot run code, create elements or
// reorder the text around them.
func TestPageHostile(t *testing.T) {
	r := hostileReport(t)
	if len(r.Findings) < 3 {
		t.Fatalf("only %d findings: the names stand in too few places", len(r.Findings))
	}
	x := startBrowser(t).open(t, pageFile(t, r, Options{Options: view.Options{Source: hostileNames["hostile-two"]}}))
	check := func(what string) {
		t.Helper()
		if eval[bool](x, `"pwned" in window`) {
			t.Fatalf("%s: a name was run", what)
		}
		if n := eval[int](x, `document.querySelectorAll("img, b, svg[onload], script:not([type]):not(:last-of-type)").length`); n > 0 {
			t.Errorf("%s: names made %d elements", what, n)
		}
		if eval[bool](x, `/[\u202a-\u202e\u2066-\u2069\u0000]/.test(document.body.innerText)`) {
			t.Errorf("%s: a character that turns the order of others is in the page as it is", what)
		}
	}
	check("at first")
	eval[int](x, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }), 1)`)
	for i := range r.Blocks {
		x.point(0, i, true)
		x.until(`document.querySelector("#card .addresses")`)
		check("the card of " + r.Blocks[i].CIDR)
	}
	all := x.text("#nodes") + x.text("#findings") + x.text("#card")
	for _, name := range hostileNames {
		if want := view.Clean(name); name != hostileNames["hostile-five"] && name != hostileNames["hostile-pod"] && !strings.Contains(all, want) {
			t.Errorf("%q is not in the page as text", want)
		}
	}
	x.run(chromedp.SendKeys("#find", "textarea", chromedp.ByQuery))
	x.until(fmt.Sprintf(`document.querySelector("#found").textContent.includes(%q)`, view.Clean(hostileNames["hostile-pod"])))
	check("found")
	x.accessible("hostile names")
	x.run(chromedp.EmulateViewport(390, 800))
	eval[int](x, `(document.querySelector("#card .close")?.click(), 1)`)
	if wide := eval[int](x, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("a long name makes the page %d pixels wide in a window of 390", wide)
	}
	x.sound()
}
