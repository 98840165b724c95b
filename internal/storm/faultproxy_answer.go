package storm

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
)

// The proxy's handling of requests and responses.

// unheard ends a call of a dead client with an error that is not retried. A dead client
// would not retry, and its reaction no longer matters.
func unheard(w http.ResponseWriter) { http.Error(w, "the client is dead", http.StatusForbidden) }

// broken reports errors behind the proxy to the client: a refused connection becomes an
// error response, and a broken connection is also broken for the client.
func broken(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	panic(http.ErrAbortHandler)
}

// isWrite reports whether a request can change an object. Reviews of rights and tokens
// are sent as writes but store nothing.
func isWrite(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !strings.Contains(r.URL.Path, "/authorization.k8s.io/") && !strings.Contains(r.URL.Path, "/authentication.k8s.io/")
}

// deaf discards a response.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }
func (d *deaf) WriteHeader(int)             {}
