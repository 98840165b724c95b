package metrics

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Handler serves the last audit:
//
//	/metrics      metrics
//	/report       the report for people: a page for browsers, else text
//	/report.json  the report as data
//	/healthz      200 as long as the program answers
//	/readyz       200 if the cluster was audited and what is known is not too old, else 503 with the reason
//	/             what is served where
func (e *Exporter) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(e, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(e.Log.Handler(), slog.LevelError), ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if e.HTML != nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
			e.serveReport(w, r, "text/html; charset=utf-8", e.HTML, true)
			return
		}
		e.serveReport(w, r, "text/plain; charset=utf-8", e.Text, false)
	})
	mux.HandleFunc("GET /report.json", func(w http.ResponseWriter, r *http.Request) {
		e.serveReport(w, r, "application/json", e.JSON, false)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := e.unready(); why != "" {
			writeText(w, http.StatusServiceUnavailable, why)
			return
		}
		writeText(w, http.StatusOK, "ok")
	})
	pages := []Page{
		{"/report", "the report on the cluster as it is now"},
		{"/report.json", "the same as data, as calico-audit report -o json writes it"},
		{"/metrics", "metrics of it, for Prometheus"},
		{"/healthz", "whether the exporter answers"},
		{"/readyz", "whether the cluster was audited, and what is known is not too old"},
	}
	if e.Pprof {
		HandlePprof(mux)
		pages = append(pages, Page{"/debug/pprof/", "profiles of the exporter"})
	}
	HandleLanding(mux, "calico-audit exporter", "It watches Calico's IP address management in this cluster, and changes nothing.", pages)
	return mux
}

// serveReport serves the report in some format, with the use of single addresses if
// the format shows that.
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

const notYet = "the cluster has not been audited yet: not everything was listed once"

// unready says why the exporter is not ready; "" if it is.
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

func staleReason(a *Audit, age time.Duration) string {
	return fmt.Sprintf("nothing newer than %s has been known for %s: the API server does not answer, or not all of its watches do",
		state.FormatTime(a.Report.Cluster.TakenAt.Time), age.Round(time.Second))
}

// staleResource stands for the whole cluster in the gap that tells of its age.
const staleResource blocks.Resource = "cluster"

// reportOf returns the report of an audit as it is to be told now: one whose state
// is too old is not complete.
func (e *Exporter) reportOf(a *Audit) *audit.Report {
	age := e.staleFor(a)
	if age == 0 {
		return a.Report
	}
	old := *a.Report
	old.Complete = false
	old.Gaps = append(slices.Clone(old.Gaps), blocks.Gap{Resource: staleResource, Reason: staleReason(a, age)})
	return &old
}
