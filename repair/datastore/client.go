package datastore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// client sends single requests to an API server. It has no rate limit: how fast
// steps follow each other is for whoever carries them out.
type client struct {
	http *http.Client
	base *url.URL
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
	// gone bounds the waiting for an object that finalizers hold, and poll is how
	// often it is looked at.
	gone, poll time.Duration
}

var defaultWaits = waits{
	step: 90 * time.Second, request: 30 * time.Second,
	retry: []time.Duration{
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
	},
	gone: 10 * time.Second, poll: 100 * time.Millisecond,
}

// maxAnswer limits what one answer may hold.
const maxAnswer = 64 << 20

func newClient(cfg *rest.Config) (*client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.NegotiatedSerializer = nil, nil
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the cluster's address: %w", err)
	}
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the client configuration: %w", err)
	}
	return &client{http: h, base: base, wait: defaultWaits}, nil
}

// request is one request.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// statusError is an answer of the API server that is an error.
type statusError struct {
	code int
	// reason and message are those of the server; name is that of the object that
	// it speaks of, which tells an object that does not exist from a kind that is
	// not served.
	reason, message, name string
	// after is how long the server asks to wait before another try.
	after time.Duration
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the API server answered %d %s", e.code, http.StatusText(e.code))
	if e.message != "" {
		text += ": " + e.message
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

// absent tells whether an error says that an object does not exist.
func absent(err error, name string) bool {
	s := statusOf(err)
	return s != nil && s.code == http.StatusNotFound && s.name == name
}

// refused tells whether an error says for certain that a request was not carried
// out. Anything else leaves it open: an answer may get lost, and a server that
// gives an error of its own may have written before.
func refused(err error) bool {
	s := statusOf(err)
	return s != nil && s.code >= 400 && s.code < 500 && s.code != http.StatusRequestTimeout
}

// throttled tells whether the server refused a request for having too much to do.
func throttled(err error) bool {
	s := statusOf(err)
	return s != nil && s.code == http.StatusTooManyRequests
}

// send sends a request once and returns the body of a good answer.
func (c *client) send(ctx context.Context, r request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.wait.request)
	defer cancel()
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + r.path
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case resp.StatusCode >= 300:
		return nil, newStatusError(resp, body)
	case err != nil:
		return nil, plain(err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return body, nil
}

func newStatusError(resp *http.Response, body []byte) *statusError {
	e := &statusError{code: resp.StatusCode}
	var status struct {
		Kind, Reason, Message string
		Details               struct{ Name string }
	}
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		e.reason, e.message, e.name = status.Reason, clip(status.Message), status.Details.Name
	} else {
		e.message = clip(string(body))
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.after = time.Duration(seconds) * time.Second
	}
	return e
}

func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 400
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// plain takes the method and the address off an error of the HTTP client.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
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
	if s := statusOf(err); s != nil {
		d = max(d, min(s.after, 5*time.Second))
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
