package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// apiClient sends GET requests to an API server: without a rate limit of its
// own, with a few retries, and with a sense of when the server is gone.
type apiClient struct {
	http *http.Client
	base *url.URL
	wait waits

	mu   sync.Mutex
	met  bool      // whether the server has ever answered
	date time.Time // its clock at the first answer
	last time.Time // and at the last
	dead error     // why it is taken for gone
}

// waits are how long the client waits for what. Tests shorten them.
type waits struct {
	retry   []time.Duration // before each retry of a request
	quiet   time.Duration   // without a byte, until the server's health is asked for
	probe   time.Duration   // for an answer about its health
	answer  time.Duration   // without a byte from a healthy server, until a request is given up
	advised time.Duration   // longest Retry-After that is heeded
}

// defaultWaits make a reading end within 15 seconds of the server's death, and
// leave a slow but living server its time. The API server itself ends a list
// after 60 seconds.
var defaultWaits = waits{
	retry:   []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second},
	quiet:   5 * time.Second,
	probe:   5 * time.Second,
	answer:  65 * time.Second,
	advised: 5 * time.Second,
}

// maxPage limits what one answer may hold.
const maxPage = 1 << 30

func newAPIClient(cfg *rest.Config) (*apiClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.NegotiatedSerializer = nil, nil
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the cluster's address: %w", err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the client configuration: %w", err)
	}
	return &apiClient{http: client, base: base, wait: defaultWaits}, nil
}

// statusError is an answer of the API server that is an error.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the API server answered %d %s", e.code, http.StatusText(e.code))
	if e.message != "" {
		text += ": " + clipMessage(e.message)
	}
	return text
}

func clipMessage(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// codeOf returns the status code of an API server's error, 0 for other errors.
func codeOf(err error) int {
	var status *statusError
	if errors.As(err, &status) {
		return status.code
	}
	return 0
}

// answer is a body and its media type. complete is false if it was cut off.
type answer struct {
	body     []byte
	mimeType string
	complete bool
}

// bodies are the buffers of answers, used again and again.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// get sends a request and hands the answer to use, whose error means that the
// answer was no good, and makes it try again as after a broken connection. use
// may be called several times, and must not keep the body.
func (c *apiClient) get(ctx context.Context, path string, query url.Values, accept string, use func(answer) error) error {
	for try := 0; ; try++ {
		if err := c.gone(); err != nil {
			return err
		}
		pause, err := c.once(ctx, path, query, accept, use)
		if err == nil || ctx.Err() != nil || !worthRetrying(err) {
			return errors.Join(err, ctx.Err())
		}
		if try >= c.retries() || errors.Is(err, errStalled) || errors.Is(err, errSlow) {
			if codeOf(err) == 0 {
				return c.mourn(ctx, err)
			}
			return err
		}
		select {
		case <-time.After(max(c.wait.retry[try], min(pause, c.wait.advised))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retries is how often a request is sent again. A server that has never answered
// is probably not there, and whoever waits for it wants to know soon.
func (c *apiClient) retries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.met {
		return min(2, len(c.wait.retry))
	}
	return len(c.wait.retry)
}

// worthRetrying tells whether an error may pass: a broken connection, a server
// that is overloaded or has lost its own datastore for a moment.
func worthRetrying(err error) bool {
	code := codeOf(err)
	return code == 0 || code == http.StatusTooManyRequests || code >= 500
}

// once sends one request. The duration is how long the server asks to wait
// before another.
func (c *apiClient) once(ctx context.Context, path string, query url.Values, accept string, use func(answer) error) (time.Duration, error) {
	watch, ctx := c.watchQuiet(ctx)
	defer watch.stop()
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", accept)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, watch.cause(err)
	}
	defer resp.Body.Close()
	c.note(resp.Header.Get("Date"))

	buf := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(buf)
	buf.Reset()
	_, err = buf.ReadFrom(io.LimitReader(watch.reader(resp.Body), maxPage+1))
	switch {
	case err != nil:
		err = watch.cause(err)
	case buf.Len() > maxPage:
		err = fmt.Errorf("an answer of more than %d bytes", maxPage)
	}
	a := answer{body: buf.Bytes(), mimeType: resp.Header.Get("Content-Type"), complete: err == nil}
	if resp.StatusCode != http.StatusOK {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(seconds) * time.Second, &statusError{resp.StatusCode, a.message()}
	}
	watch.stop()
	if used := use(a); err == nil {
		err = used
	}
	return 0, err
}

// message returns what an error answer says.
func (a answer) message() string {
	if strings.HasPrefix(a.mimeType, protobufType) {
		return protoMessage(a.body)
	}
	var status struct{ Message string }
	if json.Unmarshal(a.body, &status) == nil {
		return status.Message
	}
	return ""
}

// note remembers the server's clock as the first and the last answer tell it.
func (c *apiClient) note(date string) {
	t, err := http.ParseTime(date)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met = true
	if err != nil {
		return
	}
	if c.date.IsZero() {
		c.date = t.UTC()
	}
	if t.After(c.last) {
		c.last = t.UTC()
	}
}

// serverDate returns the server's clock at the first answer, zero if no answer
// told it.
func (c *apiClient) serverDate() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.date
}

// lastDate is like serverDate, at the last answer.
func (c *apiClient) lastDate() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// plain takes the method and address off an error of the HTTP client: they
// stand in the message around it, or are different each time.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
