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

// proxy stands between the program and the API server. It counts the program's writes, can
// hold one back while the program is killed, and makes reservations look older than they
// are: the program lets one stand for a minute and a half before it evicts a pod.
type proxy struct {
	url string

	mu     sync.Mutex
	writes []write
	// at is called for each write with its number, from 1, before it is sent; it is sent
	// if that returns true, and after it has been, sent is called.
	at   func(n int) bool
	sent func(n int)
}

// reservationAge is how much older than they are reservations look.
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
		ErrorLog:       log.New(io.Discard, "", 0), // of a client that was killed
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
		// A Lease is renewed all the time, and gives the cluster nothing to end up with.
		if strings.Contains(r.URL.Path, "/ipreservations") {
			r.Header.Del("Accept-Encoding") // so that the answer can be read
		}
		forward.ServeHTTP(w, r)
		return
	}
	p.mu.Lock()
	p.writes = append(p.writes, write{r.Method + " " + r.URL.Path, time.Now()})
	n, at, sent := len(p.writes), p.at, p.sent
	p.mu.Unlock()
	// What is sent goes on, though its sender may be dead by then.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// A context that never ends would have the reverse proxy heed the sender's connection.
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

// count is how many writes there were.
func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.writes)
}

// watch has functions called for the writes to come.
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

// kubeconfig is a file by which the program finds the proxy.
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
