package metrics

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-audit/calico-audit/audit"
)

// TestPagesAtOnce: only a few pages are rendered at the same time. A browser that
// disconnects is skipped, the others get their pages, and other requests never wait for a
// page.
func TestPagesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(calm)
		var now, most atomic.Int32
		proceed := make(chan struct{})
		played(t, f, ExporterOptions{HTML: func(w io.Writer, _ *audit.Report) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-proceed
			_, err := io.WriteString(w, "<!DOCTYPE html>")
			return err
		}}, func(e *Exporter) {
			pass(3 * time.Second)
			ctx, leave := context.WithCancel(t.Context())
			var left, served atomic.Int32
			h := e.Handler()
			browse := func(ctx context.Context) {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/report", nil)
				r.Header.Set("Accept", "text/html")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if ctx.Err() != nil {
					left.Add(1)
				} else if w.Code == http.StatusOK && w.Body.Len() > 0 {
					served.Add(1)
				}
			}
			for range 5 {
				go browse(t.Context())
			}
			synctest.Wait()
			go browse(ctx)
			synctest.Wait()
			if n := now.Load(); n != maxPages {
				t.Errorf("of six pages, %d are being made", n)
			}
			if status, _ := ask(e, "/report.json"); status != http.StatusOK {
				t.Errorf("/report.json: %d", status)
			}
			leave()
			synctest.Wait()
			if left.Load() != 1 {
				t.Error("a request that ended still waits")
			}
			close(proceed)
			synctest.Wait()
			if most.Load() != maxPages || served.Load() != 5 {
				t.Errorf("%d pages were made at a time, and %d served", most.Load(), served.Load())
			}
		})
	})
}
