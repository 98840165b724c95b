package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	testneeds "github.com/calico-audit/calico-audit/internal/testenv"
)

// browser is a headless browser.
type browser struct{ ctx context.Context }

// chromium is the browser of all tests: one process, whose tabs only share the cache.
var chromium struct {
	sync.Once
	browser
	end func()
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.end != nil {
		chromium.end()
	}
	os.Exit(code)
}

// startBrowser returns the browser, or skips the test if there is none.
func startBrowser(t testing.TB) browser {
	t.Helper()
	path := testneeds.Program(t, "chromium", "chromium")
	chromium.Do(func() {
		var dir string
		if dir, chromium.err = os.MkdirTemp("", "calico-audit-page-"); chromium.err != nil {
			return
		}
		o := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(dir))
		alloc, endProcess := chromedp.NewExecAllocator(context.Background(), o...)
		ctx, endTab := chromedp.NewContext(alloc)
		chromium.browser, chromium.end = browser{ctx}, func() {
			_ = chromedp.Cancel(ctx)
			endTab()
			endProcess()
			_ = os.RemoveAll(dir)
		}
		chromium.err = chromedp.Run(ctx)
	})
	if chromium.err != nil {
		t.Fatalf("starting %s: %v", path, chromium.err)
	}
	return chromium.browser
}

// tab is an open page. It records errors.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu sync.Mutex
	// faults are console errors and warnings, including violations of the page's policy,
	// uncaught errors, and pop-ups.
	faults []string
	// requests are the requested URLs other than the page itself.
	requests []string
}

// open opens a page in a new tab, and waits until it is ready.
func (b browser) open(t testing.TB, url string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(b.ctx)
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(func() { stop(); end() })
	x := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		x.mu.Lock()
		defer x.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			if e.Type != runtime.APITypeLog && e.Type != runtime.APITypeDebug {
				x.faults = append(x.faults, fmt.Sprintf("console %s: %s", e.Type, e.Args[0].Value))
			}
		case *runtime.EventExceptionThrown:
			x.faults = append(x.faults, "not caught: "+e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			x.faults = append(x.faults, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		case *cdppage.EventJavascriptDialogOpening:
			x.faults = append(x.faults, "a dialogue opened: "+e.Message)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != url {
				x.requests = append(x.requests, e.Request.URL)
			}
		}
	})
	x.run(network.Enable(), log.Enable(), chromedp.EmulateViewport(1440, 900), media("light"), chromedp.Navigate(url), chromedp.WaitReady("html[data-ready]", chromedp.ByQuery))
	return x
}

func (x *tab) run(actions ...chromedp.Action) {
	x.t.Helper()
	if err := chromedp.Run(x.ctx, actions...); err != nil {
		x.t.Fatal(err)
	}
}

// eval evaluates an expression in the page.
func eval[T any](x *tab, expression string) (out T) {
	x.t.Helper()
	wait := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	if err := chromedp.Run(x.ctx, chromedp.Evaluate(expression, &out, wait)); err != nil {
		x.t.Fatalf("%s: %v", expression, err)
	}
	return out
}

// until waits until an expression is true.
func (x *tab) until(expression string) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if eval[bool](x, "Boolean("+expression+")") {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("never came true: %s", expression)
		}
	}
}

func (x *tab) text(selector string) string {
	x.t.Helper()
	return eval[string](x, fmt.Sprintf("document.querySelector(%q)?.textContent ?? 'there is no '+%q", selector, selector))
}

func (x *tab) texts(selector string) []string {
	x.t.Helper()
	return eval[[]string](x, fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.textContent.trim())", selector))
}

// key presses a key: a character, or a key of package kb.
func (x *tab) key(keys string) {
	x.t.Helper()
	x.run(chromedp.KeyEvent(keys))
}

