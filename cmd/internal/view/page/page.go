// Package page writes a report as a self-contained HTML page, and reads the report back
// from it. The block map is drawn as SVG.
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

// elsewhere describes the arguments that the page's commands omit; "" if there are none, or
// no commands.
func (o Options) elsewhere(commands bool) string {
	switch {
	case o.source == "" || !commands:
		return ""
	case o.ReportArgs == "":
		return "use your current kubectl context, without local paths (report source: " + o.source + ")"
	}
	return "without local paths (report source: " + o.source + ")"
}

// carryable fills in defaults, and removes local paths from the commands.
func (o *Options) carryable() {
	o.Options = o.Defaults()
	if o.ReportArgs != o.PortableArgs {
		o.source, o.ReportArgs, o.ClusterArgs = o.ReportArgs, o.PortableArgs, o.PortableClusterArgs
	}
}

// DefaultRefresh is the reload interval of a live page.
const DefaultRefresh = 15 * time.Second

// Report writes a report as a page to keep.
func Report(w io.Writer, r *audit.Report, o view.Options) error {
	return Write(w, r, Options{Options: o})
}

// Plan writes a plan as a page, with the report in the options.
func Plan(w io.Writer, plan *repair.Plan, o view.Options) error {
	if o.Report == nil {
		return errors.New("no report to show with the plan")
	}
	return Write(w, o.Report, Options{Options: o, Plan: plan})
}

// Write writes a report as a self-contained page, without any external resources. The page
// contains the report as data, which [Read] returns. The output is deterministic, except
// for a live page.
func Write(w io.Writer, r *audit.Report, o Options) error {
	o.carryable()
	c, err := newContent(r, o)
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	return writePage(w, "page.html", c)
}

// writePage renders a page completely before it writes it.
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
	"stamp":    func(t audit.Time) string { return cmp.Or(phrase.Time(t.Time), "at an unknown time") },
	"muted":    view.MutedFindings, "secondary": view.SecondaryText,
	"showable": showable, "listed": func() int { return listed },
	"names": func(names []string) string { return view.CutNames(names, listed, "and %d more") },
}).ParseFS(assets, "assets/*.html"))

// unbroken returns clean text as HTML and keeps short names and flags on one line; browsers
// otherwise break them after hyphens. Longer names, such as those of pods, may be broken.
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

// listed limits the entries in a plan's lists.
const listed = 500

// MapStyle is the CSS of block maps, on the page and elsewhere. Its colours of severities
// come from view.Looks.
var MapStyle = asset("map.css") + severityStyle()

// severityStyle defines the CSS variables of severities, --critical for text and
// --critical-fill for fills, for light and dark backgrounds; print uses the light ones. The
// class .sev-critical sets --sev to the text colour.
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

// script joins scripts inside a function, so that they define no globals.
func script(parts ...string) string {
	return "\"use strict\";\n(() => {\n" + asset(parts...) + "})();\n"
}

// head is the head of a page. Style and Script are embedded verbatim.
type head struct {
	Policy, Title string
	Style, Script template.HTML
}

// newHead returns the head of a page. The Content-Security-Policy allows only the page's
// own style and script, by their hashes, and no requests, except those of a live page to
// its own server.
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

// asset returns embedded files. They always exist, because they are part of the build.
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
