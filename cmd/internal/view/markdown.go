package view

import (
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Limits of lists in tickets.
const (
	markdownShown = 10 // findings, and gaps of host views
	ticketSteps   = 50 // steps, refusals for one reason, and names
	ticketRows    = 200
)

//go:embed markdown.tmpl
var markdownText string

// TemplateFuncs are the functions shared by the templates of tickets and pages.
var TemplateFuncs = template.FuncMap{
	"upper": func(v any) string { return strings.ToUpper(fmt.Sprint(v)) }, "lower": strings.ToLower,
	"inc": func(n int) int { return n + 1 }, "sub": func(a, b int) int { return a - b },
	"time": func(t audit.Time) string { return phrase.Time(t.Time) }, "plural": phrase.Plural, "anchor": CheckAnchor,
	"untolerated": blocks.Untolerated, "byReason": skippedByReason, "runway": runwayLines, "runwayBasis": runwayBasis, "mutedBy": mutedBy,
	"message": Message, "remedy": func(r remedies.Remedy) string { return RemedyTitle(&r) },
	"target": TargetText, "grace": repair.Duration.String, "refusals": refusals, "refusal": refusalTitle,
	"manual": manualText, "dueTwice": dueTwice, "strict": strictLines, "pools": changedPools,
}

// markdown holds the templates of tickets. Values from a cluster must pass through text,
// code or cell.
var markdown = template.Must(template.New("").Funcs(TemplateFuncs).Funcs(template.FuncMap{
	"text": func(v any) string { return mdText(fmt.Sprint(v)) },
	"code": func(v any) string { return mdCode(fmt.Sprint(v)) },
	// cell escapes bars, which end a table cell even inside code.
	"cell":    func(s string) string { return strings.ReplaceAll(s, "|", `\|`) },
	"escaped": escaped.Replace,
	"title":   func(s string) string { return s[:1] + strings.ToLower(s[1:]) },
	"numbers": func(r *audit.Report, p audit.PoolReport) poolNumbers { return numbersOf(r, &p, blocks.Count.String) },
	"counts":  SeverityCounts, "seen": Seen, "facts": facts,

	"tolerated": toleratedGaps, "toleratedMeans": func() string { return toleratedMeans }, "checks": skippedChecks, "hostCount": hostCount, "fullest": FullestFirst,
	"explained": func(ds []audit.Diagnosis) map[string]bool { return Explained(ds...) },
	"diagnosed": func(o Options, ds []audit.Diagnosis) any {
		return struct {
			Options   Options
			Diagnoses []audit.Diagnosis
		}{o, ds}
	},
	"groups": Groups, "ids": restCodes,
	"shown": func(g []audit.Finding) []audit.Finding { shown, _ := cut(g, markdownShown); return shown },

	"codes": codes, "outcome": OutcomeText, "totals": resultTotals,

	"scenario": ScenarioText, "outcomes": OutcomeLines, "served": DemandLines, "ways": ChangeLines, "headroom": HeadroomTable, "poolsAfter": PoolsTable,
	"nodesAfter": func(o *capacity.Outcome) *Table { return NodesTable(o, ticketSteps) },

	"changes": diffRuns, "change": changeTitle, "diffTotals": diffTotals, "noFindings": noFindings, "alike": func(g []audit.DiffFinding) []diffAlike { return alikeChanges(g, diffShown) }, "diffCounts": diffCounts,
}).Parse(markdownText))

// asMarkdown returns a Write function that renders a template with the value as Of and the
// options.
func asMarkdown[T any](name string) func(io.Writer, T, Options) error {
	return func(w io.Writer, v T, o Options) error {
		return markdown.ExecuteTemplate(w, name, struct {
			Options
			Of                T
			Shown, Most, Rows int
			WhyOnce           func(string) string
		}{o.Defaults(), v, markdownShown, ticketSteps, ticketRows, o.Defaults().whyOnce()})
	}
}

// facts joins names and non-empty values.
func facts(pairs ...string) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, pairs[i]+" "+mdCode(pairs[i+1]))
		}
	}
	return strings.Join(out, ", ")
}

// restCodes lists the subjects of the findings that are not shown.
func restCodes(g []audit.Finding) string {
	var ids []string
	for i := range g[markdownShown:] {
		ids = append(ids, mdCode(g[markdownShown+i].Subject.ID()))
	}
	return strings.Join(ids, ", ")
}

// codes lists names as code, up to the limit of a ticket.
func codes(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, mdCode(n))
	}
	return CutNames(out, ticketSteps, "… %d more")
}

// mdSpecial escapes characters with a meaning in Markdown or HTML at any position.
var mdSpecial = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "]", `\]`, "~", `\~`, "|", `\|`, "#", `\#`, "$", `\$`,
	"&", "&amp;", "<", "&lt;", ">", "&gt;",
	"@", "@<!-- -->", // so that a name notifies no one
)

// escaped escapes Markdown in the program's own texts.
var escaped = strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[")

// mdUnderscore matches underscores that may begin or end emphasis: at the edge of a word,
// or several in a row.
var mdUnderscore = regexp.MustCompile(`(^|[^0-9A-Za-z_])_+|_+($|[^0-9A-Za-z_])|__+`)

// mdLineStart matches beginnings of a line that make it a list, rule or heading.
var mdLineStart = regexp.MustCompile(`^([-+]|[0-9]+[.)])(\s|$)|^[-=]+$`)

// mdText escapes a text so that Markdown shows it verbatim, on one line.
func mdText(s string) string {
	s = mdSpecial.Replace(Clean(s))
	s = mdUnderscore.ReplaceAllStringFunc(s, func(m string) string { return strings.ReplaceAll(m, "_", `\_`) })
	if at := mdLineStart.FindStringSubmatchIndex(s); at != nil {
		mark := max(at[3]-1, 0) // the last character of the mark, or the first of a rule
		s = s[:mark] + `\` + s[mark:]
	}
	return s
}

// mdCode formats a text as code, with as many backticks as needed.
func mdCode(s string) string {
	s = Clean(s)
	if s == "" {
		return ""
	}
	longest, run := 0, 0
	for _, r := range s {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 || strings.HasPrefix(s, " ") && strings.HasSuffix(s, " ") {
		s = " " + s + " "
	}
	return fence + s + fence
}