// point moves the pointer to a place of a map, and optionally clicks there.
func (x *tab) point(of, place int, click bool) {
	x.t.Helper()
	at := eval[[]float64](x, fmt.Sprintf(`(() => {
		const plot = document.querySelector('figure[data-map="%d"] .plot'), base = plot.querySelector(".base");
		plot.scrollIntoView();
		const box = base.getBoundingClientRect(), cell = Number(plot.className.match(/c(\d+)/)[1]);
		const scale = box.width / base.viewBox.baseVal.width, columns = base.viewBox.baseVal.width / cell;
		return [box.left + ((%d %% columns) + .5) * cell * scale, box.top + (Math.floor(%d / columns) + .5) * cell * scale];
	})()`, of, place, place))
	x.run(chromedp.MouseEvent("mouseMoved", at[0], at[1]))
	if click {
		x.run(chromedp.MouseClickXY(at[0], at[1]))
	}
}

// lit returns the places of a map that a path covers.
func (x *tab) lit(of int, class string) []int {
	x.t.Helper()
	return eval[[]int](x, fmt.Sprintf(`(() => {
		const plot = document.querySelector('figure[data-map="%d"] .plot'), base = plot.querySelector(".base");
		const cell = Number(plot.className.match(/c(\d+)/)[1]), columns = base.viewBox.baseVal.width / cell;
		const corners = [...plot.querySelector(".%s").getAttribute("d").matchAll(/M([\d.]+) ([\d.]+)/g)];
		return corners.map((m) => Math.floor(m[2] / cell) * columns + Math.floor(m[1] / cell)).sort((a, b) => a - b);
	})()`, of, class))
}

// sound fails the test if the page had an error or made a request.
func (x *tab) sound() {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.faults {
		x.t.Errorf("in the page: %s", f)
	}
	for _, r := range x.requests {
		if !strings.HasPrefix(r, "data:") && !strings.HasPrefix(r, "blob:") {
			x.t.Errorf("the page asked for %s", r)
		}
	}
}

// dark sets the preference for dark colours.
func (x *tab) dark(on bool) {
	x.t.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	x.run(media(scheme))
}

// media sets the reader's preferences. Motion is always reduced, so that scrolling has no
// animation.
func media(scheme string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	})
}

// accessible fails the test if axe-core finds a violation.
func (x *tab) accessible(what string) {
	x.t.Helper()
	script, err := os.ReadFile(filepath.Join(testneeds.NodeModules(x.t, "testdata/axe"), "axe-core", "axe.min.js"))
	if err != nil {
		x.t.Fatal(err)
	}
	eval[bool](x, string(script)+";true")
	found := eval[string](x, `axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify({ passes: r.passes.length, violations: r.violations.map((v) => ({ id: v.id, help: v.help, at: v.nodes.slice(0, 4).map((n) => n.html.slice(0, 200) + " " + n.failureSummary) })) }))`)
	var result struct {
		Passes     int
		Violations []struct {
			ID, Help string
			At       []string
		}
	}
	if err := json.Unmarshal([]byte(found), &result); err != nil {
		x.t.Fatal(err)
	}
	if result.Passes < 10 {
		x.t.Errorf("%s: only %d rules of axe-core passed: did it look at anything?", what, result.Passes)
	}
	for _, v := range result.Violations {
		x.t.Errorf("%s: axe-core: %s: %s\n%s", what, v.ID, v.Help, strings.Join(v.At, "\n"))
	}
}

// pageFile writes a report as a page, and returns its URL.
func pageFile(t testing.TB, r *audit.Report, o Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(file, r, o); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// snapshotReport audits a shipped snapshot, including Usage.
func snapshotReport(t testing.TB, name string) *audit.Report {
	t.Helper()
	return auditedWhole(readSnapshot(t, name))
}

func readSnapshot(t testing.TB, name string) *blocks.Snapshot {
	t.Helper()
	s, err := files.ReadFiles([]string{"../../../../examples/snapshots/" + name}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func auditedWhole(s *blocks.Snapshot) *audit.Report {
	st := state.New(s, state.Options{})
	result := audit.Run(st, checks.All)
	r := audit.NewReport(st, result)
	r.Usage = audit.NewUsage(st, result)
	return r
}
