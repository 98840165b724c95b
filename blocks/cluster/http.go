package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// defaultWaits end a reading within 15 seconds of the server's death, but tolerate a slow
// server. The API server itself ends a list after 60 seconds.
var defaultWaits = waits{
	retry:  []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second},
	quiet:  5 * time.Second,
	probe:  5 * time.Second,
	answer: 65 * time.Second,
}

// maxPage limits the size of a response in bytes.
const maxPage = 1 << 30

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

// answer is a response body. It calls heard whenever bytes arrive, and keeps the read error.
type answer struct {
	io.Reader
	heard func()
	size  int
	took  time.Duration // waiting time for all but the first bytes
	err   error
}

// If a response of at least telling bytes arrives with less than slowLink bytes per second,
// later responses are compressed. Compression costs CPU time in the API server, which
// dominates lists on fast networks, and decompression costs CPU time in the client: a
// report of 1,000 nodes took 0.91 s of CPU time with it and 0.86 s without.
const (
	telling  = 1 << 20
	slowLink = 10 << 20
)

func (a *answer) slow() bool {
	return a.size >= telling && float64(a.size) < slowLink*a.took.Seconds()
}

func (a *answer) Read(p []byte) (int, error) {
	asked := time.Now()
	n, err := a.Reader.Read(p)
	if a.size > 0 {
		a.took += time.Since(asked)
	}
	if n > 0 {
		a.heard()
	}
	if a.size += n; a.size > maxPage {
		err = fmt.Errorf("an answer of more than %d bytes", maxPage)
	}
	if !errors.Is(err, io.EOF) {
		a.err = err
	}
	return n, err
}

// get sends a request and streams the response body to the function use. If use fails, or the
// response is cut off, get retries as after a broken connection, so use may be called several
// times. client-go handles responses with Retry-After.
func (c *apiClient) get(ctx context.Context, path string, query url.Values, accept string, use func(io.Reader) error) error {
	for try := 0; ; try++ {
		if away := c.errUnavailable.Load(); away != nil {
			return *away
		}
		err := c.once(ctx, path, query, accept, use)
		if err == nil || ctx.Err() != nil || !worthRetrying(err) {
			return errors.Join(err, ctx.Err())
		}
		most := len(c.wait.retry)
		if !c.clock.answered() { // fail soon, because the server probably does not exist
			most = min(2, most)
		}
		if try >= most || errors.Is(err, errStalled) || errors.Is(err, errSlow) {
			if codeOf(err) == 0 {
				c.markUnavailable(ctx, err)
			}
			return errors.Join(err, ctx.Err())
		}
		request.Pause(ctx, c.wait.retry[try], nil)
	}
}

// worthRetrying reports whether an error may be temporary: a broken connection, or a server
// that is overloaded or has lost its datastore for a moment.
func worthRetrying(err error) bool {
	code := codeOf(err)
	return code == 0 || (code == http.StatusTooManyRequests || code >= 500) && retryAfter(err) == 0
}

func (c *apiClient) once(parent context.Context, path string, query url.Values, accept string, use func(io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	heard := c.watchQuiet(ctx, cancel)
	stream, err := request.Stream(ctx, c.request(path, query, accept), heard)
	if err != nil {
		return because(ctx, err)
	}
	defer stream.Close()
	body := &answer{Reader: stream, heard: heard}
	if err = use(body); err == nil {
		_, err = io.Copy(io.Discard, body) // the rest of the body may be cut off
	}
	if body.err != nil {
		err = because(ctx, body.err)
	}
	if body.slow() {
		c.compress.Store(true)
	}
	cancel(nil)
	return err
}

// because returns the cause of ctx's cancellation, else err.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return request.WithoutURL(err)
}
