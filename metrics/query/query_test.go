package query_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-audit/calico-audit/metrics/query"
)

// TestWatch: the history is read periodically. If it cannot be read, the last one is used
// for a day.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var log bytes.Buffer
		client, err := query.New(query.Options{URL: "http://prometheus", Window: 24 * time.Hour, RoundTripper: roundTripper(func(*http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			} else {
				fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"ippool":"p","job":"j"},"values":[[%d,"7"]]}]}}`, time.Now().Unix())
			}
			return w.Result(), nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		w := query.NewWatch(client, slog.New(slog.NewTextHandler(&log, nil)))
		if h, _ := w.Last(); h != nil {
			t.Errorf("%v before anything was read", h)
		}
		go w.Run(t.Context())
		synctest.Wait()
		h, at := w.Last()
		if h == nil || !at.Equal(time.Now()) || len(h.Pools["p"].Blocks) != 1 || h.Pools["p"].Blocks[0].Left != 7 || h.Source != `Prometheus http://prometheus, series {job="j"}` || log.Len() > 0 {
			t.Fatalf("%+v at %s: %s", h, at, &log)
		}
		down.Store(true)
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		if h, again := w.Last(); h == nil || !again.Equal(at) || !strings.Contains(log.String(), "503") {
			t.Errorf("%+v at %s: %s", h, again, &log)
		}
		time.Sleep(24 * time.Hour)
		if h, _ := w.Last(); h != nil {
			t.Error("it is used for more than a day")
		}
		down.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if h, _ := w.Last(); h == nil {
			t.Error("it is not read again")
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
