package storm

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
)

// What a proxy makes of requests and answers.

// unheard ends a call of a client that is dead, with an error that no one tries
// again: for the dead try nothing, and what they make of the answer comes too late
// to matter.
func unheard(w http.ResponseWriter) { http.Error(w, "the client is dead", http.StatusForbidden) }

// broken passes on what goes wrong behind the proxy: a connection that cannot be made
// is an error at once, and one that breaks breaks before the proxy, too.
func broken(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	panic(http.ErrAbortHandler)
}

// isWrite reports whether a request can change an object. Reviews of rights and
// tokens are written, but nothing is stored.
func isWrite(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !strings.Contains(r.URL.Path, "/authorization.k8s.io/") && !strings.Contains(r.URL.Path, "/authentication.k8s.io/")
}

// deaf takes an answer and keeps it to itself.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }
func (d *deaf) WriteHeader(int)             {}
