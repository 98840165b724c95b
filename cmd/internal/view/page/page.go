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
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
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

// elsewhere says what the commands of a page leave out; empty for nothing.
func (o Options) elsewhere() string {
	switch {
	case o.source == "":
		return ""
	case o.ReportArgs == "":
		return "without local paths, for the cluster that kubectl talks to; this page was made with " + o.source
	}
	return "without local paths; this page was made with " + o.source
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
	o.Options = o.Defaults()
	if o.ReportArgs != o.PortableArgs {
		o.source, o.ReportArgs = o.ReportArgs, o.PortableArgs
	}
	c, err := newContent(r, o)
	// The page is made whole first: half of one is of no use to anybody.
	var buf bytes.Buffer
	if err == nil {
		err = pageTemplate.ExecuteTemplate(&buf, "page.html", c)
	}
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	_, err = w.Write(buf.Bytes())
	return err
}

//go:embed assets
var assets embed.FS

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"clean": unbroken, "plain": view.Clean, "upper": strings.ToUpper, "short": view.Short, "message": view.Message, "anchor": view.CheckAnchor,
	"sevclass": func(s state.Severity) string { return "sev-" + s.String() },
	"time":     func(t audit.Time) string { return phrase.Time(t.Time) },
	"stamp":    func(t audit.Time) string { return cmp.Or(phrase.Time(t.Time), "at a time not known") },
	"plural":   view.Plural, "sub": func(a, b int) int { return a - b }, "inc": func(n int) int { return n + 1 },
	"byReason": view.SkippedByReason, "mutedBy": view.MutedBy, "muted": view.MutedFindings,
	"addresses": view.AddressesText, "blocks": view.BlocksText, "secondary": view.SecondaryText, "runway": view.RunwayLines, "runwayBasis": view.RunwayBasis,
	"remedy": func(r remedies.Remedy) string { return view.RemedyTitle(&r) },
	"target": view.TargetText, "grace": view.ShortGrace, "refusals": view.Refusals, "refusal": view.RefusalTitle, "manual": view.ManualText,
	"dueTwice": view.DueTwice, "pools": view.ChangedPools, "strict": view.StrictLines, "showable": showable,
	"listed": func() int { return listed }, "unseen": blocks.NotHeld,
	"names": func(names []string) string { return view.CutNames(names, listed, "and %d more") },
}).ParseFS(assets, "assets/*.html"))

// unbroken is cleaned text in which the names of nodes, pools and flags stay on one line:
// browsers break after hyphens. Longer ones, as of pods, may be broken.
func unbroken(text string) template.HTML {
	const longest = 24
	var b strings.Builder
	for i, word := range strings.Split(view.Clean(text), " ") {
		if i > 0 {
			b.WriteByte(' ')
		}
		html := template.HTMLEscapeString(word)
		if strings.Contains(word, "-") && len(word) <= longest {
			html = `<bdi class="whole">` + html + `</bdi>`
		}
		b.WriteString(html)
	}
	return template.HTML(b.String()) //nolint:gosec // every word was escaped
}

// listed is how many entries of a plan's lists are written out.
const listed = 500

// MapStyle is the style of drawn maps, in the page and out of it.
var MapStyle = asset("map.css")

// pageScript has its parts in one function, so that the page has no global names.
var (
	pageStyle  = MapStyle + asset("page.css")
	pageScript = "\"use strict\";\n(() => {\n" + asset("data.js", "map.js", "card.js", "nodes.js", "findings.js", "find.js", "live.js", "main.js") + "})();\n"
)

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

// policy is the page's Content-Security-Policy: its own style and script run, known
// by their hashes, and nothing is fetched, but by a live page from its own server.
func policy(live bool) string {
	p := "default-src 'none'; style-src " + hashSource(pageStyle) + "; script-src " + hashSource(pageScript) + "; img-src data:; base-uri 'none'; form-action 'none'"
	if live {
		p += "; connect-src 'self'"
	}
	return p
}

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
