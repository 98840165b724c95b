package page

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// TestPageLive: a live page shows the present state of its server and keeps the reader's
// place: open elements, selections and the scroll position.
func TestPageLive(t *testing.T) {
	b := startBrowser(t)
	var shown atomic.Pointer[audit.Report]
	var down atomic.Bool
	story, drained := snapshotReport(t, "story"), snapshotReport(t, "story-drained")
	story.Cluster.TakenAt = audit.Time{Time: time.Now().Add(-20 * time.Minute)}
	drained.Cluster.TakenAt = audit.Time{Time: time.Now().Add(-3 * time.Minute)}
	shown.Store(story)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := Write(w, shown.Load(), Options{Options: view.Options{Now: time.Now()}, Live: true, Refresh: time.Second}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	x := b.open(t, server.URL+"/report")
	x.run(chromedp.EmulateViewport(1440, 500)) // low, so that there is enough to scroll
	if got := x.text(".age"); !strings.Contains(got, "20 minutes ago") {
		t.Errorf("the age is told as %q", got)
	}

	const group = "#check-warning-ipborrowed"
	x.run(chromedp.Click("input[name=mode][value=owner]", chromedp.ByQuery),
		chromedp.SendKeys("#nodes-filter", "old", chromedp.ByQuery))
	x.point(0, 2, true)
	x.until(`document.querySelector("#card tr:not(.freed)")`)
	// What the reader does while the page decodes an answer must stay, too.
	eval[int](x, `(window.decoding = 0, window.wait = true, ((text) => {
		Response.prototype.text = async function () {
			if (this.url === "") for (decoding++; wait;) await new Promise((r) => setTimeout(r, 10));
			return text.call(this);
		};
	})(Response.prototype.text), 1)`)
	x.until(`decoding > 0`)
	eval[int](x, `(document.querySelector("`+group+`").open = true, document.querySelector("#check-critical-poolno-free-blocks").open = false,
		document.querySelector("`+group+`").scrollIntoView(), 1)`)
	const top = `Math.round(document.querySelector("` + group + `").getBoundingClientRect().top)`
	before := eval[int](x, top)
	eval[int](x, `(wait = false, 1)`)

	shown.Store(drained)
	x.until(`document.querySelector(".age").textContent.includes("3 minutes ago")`)
	if got := x.text("#verdict-title"); got != verdictText(drained) {
		t.Errorf("the head says %q of the new state, want %q", got, verdictText(drained))
	}
	for what, expression := range map[string]string{
		"the mode":                  `document.querySelector("input[name=mode]:checked").value === "owner" && document.querySelector("#map").dataset.mode === "owner"`,
		"the group that was opened": `document.querySelector("` + group + `").open`,
		"the group that was closed": `!document.querySelector("#check-critical-poolno-free-blocks").open`,
		"the filter":                `document.querySelector("#nodes-filter").value === "old" && document.querySelectorAll("#nodes tbody th").length === 2`,
		"the card":                  `document.querySelector("#card-title").textContent === "10.64.75.128/26"`,
	} {
		if !eval[bool](x, expression) {
			t.Errorf("%s is lost", what)
		}
	}
	if after := eval[int](x, top); after < before-2 || after > before+2 {
		t.Errorf("what was read moved from %d to %d", before, after)
	}

	// A slow answer does not replace a later one. Each one that is shown is noted.
	shown.Store(story)
	eval[int](x, `(window.slow = true, window.late = 0, window.heads = [], ((get) => {
		window.fetch = async (...of) => {
			window.fetch = get;
			const answer = await get(...of);
			for (late = 1; slow;) await new Promise((r) => setTimeout(r, 10));
			return answer;
		};
	})(window.fetch), new MutationObserver(() => heads.push(document.querySelector("#verdict-title").textContent)).observe(document.querySelector("main"), { childList: true }), 1)`)
	x.until(`late > 0`)
	shown.Store(drained)
	eval[bool](x, `document.dispatchEvent(new Event("visibilitychange"))`)
	x.until(`heads.length > 0`)
	eval[int](x, `(heads = [], slow = false, 1)`)
	x.until(`heads.length > 0`)
	if got := eval[[]string](x, `heads`); slices.Contains(got, verdictText(story)) {
		t.Errorf("a slow answer replaced a later one: %q", got)
	}

	down.Store(true)
	x.until(`document.querySelector(".age").textContent.includes("does not answer") && document.querySelector(".age.old")`)
	if got := x.text("#verdict-title"); got != verdictText(drained) {
		t.Errorf("while the server is down the head says %q", got)
	}
	down.Store(false)
	x.until(`!document.querySelector(".age").textContent.includes("does not answer")`)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.requests {
		if !strings.HasPrefix(r, server.URL+"/") {
			t.Errorf("the page asked for %s", r)
		}
	}
	for _, f := range x.faults {
		if !strings.Contains(f, "503") {
			t.Errorf("in the page: %s", f)
		}
	}
}
