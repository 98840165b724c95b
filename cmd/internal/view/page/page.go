// Package page writes a report as one page of HTML that needs nothing else, and reads
// it back out of such a page. The map of its blocks is drawn as SVG.
package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// Options are the options of a report as a page.
type Options struct {
	view.Options
	// Plan is shown with what it would change; nil for none.
	Plan *repair.Plan
	// Live makes the page fetch itself again from where it was loaded, at least every
	// Refresh; zero means [DefaultRefresh]. A page that is kept as a file asks nothing
	// of any server.
	Live    bool
	Refresh time.Duration

	// source are the arguments that named the source where the page was made, if there
	// are local paths among them, which commands in a page do without.
	source string
}

// elsewhere says what the commands of a page leave out; empty for nothing, or where there
// are none.
func (o Options) elsewhere(commands bool) string {
	switch {
	case o.source == "" || !commands:
		return ""
	case o.ReportArgs == "":
		return "without local paths, for the cluster that kubectl talks to; this page was made with " + o.source
	}
	return "without local paths; this page was made with " + o.source
}

// carryable fills in what was left out, and has commands do without what only this machine has.
func (o *Options) carryable() {
	o.Options = o.Defaults()
	if o.ReportArgs != o.PortableArgs {
		o.source, o.ReportArgs = o.ReportArgs, o.PortableArgs
	}
}

// DefaultRefresh is how often a live page is fetched again.
const DefaultRefresh = 15 * time.Second

// Report writes a report as a page that is kept.
func Report(w io.Writer, r *audit.Report, o view.Options) error {
	return Write(w, r, Options{Options: o})
}

// Plan writes a plan as a page, with the report that the options have.
func Plan(w io.Writer, plan *repair.Plan, o view.Options) error {
	if o.Report == nil {
		return errors.New("there is no report to show the plan with")
	}
	return Write(w, o.Report, Options{Options: o, Plan: plan})
}

// Write writes a report as one page that needs nothing else: no network, no
// other file. The report lies in it as data, too, and [Read] reads it back.
// The same report gives the same bytes, unless the page is live.
func Write(w io.Writer, r *audit.Report, o Options) error {
	o.carryable()
	c, err := newContent(r, o)
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	return writePage(w, "page.html", c)
}

// writePage writes a page, which is made whole first: half of one is of no use to anybody.
func writePage(w io.Writer, template string, content any) error {
	var buf bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&buf, template, content); err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	_, err := w.Write(buf.Bytes())
	return err
}

//go:embed assets
var assets embed.FS

var pageTemplate = template.Must(template.New("").Funcs(view.TemplateFuncs).Funcs(template.FuncMap{
	"clean": unbroken, "plain": view.Clean, "short": view.Short,
	"sevclass": func(s state.Severity) string { return "sev-" + s.String() },
	"stamp":    func(t audit.Time) string { return cmp.Or(phrase.Time(t.Time), "at a time not known") },
	"muted":    view.MutedFindings, "secondary": view.SecondaryText,
	"showable": showable, "listed": func() int { return listed },
	"names": func(names []string) string { return view.CutNames(names, listed, "and %d more") },
}).ParseFS(assets, "assets/*.html"))

// unbroken is cleaned text in which the names of nodes and pools, and flags, stay on one line:
// browsers break after hyphens. Longer names, as of pods, may be broken.
func unbroken(text string) template.HTML {
	const longest, longestFlag = 24, 32
	var b strings.Builder
	for i, word := range strings.Split(view.Clean(text), " ") {
		if i > 0 {
			b.WriteByte(' ')
		}
		html := template.HTMLEscapeString(word)
		if strings.Contains(word, "-") && len(word) <= longest || strings.Contains(word, "--") && len(word) <= longestFlag {
			html = `<bdi class="whole">` + html + `</bdi>`
		}
		b.WriteString(html)
	}
	return template.HTML(b.String()) //nolint:gosec // every word was escaped
}

// listed is how many entries of a plan's lists are written out.
const listed = 500

// MapStyle is the style of drawn maps, in the page and out of it. The colours of severities
// are view.Looks'.
var MapStyle = asset("map.css") + severityStyle()

// severityStyle names the colours of a severity, as --critical for text and --critical-fill
// for what is filled, for light and dark ground and, light, for paper. In what has its
// class, .sev-critical, --sev is that of its text.
func severityStyle() string {
	var light, dark, classes strings.Builder
	for _, l := range view.Looks {
		fmt.Fprintf(&light, " --%s: %s; --%[1]s-fill: %[3]s;", l.Severity, l.Text.Light, l.Fill.Light)
		fmt.Fprintf(&dark, " --%s: %s; --%[1]s-fill: %[3]s;", l.Severity, l.Text.Dark, l.Fill.Dark)
		fmt.Fprintf(&classes, ".sev-%s { --sev: var(--%[1]s); } .base path.%s { fill: var(--%[1]s-fill); }\n", l.Severity, severityClass(l.Severity))
	}
	return fmt.Sprintf(":root {%s }\n@media (prefers-color-scheme: dark) { :root {%s } }\n@media print { :root {%[1]s } }\n%[3]s", &light, &dark, &classes)
}

var (
	pageStyle  = MapStyle + asset("page.css")
	pageScript = script("copy.js", "data.js", "map.js", "card.js", "nodes.js", "findings.js", "find.js", "live.js", "main.js")
)

// script puts parts into one function, so that the page has no global names.
func script(parts ...string) string {
	return "\"use strict\";\n(() => {\n" + asset(parts...) + "})();\n"
}

// head is what every page begins with, and its style and script, ours, written as they are.
type head struct {
	Policy, Title string
	Style, Script template.HTML
}

// newHead returns it. The Content-Security-Policy lets the page's own style and script run,
// known by their hashes, and nothing is fetched, but by a live page from its own server.
func newHead(title, style, script string, live bool) head {
	h := head{Title: title, Style: template.HTML("<style>" + style + "</style>")} //nolint:gosec // our own
	h.Policy = "default-src 'none'; style-src " + hashSource(style)
	if script != "" {
		h.Policy += "; script-src " + hashSource(script)
		h.Script = template.HTML("<script>" + script + "</script>") //nolint:gosec // our own
	}
	h.Policy += "; img-src data:; base-uri 'none'; form-action 'none'"
	if live {
		h.Policy += "; connect-src 'self'"
	}
	return h
}

// asset returns embedded files. That they exist is known when the program is built.
func asset(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		data, err := assets.ReadFile("assets/" + n)
		if err != nil {
			panic(err)
		}
		b.Write(data)
	}
	return b.String()
}

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
