package metrics

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// Handler serves metrics and the report of the last audit, as HTML, text and JSON. The
// exporter is ready after the first audit, while the state is not too old.
func (e *Exporter) Handler() http.Handler {
	return site{
		Title: "calico-audit exporter", About: "It watches Calico's IP address management in this cluster, and changes nothing.",
		what: "exporter", ready: "whether the cluster was audited, and the data is recent enough",
		unready: func(context.Context) string { return e.unready() }, pprof: e.Pprof,
		Pages: []page{
			{"/report", "the current report", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Add("Vary", "Accept")
				if e.HTML != nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
					e.serveReport(w, r, "text/html; charset=utf-8", e.HTML, true)
					return
				}
				e.serveReport(w, r, "text/plain; charset=utf-8", e.Text, false)
			}},
			{"/report.json", "the current report as JSON, as of calico-audit report -o json", func(w http.ResponseWriter, r *http.Request) {
				e.serveReport(w, r, "application/json", e.JSON, false)
			}},
			{"/metrics", "metrics for Prometheus", collector(func() samples { return e.samples(e.Current()) }).handler(e.Log)},
		},
	}.handler()
}

// serveReport serves the report in a format. With addresses set, the report includes Usage.
func (e *Exporter) serveReport(w http.ResponseWriter, r *http.Request, contentType string, render Renderer, addresses bool) {
	if addresses {
		select {
		case e.pages <- struct{}{}:
			defer func() { <-e.pages }()
		case <-r.Context().Done():
			return
		}
	}
	a := e.Current()
	if a == nil {
		writeText(w, http.StatusServiceUnavailable, notYet)
		return
	}
	rep := e.reportOf(a)
	if addresses {
		full := *rep
		full.Usage, rep = a.usage(), &full
	}
	if !rep.Cluster.TakenAt.IsZero() {
		w.Header().Set("Last-Modified", rep.Cluster.TakenAt.UTC().Format(http.TimeFormat))
	}
	writeBody(w, r, contentType, func(out io.Writer) error {
		err := render(out, rep)
		if err != nil && r.Context().Err() == nil {
			e.Log.Error("writing the report failed", "path", r.URL.Path, "error", err)
		}
		return err
	})
}

const notYet = "the cluster has not been audited yet: the first lists are not complete"

// unready returns why the exporter is not ready; "" if it is.
func (e *Exporter) unready() string {
	a := e.Current()
	if a == nil {
		return notYet
	}
	if age := e.staleFor(a); age > 0 {
		return staleReason(a, age)
	}
	return ""
}
