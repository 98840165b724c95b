package view

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// HTMLOptions are the options of a report as a page.
type HTMLOptions struct {
	Options
	// Plan is shown with what it would change; nil for none.
	Plan *repair.Plan
	// Next says how to go on with the plan.
	Next []NextStep
	// Live makes the page fetch itself anew from where it was loaded, at least every
	// Refresh; zero means [DefaultRefresh]. A page that is kept as a file asks nothing
	// of any server.
	Live    bool
	Refresh time.Duration
}

// DefaultRefresh is how often a live page is fetched anew.
const DefaultRefresh = 15 * time.Second

//go:embed assets
var assets embed.FS

// pageScripts are the parts of the page's script, in order.
var pageScripts = []string{"data.js", "map.js", "card.js", "nodes.js", "findings.js", "find.js", "live.js", "main.js"}

type htmlPrinter struct{ HTMLOptions }

func newHTML(_ string, o Options) (Printer, error) {
	return htmlPrinter{HTMLOptions{Options: o.defaults()}}, nil
}

// Print writes the report as a page.
func (h htmlPrinter) Print(w io.Writer, r *audit.Report) error {
	return WriteHTML(w, r, h.HTMLOptions)
}

// WriteHTML writes a report as one page that needs nothing else: no network, no
// other file. The report lies in it as data, too, and [ReadHTML] reads it back.
// The same report gives the same bytes, unless the page is live.
func WriteHTML(w io.Writer, r *audit.Report, o HTMLOptions) error {
	o.Options = o.defaults()
	h, err := newHTMLPage(r, o)
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	// The page is made whole first: half of one is of no use to anybody.
	var buf bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&buf, "page.html", h); err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	_, err = w.Write(buf.Bytes())
	return err
}

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"clean": clean, "sevclass": severityClass, "upper": strings.ToUpper,
	"stamp": func(t audit.Time) string { return orText(audit.FormatTime(t.Time), "at a time not known") },
}).ParseFS(assets, "assets/*.html"))

var pageStyle, pageScript = mapStyle + asset("page.css"), joined(pageScripts)

// mapStyle is the style of drawn maps, in the page and out of it.
var mapStyle = asset("map.css")

// asset returns an embedded file. That it exists is known when the program is built.
func asset(name string) string {
	data, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// joined puts the parts of the script into one function, so that the page has no
// global names.
func joined(names []string) string {
	var b strings.Builder
	b.WriteString("\"use strict\";\n(() => {\n")
	for _, n := range names {
		b.WriteString(asset(n))
	}
	b.WriteString("})();\n")
	return b.String()
}

// policy is the page's Content-Security-Policy: its own style and script run, known
// by their hashes, and nothing is fetched, but by a live page from its own server.
func policy(live bool) string {
	p := []string{
		"default-src 'none'", "style-src " + hashSource(pageStyle), "script-src " + hashSource(pageScript),
		"img-src data:", "base-uri 'none'", "form-action 'none'",
	}
	if live {
		p = append(p, "connect-src 'self'")
	}
	return strings.Join(p, "; ")
}

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
