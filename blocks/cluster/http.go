package cluster

import (
	"cmp"
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

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
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
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	cfg.RateLimiter, cfg.QPS = nil, -1
	cfg.WarningHandler, cfg.WarningHandlerWithContext = rest.NoWarnings{}, nil
	var err error
	if c.rest, err = restClient(cfg, c.clock, nil); err != nil {
		return nil, err
	}
	c.pods, err = restClient(cfg, nil, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse })
	return c, err
}

// restClient returns a client that passes its responses to clock, which may be nil.
func restClient(cfg *rest.Config, clock *serverClock, redirect func(*http.Request, []*http.Request) error) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return clockTransport{rt, clock} })
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the client configuration: %w", err)
	}
	if redirect != nil {
		direct := *client // a copy, because HTTPClientFor may return http.DefaultClient
		direct.CheckRedirect = redirect
		client = &direct
	}
	out, err := rest.RESTClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("using the cluster's address: %w", err)
	}
	return out, nil
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

// StatusError is an error response of the API server.
type StatusError metav1.Status

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the API server answered %d %s", e.Code, http.StatusText(int(e.Code)))
	if e.Message != "" {
		text += ": " + decode.ClipMessage(e.Message)
	}
	return text
}

// Is reports whether the response is a [blocks.ErrDenied].
func (e *StatusError) Is(target error) bool {
	return target == blocks.ErrDenied && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden)
}

// codeOf returns the status code of an API server's error; 0 for other errors.
func codeOf(err error) int {
	var status *StatusError
	if errors.As(err, &status) {
		return int(status.Code)
	}
	return 0
}

// maxRetryAfter limits the server's Retry-After: a load balancer may ask for an hour during
// an outage of seconds.
const maxRetryAfter = 30 * time.Second

// retryAfter returns the wait that the server asked for in Retry-After.
func retryAfter(err error) time.Duration {
	var status *StatusError
	if errors.As(err, &status) && status.Details != nil {
		return min(max(0, time.Duration(status.Details.RetryAfterSeconds)*time.Second), maxRetryAfter)
	}
	return 0
}

// plain converts an error response to a StatusError. It removes method and URL from errors of the
// HTTP client: the surrounding message has them, or they differ each time.
func plain(err error) error {
	var status *apierrors.StatusError
	var u *url.Error
	switch {
	case errors.As(err, &status):
		s := StatusError(status.ErrStatus)
		if apierrors.IsUnexpectedServerError(err) {
			s.Message = "" // client-go's own text
		}
		return &s
	case errors.As(err, &u):
		return u.Err
	}
	return err
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

// exchange receives each response to a request, including those that client-go retries.
type exchange struct {
	code, retryAfter atomic.Int32 // status code and Retry-After in seconds of the latest response
	heard            func()       // called for each response; may be nil
}

type exchangeKey struct{}

// answerOf sends a request, without client-go's logging. An error has the status code and
// Retry-After of the response, regardless of its body.
func answerOf(ctx context.Context, r *rest.Request, heard func()) (io.ReadCloser, error) {
	x := &exchange{heard: heard}
	body, err := r.Stream(context.WithValue(klog.NewContext(ctx, logr.Discard()), exchangeKey{}, x))
	var status *apierrors.StatusError
	if code := x.code.Load(); errors.As(err, &status) && code >= http.StatusBadRequest {
		details := cmp.Or(status.ErrStatus.Details, &metav1.StatusDetails{})
		details.RetryAfterSeconds = x.retryAfter.Load()
		status.ErrStatus.Code, status.ErrStatus.Details = code, details
	}
	return body, err
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
		pause(ctx, c.wait.retry[try], nil)
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
	stream, err := answerOf(ctx, c.request(path, query, accept), heard)
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
	return plain(err)
}
