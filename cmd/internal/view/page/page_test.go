package page

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// storyPlaces returns the places of each owner's blocks in the story's pool. The report is
// in CIDR order, and the pool is full.
func storyPlaces(r *audit.Report) map[string][]int {
	out := map[string][]int{}
	for i := range r.Blocks {
		n := r.Blocks[i].OwnerNode()
		out[n] = append(out[n], i)
	}
	return out
}

// TestPageNamesWhole: flags in the page's text do not break at a hyphen, even on a narrow
// page.
func TestPageNamesWhole(t *testing.T) {
	x := startBrowser(t).open(t, pageFile(t, snapshotReport(t, "story"), Options{}))
	x.run(emulation.SetDeviceMetricsOverride(390, 844, 2, true))
	eval[bool](x, `document.querySelectorAll("details").forEach(d => { d.open = true }), true`)
	if got := eval[[]string](x, `(() => {
		const out = [], walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
		for (let n = walker.nextNode(); n; n = walker.nextNode()) {
			if (n.parentElement.closest("code, svg, template, noscript")) continue;
			for (const m of n.data.matchAll(/--[a-z][a-z-]+/g)) {
				const r = document.createRange();
				r.setStart(n, m.index);
				r.setEnd(n, m.index + m[0].length);
				if (new Set([...r.getClientRects()].map(b => b.top)).size > 1) out.push(m[0] + " in " + n.parentElement.closest("p, dd, li, td").textContent.slice(0, 80));
			}
		}
		return out;
	})()`); len(got) > 0 {
		t.Errorf("broken over lines: %q", got)
	}
}

// TestPageCommandsFact: the page mentions omitted arguments only if it has commands.
func TestPageCommandsFact(t *testing.T) {
	o := Options{Options: view.Options{ReportArgs: "-f /tmp/dump", PortableArgs: "--context c"}}
	for name, want := range map[string]bool{"story": true, "healthy": false} {
		var b strings.Builder
		if err := Write(&b, snapshotReport(t, name), o); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "without local paths"); got != want {
			t.Errorf("%s: says %v that paths are left out of commands, want %v", name, got, want)
		}
	}
}

func TestPageMap(t *testing.T) {
	b := startBrowser(t)
	r := snapshotReport(t, "story")
	x := b.open(t, pageFile(t, r, Options{}))
	places := storyPlaces(r)

	// Pointing at a block highlights all blocks of its owner, and no other.
	for i := range r.Blocks {
		x.point(0, i, false)
		if diff := cmp.Diff(places[r.Blocks[i].OwnerNode()], x.lit(0, "lit")); diff != "" {
			t.Errorf("pointing at %s lights other blocks (-want +got):\n%s", r.Blocks[i].CIDR, diff)
		}
		if got := x.text("figure .status"); !strings.Contains(got, r.Blocks[i].CIDR) || !strings.Contains(got, r.Blocks[i].OwnerNode()) {
			t.Errorf("pointing at %s says %q", r.Blocks[i].CIDR, got)
		}
	}

	// Pointing at a node highlights its blocks and marks the addresses that it borrows. The mouse
	// itself leaves the page's map and tables.
	x.run(chromedp.MouseEvent("mouseMoved", 1, 1))
	for i := range r.Nodes {
		n := &r.Nodes[i]
		eval[bool](x, fmt.Sprintf(`document.querySelector('button[data-node=%q]').closest("tr").dispatchEvent(new PointerEvent("pointerenter")), true`, n.Name))
		want := places[n.Name]
		if want == nil {
			want = []int{}
		}
		if diff := cmp.Diff(want, x.lit(0, "lit")); diff != "" {
			t.Errorf("node %s lights other blocks than its own (-want +got):\n%s", n.Name, diff)
		}
		lenders := []int{}
		for j := range r.Blocks {
			if slices.Contains(r.Blocks[j].LentTo, n.Name) {
				lenders = append(lenders, j)
			}
		}
		if diff := cmp.Diff(lenders, x.lit(0, "owes")); diff != "" {
			t.Errorf("node %s borrows from other blocks than are marked (-want +got):\n%s", n.Name, diff)
		}
		x.until(`document.querySelector(".dots").getAttribute("d").split("M").length - 1 === ` + fmt.Sprint(n.Borrowed))
	}

	// Each mode shows its layer and legend.
	for mode, want := range map[string]string{"owner": "old-1", "findings": "error", "fill": "in use"} {
		x.run(chromedp.Click(`input[name=mode][value=`+mode+`]`, chromedp.ByQuery))
		got := eval[[]string](x, `[...document.querySelectorAll("figure .legend[data-for]")].filter((e) => e.checkVisibility()).map((e) => e.textContent)`)
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("in mode %s the legend is %q, want one that has %q", mode, got, want)
		}
		if got := eval[[]string](x, `[...document.querySelectorAll(".plot g[class^=by-]")].filter((e) => getComputedStyle(e).display !== "none").map((e) => e.getAttribute("class"))`); len(got) != 1 || got[0] != "by-"+mode {
			t.Errorf("in mode %s the layers %v are drawn", mode, got)
		}
	}
	x.sound()
}

