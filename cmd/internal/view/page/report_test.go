package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
)

func htmlOf(t testing.TB, r *audit.Report, o Options) string {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, r, o); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// TestHTMLIsTheReport: a page is its own archive. The report is read back with all digits,
// its addresses and its plan.
func TestHTMLIsTheReport(t *testing.T) {
	drained, plan := drainedPlan(t)
	for name, c := range map[string]struct {
		report  *audit.Report
		options Options
	}{
		"story": {snapshotReport(t, "story"), Options{}}, "huge": {loadReport(t, "huge"), Options{}}, "hostile": {loadReport(t, "hostile"), Options{}},
		"plan": {drained, Options{Plan: plan}}, "live": {drained, Options{Live: true}},
	} {
		text := htmlOf(t, c.report, c.options)
		r, p, err := Read([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for what, pair := range map[string][2]any{"report": {c.report, r}, "usage": {c.report.Usage, r.Usage}, "plan": {c.options.Plan, p}} {
			want, _ := json.Marshal(pair[0])
			got, _ := json.Marshal(pair[1])
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s: the %s comes back otherwise (-want +got):\n%s", name, what, diff)
			}
		}
		if second := htmlOf(t, r, c.options); second != text {
			t.Errorf("%s: the page of what was read back is another", name)
		}
	}
}

// TestReadWithoutUses: a page without Usage, or with that of another version, is read
// without it.
func TestReadWithoutUses(t *testing.T) {
	text := htmlOf(t, snapshotReport(t, "story"), Options{})
	r, _, err := Read([]byte(strings.ReplaceAll(text, dataUsage, "data-usage")))
	if err != nil || len(r.Blocks) == 0 || r.Usage != nil {
		t.Errorf("read %d blocks, uses %v: %v", len(r.Blocks), r.Usage != nil, err)
	}
}

func TestReadHTMLRefuses(t *testing.T) {
	text := htmlOf(t, loadReport(t, "story"), Options{})
	cut := strings.Index(text, dataElement(dataReport)) + 200
	for name, page := range map[string]string{
		"another page": "<!DOCTYPE html><html><body>hello</body></html>", "cut off": text[:cut],
		"damaged": strings.Replace(text, dataElement(dataReport)+"H4sI", dataElement(dataReport)+"AAAA", 1),
	} {
		if r, _, err := Read([]byte(page)); err == nil {
			t.Errorf("%s: no error, and the report %v", name, r)
		}
	}
}

// TestHTMLAsksForNothing: the page uses no other file or server, and its policy allows only
// its own script, by hash. A live page may contact its own server.
func TestHTMLAsksForNothing(t *testing.T) {
	for _, live := range []bool{false, true} {
		text := htmlOf(t, loadReport(t, "story"), Options{Live: live})
		for _, bad := range []*regexp.Regexp{
			regexp.MustCompile(`<(link|iframe|object|embed|base|img|audio|video|source)\b`), regexp.MustCompile(`\ssrc\s*=`), regexp.MustCompile(`\son[a-z]+\s*=`),
			regexp.MustCompile(`\sstyle\s*=`), regexp.MustCompile(`url\(`), regexp.MustCompile(`@import`),
		} {
			if got := bad.FindString(text); got != "" {
				t.Errorf("live %t: the page has %q", live, got)
			}
		}
		want := fmt.Sprintf("default-src &#39;none&#39;; style-src %s; script-src %s; img-src data:; base-uri &#39;none&#39;; form-action &#39;none&#39;",
			quoted(hashSource(pageStyle)), quoted(hashSource(pageScript)))
		if live {
			want += "; connect-src &#39;self&#39;"
		}
		if want := `content="` + want + `"`; !strings.Contains(text, want) {
			t.Errorf("live %t: the page lacks the policy %s", live, want)
		}
		if n := strings.Count(text, "<style>"); n != 1 || !strings.Contains(text, "<style>"+pageStyle+"</style>") {
			t.Errorf("live %t: the style is not the one that the policy knows", live)
		}
		if !strings.Contains(text, "<script>"+pageScript+"</script>") {
			t.Errorf("live %t: the script is not the one that the policy knows", live)
		}
	}
}

func quoted(s string) string { return strings.NewReplacer("'", "&#39;", "+", "&#43;").Replace(s) }

// prose removes the markup that prevents line breaks.
func prose(page string) string {
	return regexp.MustCompile(`<bdi class="whole">([^<]*)</bdi>`).ReplaceAllString(page, "$1")
}

// TestHTMLSections: the page has all sections of the report, in order.
func TestHTMLSections(t *testing.T) {
	r := loadReport(t, "incomplete")
	text := prose(htmlOf(t, r, Options{}))
	at := 0
	for _, id := range []string{"verdict", "pools", "map", "nodes", "findings", "unseen", "raw"} {
		i := strings.Index(text, `<section id="`+id+`"`)
		if i < at {
			t.Errorf("the section %s is missing, or out of order", id)
		}
		at = i
	}
	for i := range r.Gaps {
		if want := quotedText(view.Clean(r.Gaps[i].String())); !strings.Contains(text, want) {
			t.Errorf("the gap %s is not told", want)
		}
	}
	r.Gaps[0].Read = "kubectl get --raw /x >x.json"
	if got := prose(htmlOf(t, r, Options{})); !strings.Contains(got, "<code>kubectl get --raw /x &gt;x.json</code>") {
		t.Error("the command that reads what is missing is not shown")
	}
	for _, s := range r.SkippedChecks {
		if !strings.Contains(text, s.Check) || !strings.Contains(text, quotedText(view.Clean(s.Reason))) {
			t.Errorf("it is not told that %s was skipped because %s", s.Check, s.Reason)
		}
	}
	if !strings.Contains(text, "<strong>no</strong>: <a href=\"#unseen\">") {
		t.Error("the head does not say that the report is incomplete")
	}
	story := loadReport(t, "story")
	text = prose(htmlOf(t, story, testOptions()))
	for i := range story.Findings {
		f := &story.Findings[i]
		for _, want := range []string{view.Message(f), f.Check, "Why " + f.Check + " matters"} {
			if !strings.Contains(text, quotedText(want)) {
				t.Errorf("the finding %s lacks %q", f.Fingerprint, want)
			}
		}
		for _, e := range f.Evidence {
			if !strings.Contains(text, quotedText(view.Clean(e.Value))) {
				t.Errorf("the finding %s lacks its evidence %q", f.Fingerprint, e.Value)
			}
		}
	}
	if commands, _, _ := strings.Cut(text, "<script"); strings.Count(commands, "-f dump/") != 1 || !strings.Contains(commands, "report source: -f dump/") {
		t.Error("commands have paths of the machine that the page was made on, or it does not say which they were")
	}
	if !strings.Contains(text, "<strong>By hand: ") {
		t.Error("what takes people is not marked as such")
	}
	o := testOptions()
	o.ReportArgs, o.PortableArgs = "--kubeconfig /home/me/config --context prod", "--context prod"
	commands, _, _ := strings.Cut(prose(htmlOf(t, story, o)), "<script")
	if !strings.Contains(commands, "calico-audit repair --context prod --") || strings.Count(commands, "/home/me/config") != 1 {
		t.Error("commands read another context than the page does, or by the paths of another machine")
	}
	o.ReportArgs = o.PortableArgs
	if strings.Contains(htmlOf(t, story, o), "this page was made with") {
		t.Error("commands that hold everywhere are said to be others than those that the page was made with")
	}
}

func quotedText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "+", "&#43;").Replace(s)
}

