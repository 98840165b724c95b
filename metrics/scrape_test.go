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

// TestScrape: a scrape gets the format and the encoding that it asks for, with every family.
func TestScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(strings.ReplaceAll(borrowing, "gone", `a\"b`))
		played(t, f, ExporterOptions{NodeMetrics: true}, func(e *Exporter) {
			pass(3 * time.Second)
			first := map[string]*dto.MetricFamily(nil)
			for _, c := range []struct{ accept, encoding, format, packed string }{
				{"", "", "text/plain; version=0.0.4", ""},
				{"", "gzip", "text/plain; version=0.0.4", "gzip"},
				{acceptOf2, "gzip", "text/plain; version=0.0.4", "gzip"},
				{acceptOf3, "gzip", "text/plain; version=0.0.4", "gzip"},
				{acceptOf3, "gzip;q=0, identity", "text/plain; version=0.0.4", ""},
				{acceptOfProto, "gzip", "application/vnd.google.protobuf", "gzip"},
			} {
				r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				r.Header.Set("Accept", c.accept)
				r.Header.Set("Accept-Encoding", c.encoding)
				w := httptest.NewRecorder()
				e.Handler().ServeHTTP(w, r)
				if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, c.format) || w.Header().Get("Content-Encoding") != c.packed {
					t.Errorf("Accept %q, Accept-Encoding %q: %s, %q", c.accept, c.encoding, got, w.Header().Get("Content-Encoding"))
				}
				families := decoded(t, w)
				if first == nil {
					first = families
				}
				if families["go_goroutines"] == nil || len(families) != len(first) {
					t.Errorf("Accept %q: %d families, not %d", c.accept, len(families), len(first))
				}
				for name, f := range first {
					if strings.HasPrefix(name, exporterPrefix) {
						if d := cmp.Diff(f, families[name], protocmp.Transform()); d != "" {
							t.Errorf("Accept %q: %s: %s", c.accept, name, d)
						}
					}
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