func TestPageCard(t *testing.T) {
	b := startBrowser(t)
	for _, name := range []string{"story", "dual-stack"} {
		r := snapshotReport(t, name)
		x := b.open(t, pageFile(t, r, Options{}))
		m := blockmap.New(r, nil)
		for of := range m.Pools {
			for _, c := range m.Pools[of].Cells {
				if len(c.Blocks) == 0 {
					continue
				}
				i := c.Blocks[0]
				x.point(of, c.Place, true)
				x.until(fmt.Sprintf(`document.querySelector("#card-title")?.textContent === %q && document.querySelector("#card .addresses")`, r.Blocks[i].CIDR))
				want := map[string]string{}
				first := r.Blocks[i].Prefix().Addr()
				for _, use := range r.Usage.Block(i) {
					want[plus(first, use.Ordinal).String()] = use.Name + "|" + use.Node + "|" + use.Handle + "|" + fmt.Sprint(use.Marks&audit.MarkBorrowed != 0)
				}
				got := eval[map[string]string](x, `Object.fromEntries([...document.querySelectorAll("#card .addresses tbody tr:not(.freed)")].map((tr) => [tr.children[0].textContent,
					tr.querySelector("bdi").textContent.replace(/^[^/]*\//, "") + "|" + tr.children[2].textContent + "|" + (tr.querySelector(".handle")?.textContent ?? "") + "|" + Boolean(tr.querySelector(".mark.borrowed"))]))`)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: the card of %s says otherwise (-want +got):\n%s", name, r.Blocks[i].CIDR, diff)
				}
				if text := x.text("#card"); strings.Contains(text, "null") || strings.Contains(text, "undefined") {
					t.Errorf("%s: the card of %s shows what is not there: %s", name, r.Blocks[i].CIDR, text)
				}
				x.key(kb.Escape)
				x.until(`document.querySelector("#card").hidden`)
			}
		}
		x.sound()
	}
}

func plus(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

func TestPageNodes(t *testing.T) {
	b := startBrowser(t)
	x := b.open(t, pageFile(t, snapshotReport(t, "story"), Options{}))
	names := func() []string { return x.texts("#nodes tbody th") }
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, names()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("at first by name", "new-1", "new-2", "old-1", "old-2")
	x.run(chromedp.Click(`#nodes button[data-column=name]`, chromedp.ByQuery))
	check("by name, falling", "old-2", "old-1", "new-2", "new-1")
	x.run(chromedp.Click(`#nodes button[data-column=inUse]`, chromedp.ByQuery))
	check("by addresses in use, the most first", "old-1", "old-2", "new-1", "new-2")
	if got := eval[[]string](x, `[...document.querySelectorAll("#nodes th[aria-sort]")].map((e) => e.textContent + " " + e.ariaSort)`); len(got) != 1 || got[0] != "In use descending" {
		t.Errorf("the columns tell of their order: %v", got)
	}
	for filter, want := range map[string][]string{
		"old": {"old-1", "old-2"}, "is:borrowing": {"new-1", "new-2"}, "no:block new-2": {"new-2"}, "nothing like it": nil, "OLD-2": {"old-2"},
	} {
		eval[int](x, `(document.querySelector("#nodes-filter").select(), 1)`)
		x.run(chromedp.SendKeys("#nodes-filter", filter, chromedp.ByQuery))
		got := names()
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("filter %q (-want +got):\n%s", filter, diff)
		}
	}
	x.sound()
}

