package metrics

import (
	"compress/gzip"
	"html/template"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
)

// Page is an entry of a landing page.
type Page struct{ Path, Does string }

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

// HandleLanding serves a page at "/" that says what is served where.
func HandleLanding(mux *http.ServeMux, title, about string, pages []Page) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_ = landing.Execute(w, struct {
			Title, About string
			Pages        []Page
		}{title, about, pages})
	})
}

// HandlePprof serves profiles of the program under /debug/pprof/. They tell about
// its memory, and profiling takes time: serve them only where that was asked for.
func HandlePprof(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// writeText answers with a line of text.
func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

// writeBody answers with a document, compressed for whoever asks for that.
func writeBody(w http.ResponseWriter, r *http.Request, contentType string, write func(io.Writer) error) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept-Encoding")
	var out io.Writer = w
	if wantsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out = z
	}
	if r.Method != http.MethodHead {
		_ = write(out) // whoever asked has gone
	}
}

// wantsGzip reports whether a request accepts gzip.
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
