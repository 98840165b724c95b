package datastore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/calico-audit/calico-audit/repair"
)

// client sends single requests to an API server. It has no rate limit, because the caller
// sets the pace of steps.
type client struct {
	rest *rest.RESTClient
	wait waits
}

// waits are the writer's timeouts and pauses. Tests shorten them.
type waits struct {
	// step limits the time of a step after its first write was sent.
	step time.Duration
	// request limits one request.
	request time.Duration
	// retry lists the pauses before the retries of a request.
	retry []time.Duration
	// deletion limits the wait for an object with finalizers to disappear; poll is the
	// interval of the checks.
	deletion, poll time.Duration
	// claim is how long Whereabouts may act on a reservation that it has read.
	claim time.Duration
}

var defaultWaits = waits{
	step: 90 * time.Second, request: 30 * time.Second,
	retry: []time.Duration{
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
	},
	deletion: 10 * time.Second, poll: 100 * time.Millisecond,
	claim: repair.WhereaboutsRequest,
}

// maxAnswer limits the size of a response; maxError limits the part of an error response
// that is read.
const (
	maxAnswer = 64 << 20
	maxError  = 1 << 20
)

func newClient(cfg *rest.Config) (*client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	cfg.RateLimiter, cfg.QPS = nil, -1
	cfg.WarningHandler, cfg.WarningHandlerWithContext = rest.NoWarnings{}, nil
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return errorTransport{rt} })
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the client configuration: %w", err)
	}
	c, err := rest.RESTClientForConfigAndClient(cfg, h)
	if err != nil {
		return nil, fmt.Errorf("using the cluster's address: %w", err)
	}
	return &client{rest: c, wait: defaultWaits}, nil
}

// errorTransport reads error responses, up to maxError. client-go takes the status code
// from the Status object in the body, if there is a complete one. Only the HTTP status
// code is reliable, so errorTransport copies it into that object.
type errorTransport struct{ http.RoundTripper }

func (t errorTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusMultipleChoices {
		return resp, err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // a truncated body is still an error with that code
	var s metav1.Status
	if json.Unmarshal(body, &s) == nil && s.Kind == "Status" {
		s.APIVersion, s.Status, s.Code = "v1", metav1.StatusFailure, int32(resp.StatusCode)
		// client-go uses the header only if the body is not a Status.
		if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			s.Details = cmp.Or(s.Details, &metav1.StatusDetails{})
			s.Details.RetryAfterSeconds = cmp.Or(s.Details.RetryAfterSeconds, int32(min(after, math.MaxInt32))) //nolint:gosec // bounded
		}
		if body, err = json.Marshal(s); err != nil {
			return nil, err
		}
		resp.Header.Set("Content-Type", "application/json")
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// request is a request to the API server.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// statusError is an error response of the API server. Its details name the object, which
// distinguishes a missing object from a resource that is not served.
type statusError metav1.Status

func (e *statusError) Error() string {
	text := fmt.Sprintf("the API server answered %d %s", e.Code, http.StatusText(int(e.Code)))
	if e.Message != "" {
		text += ": " + clip(e.Message)
	}
	return text
}

// statusOf returns the API server's response in an error, or nil.
func statusOf(err error) *statusError {
	var s *statusError
	if errors.As(err, &s) {
		return s
	}
	return nil
}

// absent reports whether an error says that an object does not exist.
func absent(err error, name string) bool {
	s := statusOf(err)
	return s != nil && s.Code == http.StatusNotFound && s.Details != nil && s.Details.Name == path.Base(name)
}

// refused reports whether an error proves that a request was not carried out. All other
// errors leave that open: the answer may have been lost, and a server may fail after it
// has written.
func refused(err error) bool {
	s := statusOf(err)
	return s != nil && s.Code >= 400 && s.Code < 500 && s.Code != http.StatusRequestTimeout
}

// throttled reports whether the server rejected a request because of overload.
func throttled(err error) bool {
	s := statusOf(err)
	return s != nil && s.Code == http.StatusTooManyRequests
}

// send sends a request once and returns the body of a successful response. It discards
// client-go's logs and does not use its retries: a retry after a lost answer would hide
// that the first request may have been carried out.
func (c *client) send(ctx context.Context, r request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.wait.request)
	defer cancel()
	req := c.rest.Verb(r.method).AbsPath(r.path).SetHeader("Accept", "application/json").MaxRetries(0)
	for name, values := range r.query {
		for _, v := range values {
			req.Param(name, v)
		}
	}
	if r.contentType != "" {
		req.SetHeader("Content-Type", r.contentType).Body(r.body)
	}
	answer, err := req.Stream(klog.NewContext(ctx, logr.Discard()))
	if err != nil {
		return nil, plain(err)
	}
	defer answer.Close()
	body, err := io.ReadAll(io.LimitReader(answer, maxAnswer+1))
	switch {
	case err != nil:
		return nil, plain(err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return body, nil
}

func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 400
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// plain removes the method and URL from an error of the HTTP client, and client-go's
// phrases from a response without a message.
func plain(err error) error {
	var status *apierrors.StatusError
	var u *url.Error
	switch {
	case errors.As(err, &status):
		s := statusError(status.ErrStatus)
		if cause, unexpected := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); unexpected {
			s.Message = strings.TrimPrefix(cause.Message, "unknown")
		}
		return &s
	case errors.As(err, &u):
		return u.Err
	}
	return err
}

// read sends a request that changes nothing. It retries for a while if no answer comes or
// a later answer may differ.
func (c *client) read(ctx context.Context, r request) ([]byte, error) {
	for try := 0; ; try++ {
		body, err := c.send(ctx, r)
		if err == nil || refused(err) && !throttled(err) || !c.pause(ctx, try, err) {
			return body, err
		}
	}
}

// pause waits before a retry. It returns false after the last retry.
func (c *client) pause(ctx context.Context, try int, err error) bool {
	if try >= len(c.wait.retry) {
		return false
	}
	d := c.wait.retry[try]
	if s := statusOf(err); s != nil && s.Details != nil {
		d = max(d, min(time.Duration(s.Details.RetryAfterSeconds)*time.Second, 5*time.Second))
	}
	return sleep(ctx, d)
}

// sleep waits for d. It returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