// TestPageUnreadNodes: if blocks could not be read, no node is shown without a block.
func TestPageUnreadNodes(t *testing.T) {
	b := startBrowser(t)
	for name, c := range map[string]struct {
		gap  blocks.Gap
		want string
	}{
		"no block":        {blocks.Gap{Resource: blocks.Blocks, Reason: "forbidden"}, "≥2 0 – – – –"},
		"one of the node": {blocks.Gap{Resource: blocks.Blocks, Name: "x", Reason: "cut"}, "≥2 0 ≥0 ≥0 ≥0 ≥0"},
	} {
		r := snapshotReport(t, "story")
		r.Gaps, r.Findings, r.Blocks = []blocks.Gap{c.gap}, []audit.Finding{}, r.Blocks[:0]
		for i := range r.Nodes {
			r.Nodes[i] = audit.NodeReport{Name: r.Nodes[i].Name, Blocks: []string{}, Borrowed: 2}
			if c.gap.Name != "" {
				r.Nodes[i].UnreadableBlocks = 1
			}
		}
		x := b.open(t, pageFile(t, r, Options{}))
		if got := eval[string](x, `[...document.querySelectorAll("#nodes tbody tr:first-child td")].slice(0, 6).map((e) => e.textContent).join(" ")`); got != c.want {
			t.Errorf("%s: the node's numbers are %q, want %q", name, got, c.want)
		}
		if n := eval[int](x, `document.querySelectorAll("#nodes td:nth-child(4).bad").length`); n > 0 {
			t.Errorf("%s: %d numbers are marked as bad", name, n)
		}
		x.run(chromedp.SendKeys("#nodes-filter", "no:block", chromedp.ByQuery))
		if got := x.texts("#nodes tbody th"); len(got) > 0 {
			t.Errorf("%s: nodes without a block: %v", name, got)
		}
		x.sound()
	}
}

func TestPageKeyboard(t *testing.T) {
	b := startBrowser(t)
	x := b.open(t, pageFile(t, snapshotReport(t, "story"), Options{}))
	reached := map[string]bool{}
	for range 250 {
		x.key(kb.Tab)
		at := eval[string](x, `(() => { const e = document.activeElement; return e === document.body ? "" : [e.tagName, e.id, e.className, e.name, e.dataset.column, e.dataset.node, e.dataset.save].filter(Boolean).join(" "); })()`)
		if at == "" {
			break
		}
		reached[at] = true
	}
	for _, want := range []string{
		"A skip", "A", "INPUT find", "INPUT mode", "DIV plot c132", "INPUT nodes-filter", "DIV scripted table", "BUTTON borrowed", "BUTTON new-1",
		"SUMMARY", "BUTTON copy scripted", "BUTTON show scripted", "BUTTON report",
	} {
		ok := reached[want]
		for have := range reached {
			ok = ok || strings.HasPrefix(have, want)
		}
		if !ok {
			t.Errorf("Tab never reaches %q; it reaches %v", want, sortedOf(reached))
		}
	}

	// The map: arrows move and announce, Enter opens, Escape closes and returns.
	x.run(chromedp.Focus(".plot", chromedp.ByQuery))
	x.key(kb.Home)
	x.key(kb.ArrowRight)
	x.key(kb.ArrowRight)
	if got := x.text("#said"); !strings.Contains(got, "10.64.75.128/26") || !strings.Contains(got, "4 used by new-1, new-2") {
		t.Errorf("the third block is spoken as %q", got)
	}
	x.key(kb.Enter)
	x.until(`document.querySelector("#card-title")?.textContent === "10.64.75.128/26" && document.activeElement.id === "card-title"`)
	x.key(kb.Escape)
	x.until(`document.querySelector("#card").hidden && document.activeElement.classList.contains("plot")`)

	// The search: a pod leads to its address.
	x.key("/")
	x.until(`document.activeElement.id === "find"`)
	x.run(chromedp.SendKeys("#find", "coredns", chromedp.ByQuery))
	x.until(`document.querySelector("#found li")?.textContent.includes("kube-system/coredns")`)
	x.key(kb.ArrowDown)
	x.key(kb.Enter)
	x.until(`document.querySelector("#card tr.here bdi")?.textContent.includes("kube-system/coredns")`)
	x.sound()
}

