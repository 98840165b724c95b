package story

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// proxy sits between the program and the API server. It counts the program's writes and
// can block one while the program is killed. It also makes IPReservations look older: the
// program waits a minute and a half after creating one before it evicts a pod.
type proxy struct {
	url string

	mu     sync.Mutex
	writes []write
	// at is called with the number of each write, from 1, before the write is forwarded.
	// The write is forwarded only if at returns true. Then sent is called.
	at   func(n int) bool
	sent func(n int)
}

// reservationAge is added to the age of every IPReservation.
const reservationAge = 85 * time.Second

func newProxy(t *testing.T, to *rest.Config) *proxy {
	t.Helper()
	target, err := url.Parse(to.Host)
	must(t, err)
	transport, err := rest.TransportFor(to)
	must(t, err)
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: olderReservations,
		ErrorLog:       log.New(io.Discard, "", 0), // clients that were killed cause errors
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(forward, w, r) }))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.url = server.URL
	return p
}

func (p *proxy) serve(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet, strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/"), strings.Contains(r.URL.Path, "/leases"):
		// A Lease is renewed all the time and has no effect on the state.
		if strings.Contains(r.URL.Path, "/ipreservations") {
			r.Header.Del("Accept-Encoding") // the proxy must parse the response
		}
		forward.ServeHTTP(w, r)
		return
	}
	p.mu.Lock()
	p.writes = append(p.writes, write{r.Method + " " + r.URL.Path, time.Now()})
	n, at, sent := len(p.writes), p.at, p.sent
	p.mu.Unlock()
	// Read the body first: the write must reach the API server even if the program dies
	// meanwhile.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// The reverse proxy watches the client's connection if the context has no end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if at != nil && !at(n) {
		panic(http.ErrAbortHandler)
	}
	forward.ServeHTTP(w, r)
	if sent != nil {
		sent(n)
	}
}

// count returns the number of writes so far.
func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.writes)
}

// watch sets the functions that are called for later writes.
func (p *proxy) watch(at func(n int) bool, sent func(n int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.sent = at, sent
}

var created = regexp.MustCompile(`"creationTimestamp":"([^"]+)"`)

func olderReservations(r *http.Response) error {
	if !strings.Contains(r.Request.URL.Path, "/ipreservations") || r.Request.URL.Query().Has("watch") {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = created.ReplaceAllFunc(body, func(match []byte) []byte {
		at, err := time.Parse(time.RFC3339, string(created.FindSubmatch(match)[1]))
		if err != nil {
			return match
		}
		return []byte(`"creationTimestamp":"` + at.Add(-reservationAge).Format(time.RFC3339) + `"`)
	})
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// kubeconfig writes a kubeconfig file that points to the proxy.
func (p *proxy) kubeconfig(t *testing.T) string {
	t.Helper()
	const name = "proxy"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: p.url}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := clientcmd.Write(*k)
	must(t, err)
	must(t, os.WriteFile(path, text, 0o600))
	return path
}
