package metrics

import (
	"compress/gzip"
	"context"
	"html/template"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
)

// site is the web site of an exporter or agent. Besides its own pages it serves
//
//	/healthz       200 while the program responds
//	/readyz        200, or 503 with the reason
//	/debug/pprof/  profiles, if enabled: they expose the program's memory and cost time
//	/              a list of the pages
type site struct {
	Title, About string
	Pages        []page
	// what is the program's name. ready describes a successful /readyz. unready returns why
	// the program is not ready; "" if it is.
	what, ready string
	unready     func(context.Context) string
	pprof       bool
}

// page is a path with its description and handler.
type page struct {
	Path, Does string
	serve      http.HandlerFunc
}

var landing = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{{.Title}}</title>
<style>body{font-family:sans-serif;margin:2em;max-width:50em}dt{margin-top:.6em}</style></head>
<body>
<h1>{{.Title}}</h1>
<p>{{.About}}</p>
<dl>{{range .Pages}}
<dt><a href="{{.Path}}">{{.Path}}</a></dt><dd>{{.Does}}</dd>{{end}}
</dl>
</body>
</html>
`))

func (s site) handler() http.Handler {
	s.Pages = append(s.Pages,
		page{"/healthz", "whether the " + s.what + " answers", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") }},
		page{"/readyz", s.ready, func(w http.ResponseWriter, r *http.Request) {
			if why := s.unready(r.Context()); why != "" {
				writeText(w, http.StatusServiceUnavailable, why)
				return
			}
			writeText(w, http.StatusOK, "ok")
		}})
	mux := http.NewServeMux()
	if s.pprof {
		s.Pages = append(s.Pages, page{"/debug/pprof/", "profiles of the " + s.what, pprof.Index})
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	for _, p := range s.Pages {
		mux.HandleFunc("GET "+p.Path, p.serve)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_ = landing.Execute(w, s)
	})
	return mux
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

// writeBody writes a response, compressed if the client accepts it.
func writeBody(w http.ResponseWriter, r *http.Request, contentType string, write func(io.Writer) error) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept-Encoding")
	var out io.Writer = w
	if wantsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // most of a page is already compressed
		defer func() { _ = z.Close() }()
		out = z
	}
	if r.Method != http.MethodHead {
		_ = write(out) // an error means that the client disconnected
	}
}

func wantsGzip(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(v, ",") {
			coding, parameters, _ := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			q, found := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
			weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return !found || err == nil && weight > 0
		}
	}
	return false
}
