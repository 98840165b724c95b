package metrics

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/testing/protocmp"
)

// The Accept headers of Prometheus 2.x, of 3.x, and of a Prometheus that requests native
// histograms.
const (
	acceptOf2     = "application/openmetrics-text;version=1.0.0;q=0.75,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.25,*/*;q=0.1"
	acceptOf3     = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
	acceptOfProto = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7," + acceptOf3
)

var inAnyOrder = protocmp.SortRepeated(func(a, b *dto.Metric) bool { return a.String() < b.String() })

// TestScrape: every response to a scrape has the same headers and families as that of
// Prometheus' own library.
func TestScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(strings.ReplaceAll(borrowing, "gone", `a\"b`))
		played(t, f, ExporterOptions{NodeMetrics: true}, func(e *Exporter) {
			pass(3 * time.Second)
			byLibrary := metricsOf(e.Log, processMetrics(), func() ([]*dto.MetricFamily, error) { return e.families(e.Current()) })
			text := string(e.Current().scrape.text)
			fixed, err := parse([]byte(text))
			if again, writing := withFamilies(nil, fixed); err != nil || writing != nil || string(again) != text {
				t.Errorf("it is otherwise written by Prometheus' own library (%v, %v):\n%s", err, writing, cmp.Diff(text, string(again)))
			}
			for _, c := range []struct{ accept, encoding, path, want string }{
				{"", "", "/metrics", "text/plain; version=0.0.4"},
				{"", "gzip", "/metrics", "text/plain; version=0.0.4"},
				{acceptOf2, "gzip", "/metrics", "text/plain; version=0.0.4"},
				{acceptOf3, "gzip", "/metrics", "text/plain; version=0.0.4"},
				{acceptOf3, "gzip;q=0, identity", "/metrics", "text/plain; version=0.0.4"},
				{acceptOfProto, "gzip", "/metrics", "application/vnd.google.protobuf"},
				{"application/openmetrics-text", "gzip", "/metrics", "text/plain"},
				{acceptOf3, "gzip", "/metrics?name[]=calico_audit_node_blocks&name[]=go_goroutines", "text/plain"},
			} {
				answer := func(h http.Handler) (http.Header, map[string]*dto.MetricFamily) {
					r := httptest.NewRequest(http.MethodGet, c.path, nil)
					r.Header.Set("Accept", c.accept)
					r.Header.Set("Accept-Encoding", c.encoding)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Header(), decoded(t, w)
				}
				got, families := answer(e.Handler())
				want, expected := answer(byLibrary)
				for _, h := range []string{"Content-Type", "Content-Encoding"} {
					if got.Get(h) != want.Get(h) {
						t.Errorf("Accept %q, Accept-Encoding %q: %s is %q, by the library %q", c.accept, c.encoding, h, got.Get(h), want.Get(h))
					}
				}
				if !strings.HasPrefix(got.Get("Content-Type"), c.want) {
					t.Errorf("Accept %q: Content-Type is %q", c.accept, got.Get("Content-Type"))
				}
				if families["go_goroutines"] == nil || families["calico_audit_node_blocks"] == nil {
					t.Errorf("Accept %q: of %d families some are missing", c.accept, len(families))
				}
				for name, f := range expected {
					if !strings.HasPrefix(name, exporterPrefix) {
						f = families[name] // its value has changed since
					}
					if d := cmp.Diff(f, families[name], protocmp.Transform(), inAnyOrder); f == nil || d != "" {
						t.Errorf("Accept %q: %s: %s", c.accept, name, d)
					}
				}
				if len(families) != len(expected) {
					t.Errorf("Accept %q: %d families, by the library %d", c.accept, len(families), len(expected))
				}
			}
			if n := value(t, e, "calico_audit_node_blocks", "node", `a\"b`); n != 1 {
				t.Errorf("a node whose name has to be quoted has %v blocks", n)
			}
		})
	})
}

// decoded reads a whole response according to its headers.
func decoded(t *testing.T, w *httptest.ResponseRecorder) map[string]*dto.MetricFamily {
	t.Helper()
	var body io.Reader = w.Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		z.Multistream(false) // some clients read only the first stream
		body = z
	}
	out := map[string]*dto.MetricFamily{}
	for from := expfmt.NewDecoder(body, expfmt.ResponseFormat(w.Header())); ; {
		f := &dto.MetricFamily{}
		if err := from.Decode(f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		out[f.GetName()] = f
	}
	if w.Body.Len() > 0 {
		t.Errorf("%d bytes follow the end", w.Body.Len())
	}
	return out
}
