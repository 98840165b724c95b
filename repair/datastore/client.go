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

// client sends single requests to an API server. It has no rate limit: how fast
// steps follow each other is for the caller that carries them out.
type client struct {
	rest *rest.RESTClient
	wait waits
}

// waits are how long the writer waits for what. Tests shorten them.
type waits struct {
	// step bounds what is done once the first write of a step is sent.
	step time.Duration
	// request bounds one request.
	request time.Duration
	// retry are the pauses before a request is tried again.
	retry []time.Duration
	// deletion bounds the waiting for an object that finalizers hold, and poll is how
	// often it is looked at.
	deletion, poll time.Duration
	// claim is how long Whereabouts may go on by a reservation that it has read.
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

// maxAnswer limits what an answer may hold, and maxError what is read of one that is
// an error.
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

// errorTransport reads the answers that are errors, up to maxError. What became of a
// request is for the code of the HTTP answer to say, which client-go takes from the
// Status in the body, if there is one that is whole: so it is put there.
type errorTransport struct{ http.RoundTripper }

func (t errorTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusMultipleChoices {
		return resp, err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // one that breaks off is an error of that code no less
	var s metav1.Status
	if json.Unmarshal(body, &s) == nil && s.Kind == "Status" {
		s.APIVersion, s.Status, s.Code = "v1", metav1.StatusFailure, int32(resp.StatusCode)
		// The library reads the header only where the body is no Status.
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

// request is one request.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// statusError is an answer of the API server that is an error. Its details name the
// object that it speaks of, which tells an object that does not exist from a kind
// that is not served.
type statusError metav1.Status

func (e *statusError) Error() string {
	text := fmt.Sprintf("the API server answered %d %s", e.Code, http.StatusText(int(e.Code)))
	if e.Message != "" {
		text += ": " + clip(e.Message)
	}
	return text
}

// statusOf returns the API server's answer in an error; nil if it is none.
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

// refused reports whether an error says for certain that a request was not carried
// out. Anything else leaves it open: an answer may get lost, and a server that
// gives an error of its own may have written before.
func refused(err error) bool {
	s := statusOf(err)
	return s != nil && s.Code >= 400 && s.Code < 500 && s.Code != http.StatusRequestTimeout
}

// throttled reports whether the server refused a request for having too much to do.
func throttled(err error) bool {
	s := statusOf(err)
	return s != nil && s.Code == http.StatusTooManyRequests
}

// send sends a request once and returns the body of a good answer. The library logs
// nothing of it. Its retries are not used: one that follows a lost answer would hide
// that the first may have been carried out.
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

// plain takes the method and the address off an error of the HTTP client, and the
// library's words off an answer that says nothing.
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

// read sends a request that changes nothing, and tries again for a while where the
// answer does not come or may be another later.
func (c *client) read(ctx context.Context, r request) ([]byte, error) {
	for try := 0; ; try++ {
		body, err := c.send(ctx, r)
		if err == nil || refused(err) && !throttled(err) || !c.pause(ctx, try, err) {
			return body, err
		}
	}
}

// pause waits before another try. It returns false if there is to be none.
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

// sleep returns false if the context ended before.
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
