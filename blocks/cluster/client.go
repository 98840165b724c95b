package cluster

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

// apiClient sends GET requests to an API server through client-go's REST client, without
// its rate limit. It keeps track of whether the whole server is unavailable.
type apiClient struct {
	rest  *rest.RESTClient
	pods  *rest.RESTClient // for requests to pods: follows no redirects, and ignores pods' clocks
	clock *serverClock
	wait  waits

	errUnavailable atomic.Pointer[error] // why the server counts as unavailable; nil if it does not
	compress       atomic.Bool           // the connection to the server is slow
}

// waits are the client's timeouts. Tests shorten them.
type waits struct {
	retry  []time.Duration // before each retry of a request
	quiet  time.Duration   // without a byte, before a health probe
	probe  time.Duration   // for the answer to a health probe
	answer time.Duration   // without a byte from a healthy server, before the request fails
}

// newAPIClient returns a client. now replaces the server's clock until the first Date
// header.
func newAPIClient(cfg *rest.Config, now func() time.Time) (*apiClient, error) {
	if now == nil {
		now = time.Now
	}
	c := &apiClient{clock: newServerClock(now), wait: defaultWaits}
	var err error
	if c.rest, err = request.NewClient(cfg, request.Options{Saw: func(r *http.Response) { c.clock.saw(r.Header.Get("Date")) }}); err != nil {
		return nil, err //nolint:wrapcheck // it says what failed
	}
	// The API server forwards the Date headers of pods.
	c.pods, err = request.NewClient(cfg, request.Options{NoRedirects: true})
	return c, err //nolint:wrapcheck // it says what failed
}

// host returns the server's address, for messages.
func (c *apiClient) host() string { return c.rest.Get().URL().Host }

// service returns the address of the API server if that is the cluster IP of its own Service,
// which every pod has in its environment; else the zero value.
func (c *apiClient) service() netip.Addr {
	a, err := netip.ParseAddr(c.rest.Get().URL().Hostname())
	own, ownErr := netip.ParseAddr(os.Getenv("KUBERNETES_SERVICE_HOST"))
	if err != nil || ownErr != nil || a != own {
		return netip.Addr{}
	}
	return a
}

// codeOf returns the status code of an API server's error; 0 for other errors.
func codeOf(err error) int {
	if s := request.StatusOf(err); s != nil {
		return int(s.Code)
	}
	return 0
}

// retryAfter returns the wait that the server asked for in Retry-After.
func retryAfter(err error) time.Duration {
	if s := request.StatusOf(err); s != nil {
		return s.RetryAfter()
	}
	return 0
}

func (c *apiClient) request(path string, query url.Values, accept string) *rest.Request {
	r := c.rest.Get().AbsPath(path).SetHeader("Accept", accept).MaxRetries(len(c.wait.retry))
	if !c.compress.Load() {
		r.SetHeader("Accept-Encoding", "identity")
	}
	for name, values := range query {
		for _, v := range values {
			r.Param(name, v)
		}
	}
	return r
}

// reset clears the unavailable state and the clock's dates, before another reading.
func (c *apiClient) reset() {
	c.errUnavailable.Store(nil)
	c.clock.reset()
}

// apart returns a client that fails separately.
func (c *apiClient) apart() *apiClient {
	return &apiClient{rest: c.rest, pods: c.pods, clock: c.clock, wait: c.wait}
}

// defaultWaits end a reading within 15 seconds of the server's death, but tolerate a slow
// server. The API server itself ends a list after 60 seconds.
var defaultWaits = waits{
	retry:  []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second},
	quiet:  5 * time.Second,
	probe:  5 * time.Second,
	answer: 65 * time.Second,
}

// open sends a GET request and returns the body, which the caller must close. For HTTP/2 it
// also returns the connection, which all requests share; else nil.
func (c *apiClient) open(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, net.Conn, error) {
	var conn atomic.Pointer[net.Conn]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn.Store(&i.Conn) }})
	body, err := request.Stream(ctx, c.request(path, query, accept).MaxRetries(0), nil)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the caller does
	}
	if got := conn.Load(); got != nil {
		if t, ok := (*got).(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
			return body, *got, nil
		}
	}
	return body, nil, nil
}
