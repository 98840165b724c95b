package view

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

func TestShort(t *testing.T) {
	for want, c := range map[string]blocks.Count{
		"0":        {},
		"65536":    blocks.PowerOfTwo(16),
		"16777216": blocks.PowerOfTwo(24),
		"2^80":     blocks.PowerOfTwo(80),
		"1.2e24":   blocks.PowerOfTwo(80).Sub(blocks.CountOf(3)),
		"4.3e9":    blocks.PowerOfTwo(32).Sub(blocks.CountOf(1)),
	} {
		if got := Short(c); got != want {
			t.Errorf("Short(%s) = %s, want %s", c, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	huge := blocks.PowerOfTwo(80)
	for _, c := range []struct {
		part, whole blocks.Count
		want        string
	}{
		{blocks.CountOf(0), blocks.CountOf(0), "-"},
		{blocks.CountOf(0), blocks.CountOf(9), "0%"},
		{blocks.CountOf(1), blocks.CountOf(1000), "<1%"},
		{blocks.CountOf(1), blocks.CountOf(2), "50%"},
		{blocks.CountOf(992), blocks.CountOf(1000), "99%"},
		{blocks.CountOf(999), blocks.CountOf(1000), ">99%"},
		{blocks.CountOf(1000), blocks.CountOf(1000), "100%"},
		{huge.Sub(blocks.CountOf(1)), huge, ">99%"},
		{blocks.CountOf(1), huge, "<1%"},
	} {
		if got := percent(c.part, c.whole); got != c.want {
			t.Errorf("percent(%s, %s) = %s, want %s", c.part, c.whole, got, c.want)
		}
	}
}

func TestFirstSentence(t *testing.T) {
	for text, want := range map[string]string{
		"One. Two.": "One.",
		"Only one":  "Only one",
		"In v3.31 it holds, e.g. for nodes. Then.": "In v3.31 it holds, e.g. for nodes.",
		"Broken\n  over lines. 3 pools.":           "Broken over lines.",
		"":                                         "",
	} {
		if got := firstSentence(text); got != want {
			t.Errorf("firstSentence(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestDisplayWidth(t *testing.T) {
	for text, want := range map[string]int{"abc": 3, "日本": 4, "e\u0301": 1, "ｗ": 2, "": 0, "…": 1} {
		if got := displayWidth(text); got != want {
			t.Errorf("displayWidth(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestWrapWords(t *testing.T) {
	got := wrapWords("aa bb  cc ddddddddd e 日本 日本", 5)
	if diff := cmp.Diff([]string{"aa bb", "cc", "ddddddddd", "e", "日本", "日本"}, got); diff != "" {
		t.Errorf("lines differ (-want +got):\n%s", diff)
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		3 * time.Minute: "3 minutes", 90 * time.Minute: "90 minutes", 47 * time.Hour: "47 hours", 49 * time.Hour: "2 days",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %s, want %s", d, got, want)
		}
	}
}

// TestTakenIsNotAgedWhenFresh: no age is shown for recent data, or if the clock runs ahead.
func TestTakenIsNotAgedWhenFresh(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{at.Add(time.Minute), at.Add(-time.Hour), {}} {
		if got := newPrinter(Options{Now: now}, false).taken(at); got != "2026-01-31T08:00:00Z" {
			t.Errorf("at %s: %q", now, got)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"plain", "日本語", "\x1b[31m", "a\nb", "\x80\xff", "\u202e", "\ufffd", "\u009b", "e\u0301", "\u200b", "\U000e0041"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if !isClean(got) || !utf8.ValidString(got) {
			t.Errorf("Clean(%q) = %q, which is not clean", s, got)
		}
		if isClean(s) && got != s {
			t.Errorf("Clean(%q) = %q changed what was clean", s, got)
		}
		if Clean(got) != got {
			t.Errorf("Clean(%q) is not stable", s)
		}
	})
}

// TestTableCountsLikeGaps: many bad objects take a few lines in the table, and the checks
// without a verdict one. The wide table lists all.
func TestTableCountsLikeGaps(t *testing.T) {
	r := loadReport(t, "healthy")
	r.Gaps, r.SkippedChecks = nil, nil
	for i := range 20 {
		r.Gaps = append(r.Gaps, blocks.Gap{Resource: blocks.Pods, Name: fmt.Sprintf("pod-%d", i), Field: "spec", Reason: "is no object"})
		r.SkippedChecks = append(r.SkippedChecks, audit.Skipped{Check: "ip/unallocated", Reason: fmt.Sprintf("not evaluated for 10.0.0.%d", i)})
	}
	for i := range 10 {
		r.Gaps = append(r.Gaps, blocks.Gap{Resource: blocks.Pods, Name: fmt.Sprintf("odd-%d", i), Reason: "names no address", Tolerated: true})
	}
	r.Gaps = append(r.Gaps, blocks.Gap{Resource: blocks.VMs, Reason: "forbidden"})
	r.SkippedChecks = append(r.SkippedChecks, audit.Skipped{Check: "node/no-block", Reason: "not evaluated for node n1"})
	table, wide := render(t, "table", r, testOptions(80)), render(t, "wide", r, testOptions(80))
	for text, want := range map[string][2]int{
		"is no object":                                     {gapsShown, 20},
		"not evaluated for 10.0.0.":                        {0, 20},
		"names no address":                                 {gapsShown, 10},
		"… and 4 more of pods (-o":                         {1, 0},
		"forbidden":                                        {1, 1},
		"not evaluated for node n1":                        {0, 1},
		"… and 14 more of pods (-o":                        {1, 0},
		"ip/unallocated, node/no-block (-o wide says why)": {1, 0},
	} {
		if got := [2]int{strings.Count(table, text), strings.Count(wide, text)}; got != want {
			t.Errorf("%q is %d times in the table and in the wide one, want %d:\n%s", text, got, want, table)
		}
	}
}

// TestForbiddenKinds: the kinds that an account may not list are one line, blocks first, with the
// role that grants them. Nothing suggests then that the cluster does not use Calico.
func TestForbiddenKinds(t *testing.T) {
	r := loadReport(t, "healthy")
	r.Gaps, r.Findings, r.Diagnoses, r.Summary, r.Complete = nil, nil, nil, audit.Summary{}, false
	for _, k := range []blocks.Resource{blocks.Affinities, blocks.Blocks, blocks.Pools} {
		r.Gaps = append(r.Gaps, blocks.Gap{Resource: k, Reason: "forbidden: needs the right to list " + string(k) + ".crd.projectcalico.org"})
	}
	r.Gaps = append(r.Gaps, blocks.Gap{Resource: blocks.Nodes, Reason: "timeout"})
	table, wide := strings.Join(strings.Fields(render(t, "table", r, testOptions(80))), " "), render(t, "wide", r, testOptions(80))
	const line = "ipamblocks: forbidden: needs the right to list ipamblocks, blockaffinities, ippools (the ClusterRole in examples/kubernetes/rbac grants it) nodes: timeout"
	if !strings.Contains(table, line) || strings.Count(table, "forbidden") != 1 || strings.Count(wide, "forbidden") != 1 {
		t.Errorf("want %q, got\n%s\n%s", line, table, wide)
	}
	if strings.Contains(table, "Does this cluster use") || len(r.Gaps) != 4 {
		t.Errorf("%d gaps, and\n%s", len(r.Gaps), table)
	}
}

// TestStoryFitsTheFirstScreen: on a terminal of 100 columns and 40 lines, the story's remedies fit
// into 24 lines, so that the pools and the map follow on the same screen.
func TestStoryFitsTheFirstScreen(t *testing.T) {
	r := mapReport(t, "story")
	before, after, found := strings.Cut(render(t, "table", r, testOptions(100)), "\nPOOL ")
	if n := strings.Count(before, "\n") + 1; !found || n > 24 {
		t.Errorf("%d lines before the pools:\n%s", n, before)
	}
	if len(r.Diagnoses) != 1 || len(r.Diagnoses[0].Remedies) < 3 || !strings.Contains(after, "MAP of pods-v4") {
		t.Errorf("the story has %d diagnoses, and after the pools follows\n%s", len(r.Diagnoses), after)
	}
}

// TestScaleOfReport: a report's length depends on the causes, not on the nodes. A terminal of 100
// columns and 40 lines shows what is wrong in a cluster of 400 nodes, 50 of which cannot
// allocate, with the remedies and the pools. Another 1,000 nodes that no longer exist add nothing.
func TestScaleOfReport(t *testing.T) {
	draw := func(live, cut, vanished, bits int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "pool pods 10.0.0.0/%d\n", bits)
		next := 0
		block := func(owner string) int {
			base := next * 64
			next++
			cidr := fmt.Sprintf("10.%d.%d.%d/26", base>>16, base>>8&255, base&255)
			fmt.Fprintf(&b, "block %s %s\naffinity %s %s\n", cidr, owner, cidr, owner)
			return base
		}
		address := func(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255) }
		for i := range live {
			fmt.Fprintf(&b, "node live-%04d\n", i)
			base := block(fmt.Sprintf("live-%04d", i))
			fmt.Fprintf(&b, "use %s shop/own-%d live-%04d\n", address(base), i, i)
			if i < cut {
				fmt.Fprintf(&b, "node cut-%04d\nuse %s shop/borrows-%d cut-%04d\n", i, address(base+1), i, i)
			}
		}
		for i := range vanished {
			base := block(fmt.Sprintf("gone-%04d", i))
			fmt.Fprintf(&b, "alloc %s pod=shop/gone-%d node=gone-%04d\n", address(base), i, i)
		}
		return b.String()
	}
	reportOf := func(text string) *audit.Report {
		s, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		st := state.New(s, state.Options{})
		return audit.NewReport(st, audit.Run(st, checks.All))
	}
	lines := func(r *audit.Report) []string {
		return strings.Split(render(t, "table", r, testOptions(100)), "\n")
	}
	short := reportOf(draw(350, 50, 162, 17))
	screen := strings.Join(lines(short)[:40], "\n")
	want := []string{"\npods  10.0.0.0/17 "}
	for _, d := range short.Diagnoses {
		want = append(want, DiagnosisTitle(&d))
		for i := range d.Remedies {
			want = append(want, strings.Join(strings.Fields(RemedyTitle(&d.Remedies[i])), " ")[:20])
		}
	}
	for _, text := range want {
		if !strings.Contains(screen, text) {
			t.Errorf("40 lines do not show %q:\n%s", text, screen)
		}
	}
	if len(want) < 5 {
		t.Errorf("the report has too few causes: %q", want)
	}
	few, many := reportOf(draw(50, 0, 10, 13)), reportOf(draw(50, 0, 1000, 13))
	if a, b := len(lines(few)), len(lines(many)); b > a+10 || len(many.Diagnoses) != 1 {
		t.Errorf("10 nodes that no longer exist take %d lines, 1,000 take %d, with %d diagnoses", a, b, len(many.Diagnoses))
	}
	for _, r := range []*audit.Report{short, many} {
		for _, line := range lines(r) {
			if named := strings.Count(line, "gone-"); named > 3 && strings.Contains(line, "$ ") {
				t.Errorf("a command names %d nodes: %s", named, line)
			}
			if n := len([]rune(line)); n > 100 {
				t.Errorf("a line of %d characters: %s", n, line)
			}
		}
	}
}

// TestRestIDs: on a narrow terminal without room for a name, only the hint follows the number.
func TestRestIDs(t *testing.T) {
	g := []audit.Finding{{Subject: state.Subject{Kind: state.KindBlock, CIDR: "10.110.158.64/26"}}, {Subject: state.Subject{Kind: state.KindBlock, CIDR: "10.110.158.128/26"}}}
	for width, want := range map[int]string{
		60:  " (-o wide lists all)",
		80:  ": 10.110.158.64/26, … (-o wide lists all)",
		100: ": 10.110.158.64/26, 10.110.158.128/26 (-o wide lists all)",
	} {
		if got := restIDs(g, width); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}
