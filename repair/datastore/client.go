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
)

// client sends single requests to an API server. It has no rate limit, because the caller
// sets the pace of steps.
type client struct{ rest *rest.RESTClient }

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
	return &client{rest: c}, nil
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

// answer returns the error of a request as a [Response], if it is one. Only a refusal proves that
// the request was not carried out, because a server may fail after it has written.
func answer(err error) error {
	s := statusOf(err)
	if s == nil {
		return err
	}
	r := &Response{
		Err: err, Refused: s.Code >= 400 && s.Code < 500 && s.Code != http.StatusRequestTimeout,
		Exists: s.Code == http.StatusConflict, Busy: s.Code == http.StatusTooManyRequests,
	}
	if s.Details != nil {
		r.After = time.Duration(s.Details.RetryAfterSeconds) * time.Second
	}
	return r
}

// send sends a request once and returns the body of a successful response. It discards
// client-go's logs and does not use its retries: a retry after a lost answer would hide
// that the first request may have been carried out.
func (c *client) send(ctx context.Context, r request) ([]byte, error) {
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