func sortedOf(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestPageAccessible(t *testing.T) {
	b := startBrowser(t)
	for _, c := range []struct {
		name    string
		report  *audit.Report
		options Options
	}{
		{"story", snapshotReport(t, "story"), Options{}},
		{"dual-stack", snapshotReport(t, "dual-stack"), Options{}},
		{"every state", everyState(t), Options{}},
		{"empty", loadReport(t, "empty"), Options{}},
		{"incomplete", loadReport(t, "incomplete"), Options{}},
		{"plan", nil, Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.report == nil {
				c.report, c.options.Plan = drainedPlan(t)
			}
			x := b.open(t, pageFile(t, c.report, c.options))
			x.accessible("light")
			x.dark(true)
			x.accessible("dark")
			eval[int](x, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }), 1)`)
			if eval[bool](x, `document.querySelector(".plot") !== null`) {
				x.run(chromedp.Focus(".plot", chromedp.ByQuery))
				x.key(kb.Enter)
				x.until(`!document.querySelector("#card").hidden`)
			}
			x.accessible("dark, with everything open")
			x.dark(false)
			x.run(chromedp.EmulateViewport(390, 800))
			x.accessible("narrow, with everything open")
			if wide := eval[int](x, `document.documentElement.scrollWidth`); wide > 390 {
				t.Errorf("at 390 pixels the page is %d wide", wide)
			}
			if broken := eval[string](x, `[...document.querySelectorAll(".whole")].filter((e) => e.getClientRects().length > 1).map((e) => e.textContent).join(" ")`); broken != "" {
				t.Errorf("at 390 pixels names are broken into lines: %s", broken)
			}
			if columns := eval[int](x, `new Set([...document.querySelectorAll("#verdict .facts dd")].map((e) => Math.round(e.getBoundingClientRect().left))).size`); columns != 1 {
				t.Errorf("at 390 pixels the facts begin at %d different places", columns)
			}
			x.run(emulation.SetEmulatedMedia().WithMedia("print"), chromedp.EmulateViewport(718, 1000)) // A4 without margins
			if wide := eval[int](x, `document.documentElement.scrollWidth`); wide > 718 {
				t.Errorf("on paper the page is %d pixels wide of 718", wide)
			}
			x.sound()
		})
	}
}

// drainedPlan returns the report of a shipped snapshot with empty blocks, and a plan to
// release them.
func drainedPlan(t testing.TB) (*audit.Report, *repair.Plan) {
	t.Helper()
	s := readSnapshot(t, "story-drained")
	st := state.New(s, state.Options{})
	return auditedWhole(s), planner.Build(st, repair.Request{EmptyBlocks: true})
}

func TestPagePlan(t *testing.T) {
	b := startBrowser(t)
	r, plan := drainedPlan(t)
	if len(plan.Steps) == 0 {
		t.Fatal("the plan has no steps")
	}
	x := b.open(t, pageFile(t, r, Options{Plan: plan}))
	if got := len(x.texts("#plan ol.steps > li")); got != len(plan.Steps) {
		t.Errorf("%d steps are listed of %d", got, len(plan.Steps))
	}
	free := `document.querySelectorAll("#plan .after .claimed").length && document.querySelector("#plan .after path.claimed").getAttribute("d").split("M").length - 1`
	if got := eval[int](x, free); got != len(r.Blocks)-len(plan.Steps) {
		t.Errorf("afterwards %d blocks are claimed, want %d", got, len(r.Blocks)-len(plan.Steps))
	}
	for _, want := range []string{"in use, in eighths", "claimed, no address in use"} {
		if got := x.texts("#plan .legend li"); !slices.Contains(got, want) {
			t.Errorf("what the map before and after means is explained by %q, without %q", got, want)
		}
	}
	x.run(chromedp.Click(`#plan input[value=after]`, chromedp.ByQuery))
	if eval[bool](x, `document.querySelector("#plan .before").checkVisibility()`) {
		t.Error("the map before is still shown beside the one after")
	}
	x.run(chromedp.Click(`input[name=mode][value=plan]`, chromedp.ByQuery))
	if got := eval[int](x, `document.querySelector(".plot path.p1").getAttribute("d").split("M").length - 1`); got != len(plan.Steps) {
		t.Errorf("%d blocks are marked as planned, want %d", got, len(plan.Steps))
	}
	x.sound()
}
