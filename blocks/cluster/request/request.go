// Package request sends requests to an API server through client-go's REST client, for readers and
// writers alike. There is no rate limit, because the callers set the pace, and the number of retries
// (MaxRetries of a request).
package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// Options are the settings of a client.
type Options struct {
	// Saw is called for each response; may be nil.
	Saw func(*http.Response)
	// NoRedirects makes a redirect an ordinary response.
	NoRedirects bool
}

// NewClient returns a client of the API server in cfg, without a rate limit and without the
// server's warnings. Its requests are for absolute paths, unless cfg has a group and version.
func NewClient(cfg *rest.Config, o Options) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.NegotiatedSerializer = cmp.Or(cfg.GroupVersion, &schema.GroupVersion{}), scheme.Codecs.WithoutConversion()
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	cfg.RateLimiter, cfg.QPS = nil, -1
	cfg.WarningHandler, cfg.WarningHandlerWithContext = rest.NoWarnings{}, nil
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return transport{rt, o.Saw} })
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the client configuration: %w", err)
	}
	if o.NoRedirects {
		direct := *client // a copy, because HTTPClientFor may return http.DefaultClient
		direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client = &direct
	}
	out, err := rest.RESTClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("using the cluster's address: %w", err)
	}
	return out, nil
}

// transport passes responses to saw and to an exchange. It limits the size of errors, and the wait
// of Retry-After.
type transport struct {
	http.RoundTripper
	saw func(*http.Response)
}

// exchange is the latest response to a request, including those that client-go retries.
type exchange struct {
	code, retryAfter atomic.Int32 // status code, 0 without a response, and Retry-After in seconds
	heard            func()       // called for each response; may be nil
}

type exchangeKey struct{}

// maxError limits the body of an error response in bytes.
const maxError = 1 << 20

// maxRetryAfter limits the server's Retry-After: a load balancer may ask for an hour during
// an outage of seconds.
const maxRetryAfter = 30 * time.Second

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{}
	}
	x.code.Store(0)
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if t.saw != nil {
		t.saw(resp)
	}
	after, most := 0, int(maxRetryAfter/time.Second)
	switch seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); {
	case err != nil || seconds < 0: // client-go would take a number out of range for the largest one
		resp.Header.Del("Retry-After")
	case seconds > most:
		after = most
		resp.Header.Set("Retry-After", strconv.Itoa(most))
	default:
		after = seconds
	}
	x.code.Store(int32(resp.StatusCode)) //nolint:gosec // three digits
	x.retryAfter.Store(int32(after))     //nolint:gosec // no more than maxRetryAfter
	if x.heard != nil {
		x.heard()
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxError)
	}
	return resp, nil
}

// Stream sends a request, without client-go's logs, and returns the body of a successful response.
// It calls heard, which may be nil, for each response. An error response is a [StatusError] with
// the status code and Retry-After of HTTP, whatever its body says, and even if the body breaks off.
func Stream(ctx context.Context, r *rest.Request, heard func()) (io.ReadCloser, error) {
	x := &exchange{heard: heard}
	body, err := r.Stream(context.WithValue(klog.NewContext(ctx, logr.Discard()), exchangeKey{}, x))
	code := x.code.Load()
	if err == nil || code < http.StatusMultipleChoices {
		return body, WithoutURL(err)
	}
	failed := &StatusError{}
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		*failed = StatusError(status.ErrStatus)
	}
	if cause, own := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); own {
		failed.Message = cause.Message // without client-go's own text
	}
	if failed.Message == "unknown" || strings.HasPrefix(failed.Message, "<") {
		failed.Message = "" // no message, or a page for browsers
	}
	failed.Code, failed.Details = code, cmp.Or(failed.Details, &metav1.StatusDetails{})
	failed.Details.RetryAfterSeconds = x.retryAfter.Load()
	return nil, failed
}

// WithoutURL removes the method and URL from an error of the HTTP client: the surrounding message
// has them, or they differ each time.
func WithoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// StatusError is an error response of the API server. Its details name the object, which
// distinguishes a missing object from a resource that is not served.
type StatusError metav1.Status

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the API server answered %d %s", e.Code, http.StatusText(int(e.Code)))
	if e.Message != "" {
		text += ": " + parse.ClipMessage(e.Message)
	}
	return text
}

// Is reports whether the response is a [blocks.ErrDenied].
func (e *StatusError) Is(target error) bool {
	return target == blocks.ErrDenied && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden)
}

// Refused reports whether the response proves that the request was not carried out: a server
// may fail after it has written.
func (e *StatusError) Refused() bool {
	return e.Code >= 400 && e.Code < 500 && e.Code != http.StatusRequestTimeout
}

// RetryAfter returns the wait that the server asked for, up to 30 s.
func (e *StatusError) RetryAfter() time.Duration {
	if e.Details == nil {
		return 0
	}
	return min(max(0, time.Duration(e.Details.RetryAfterSeconds)*time.Second), maxRetryAfter)
}

// StatusOf returns the error response in an error; nil if there is none.
func StatusOf(err error) *StatusError {
	var s *StatusError
	if errors.As(err, &s) {
		return s
	}
	return nil
}

// Pause waits for d, or until wake, which may be nil, has a value. It returns false if the context
// ended first.
func Pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
		return false
	}
	return true
}