// TestHTMLIncomplete: the counts of findings come with a warning if the report is
// incomplete.
func TestHTMLIncomplete(t *testing.T) {
	r := loadReport(t, "story")
	r.Complete, r.Gaps = false, []blocks.Gap{{Resource: blocks.Pods, Reason: "forbidden"}}
	head, _, _ := strings.Cut(htmlOf(t, r, testOptions()), `<dl class="facts">`)
	if want := "pods: forbidden, so there may be more findings."; !strings.Contains(head, want) {
		t.Errorf("the head of an incomplete report lacks %q", want)
	}
}

// TestHTMLUnknownNumbers: unknown free blocks and addresses of a pool are not drawn, but
// shown as unknown.
func TestHTMLUnknownNumbers(t *testing.T) {
	r := loadReport(t, "story")
	r.Complete, r.Gaps = false, []blocks.Gap{{Resource: blocks.Blocks, Reason: "forbidden"}}
	page := htmlOf(t, r, testOptions())
	for text, want := range map[string]bool{"number in use unknown": true, "number claimed unknown": true, "Tightest pool": false, "available in claimed blocks</title>": false} {
		if got := strings.Contains(page, text); got != want {
			t.Errorf("the page of a report without blocks has %q: %t, want %t", text, got, want)
		}
	}
}

// TestMapDrawing: a drawing contains each cell of a pool exactly once.
func TestMapDrawing(t *testing.T) {
	for name, r := range pictures(t) {
		m := blockmap.New(r, nil)
		for i := range m.Pools {
			pool := &m.Pools[i]
			d := Draw(pool, false, nil)
			want := map[string]int{}
			for _, c := range pool.Cells {
				if c.State == blockmap.Reserved || c.State == blockmap.Free {
					continue
				}
				switch {
				case c.Fill == 0:
					want["by-fill empty"]++
				case d.painted.whole: // shades
					want[fmt.Sprintf("by-fill f%d", c.Fill)]++
				case c.Fill < 8: // heights of one shade
					want["by-fill claimed"]++
					want["by-fill f6"]++
				default:
					want["by-fill claimed"]++
					want["by-fill f8"]++
				}
				want["by-findings "+severityClass(c.Severity)]++
			}
			got := map[string]int{}
			for _, g := range d.Groups {
				for _, p := range g.Paths {
					if g.Class == layerFill || g.Class == layerFindings {
						got[g.Class+" "+p.Class] += strings.Count(p.D, "z")
					}
				}
			}
			for k := range got { // findings without a block
				if strings.HasPrefix(k, layerFindings) && want[k] < got[k] {
					want[k] += orphanCells(pool, k)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s: the drawing has other cells (-want +got):\n%s", name, pool.Name, diff)
			}
			if d.Columns&(d.Columns-1) != 0 || d.Columns*d.Rows < pool.Places {
				t.Errorf("%s, %s: %d columns and %d rows hold %d places", name, pool.Name, d.Columns, d.Rows, pool.Places)
			}
		}
	}
}

func orphanCells(m *blockmap.Pool, class string) (n int) {
	for _, c := range m.Cells {
		if (c.State == blockmap.Reserved || c.State == blockmap.Free) && c.Severity > 0 && class == "by-findings "+severityClass(c.Severity) {
			n++
		}
	}
	return n
}
