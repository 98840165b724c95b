package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestPageMore: the page renders some of many alike findings as text. Its script renders
// the others on demand, in the same way.
func TestPageMore(t *testing.T) {
	r := auditedWhole(crowd(300))
	var want []string
	var last *audit.Finding
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Check == "block/empty" {
			want, last = append(want, fmt.Sprint(view.Message(f), "|", f.Fix.Command, "|", len(f.Evidence), "|", f.Evidence[0].Value)), f
		}
	}
	if len(want) <= 2*shownFindings {
		t.Fatalf("only %d blocks are empty", len(want))
	}
	const group = "#check-info-blockempty"
	b := startBrowser(t)
	x := b.open(t, pageFile(t, r, Options{}))
	shown := func() []string {
		return eval[[]string](x, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => [e.querySelector(".message").textContent, e.querySelector(".next code")?.textContent ?? "",
			e.querySelectorAll(".evidence tr").length, e.querySelector(".evidence td").textContent].join("|"))`, group+" .finding"))
	}
	if diff := cmp.Diff(want[:shownFindings], shown()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	x.run(chromedp.Click(group+" > summary", chromedp.ByQuery), chromedp.Click(group+" [data-more]", chromedp.ByQuery))
	if diff := cmp.Diff(want[:min(len(want), shownFindings+100)], shown()); diff != "" {
		t.Errorf("after asking for more (-want +got):\n%s", diff)
	}

	// A link to a finding that is not rendered yet renders it.
	x = b.open(t, pageFile(t, r, Options{}))
	find := "#finding-" + last.Fingerprint
	if eval[bool](x, fmt.Sprintf(`document.querySelector(%q) !== null`, find)) {
		t.Fatal("the last finding is shown from the beginning")
	}
	i := slices.IndexFunc(r.Blocks, func(b audit.BlockReport) bool { return b.CIDR == last.Subject.CIDR })
	x.point(0, i, true)
	x.run(chromedp.Click(`#card a[href="`+find+`"]`, chromedp.ByQuery))
	x.until(fmt.Sprintf(`document.querySelector(%q) === document.activeElement && document.activeElement.checkVisibility()`, find))
	x.sound()
}

// TestPageOfUnusedPool: a pool without a claimed block, such as a new one, has an empty
// map, and the page works.
func TestPageOfUnusedPool(t *testing.T) {
	s, err := statedsl.Parse("pool pods 10.0.0.0/24\npool spare 10.1.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\nuse 10.0.0.1 shop/web n1\n")
	if err != nil {
		t.Fatal(err)
	}
	r := auditedWhole(s)
	unused := Draw(&blockmap.Pool{CIDR: "10.1.0.0/24", BlockSize: 26, Places: 4}, false, nil)
	if text, err := json.Marshal(newMapData("spare", &unused)); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("the script reads lists that are none: %s (%v)", text, err)
	}
	x := startBrowser(t).open(t, pageFile(t, r, testOptions()))
	if nodes := x.texts("#nodes tbody th"); !slices.Equal(nodes, []string{"n1"}) {
		t.Errorf("it lists the nodes %q", nodes)
	}
	x.sound()
}

// TestPageInstructions: an instruction is followed by its commands, each with a copy
// button.
func TestPageInstructions(t *testing.T) {
	s, err := statedsl.Parse("pool pods 10.0.0.0/24\nnode n1\nwpool 10.9.0.0-16 10.9.0.0/16\nwres 10.9.1.1\n")
	if err != nil {
		t.Fatal(err)
	}
	text := htmlOf(t, auditedWhole(s), Options{})
	const instruction, command = `<span>next</span> <code class="prose">check on every node`, `<span>run</span> <code>kubectl get overlappingrangeipreservations`
	_, after, shown := strings.Cut(text, instruction)
	_, after, found := strings.Cut(after, command)
	if _, button, _ := strings.Cut(after, "</code>"); !shown || !found || !strings.HasPrefix(button, `<button type="button" class="copy scripted" data-copy>Copy</button>`) {
		t.Error("the instruction, or its command to copy, is not shown")
	}
}

// TestPageSave: the saved report equals the report of the page.
func TestPageSave(t *testing.T) {
	r := snapshotReport(t, "dual-stack")
	x := startBrowser(t).open(t, pageFile(t, r, Options{}))
	eval[int](x, `(() => { const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.saved = blob; return make.call(URL, blob); }; return 1; })()`)
	x.run(chromedp.Click(`[data-save=report]`, chromedp.ByQuery))
	x.until(`window.saved`)
	var saved any
	if err := json.Unmarshal([]byte(eval[string](x, `window.saved.text()`)), &saved); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, saved); diff != "" {
		t.Errorf("what is saved differs (-want +got):\n%s", diff)
	}
	x.sound()
}
