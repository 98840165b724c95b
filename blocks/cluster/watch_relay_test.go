package cluster

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// A relay forwards bytes between a watch and the API server. It can cut the connections or
// fall silent.
type relay struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	conns  map[net.Conn]bool
	silent chan struct{} // closed when the silence ends; nil without one
	done   sync.WaitGroup
}

// through starts a relay for a cluster, and returns the configuration for connecting
// through it.
func through(t *testing.T, cfg *rest.Config) (*relay, *rest.Config) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	target, err := url.Parse(cfg.Host)
	must(t, err)
	r := &relay{listener: listener, target: target.Host, conns: map[net.Conn]bool{}}
	r.done.Go(r.serve)
	t.Cleanup(r.close)
	relayed := rest.CopyConfig(cfg)
	relayed.Host = "https://" + listener.Addr().String()
	return r, relayed
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.speak()
	r.cut()
	r.done.Wait()
}

func (r *relay) serve() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.mu.Lock()
		r.conns[in], r.conns[out] = true, true
		r.mu.Unlock()
		r.done.Go(func() { r.copy(in, out) })
		r.done.Go(func() { r.copy(out, in) })
	}
}

func (r *relay) copy(from, to net.Conn) {
	defer func() {
		_, _ = from.Close(), to.Close()
		r.mu.Lock()
		delete(r.conns, from)
		r.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		silent := r.silent
		r.mu.Unlock()
		if silent != nil {
			<-silent
			return // bytes lost in the silence must not arrive later
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// hush stops the traffic on all connections, including new ones, without closing them,
// until speak.
func (r *relay) hush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = make(chan struct{})
}

func (r *relay) speak() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent != nil {
		close(r.silent)
		r.silent = nil
	}
}
