package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errViewTooLarge means that an agent answered more than a host view should have.
var errViewTooLarge = errors.New("its answer has more than")

// maxOwnBlocks limits how many blocks an agent is told as those of its node.
const maxOwnBlocks = 400

// askAgent gets the view of one agent, of at most limit bytes. It is told the node's own
// blocks, so that it leaves out the routes that no verdict goes by. An agent must not send
// this program elsewhere with the user's credentials: no redirect is followed.
func (c *apiClient) askAgent(ctx context.Context, a *agent, opts AgentOptions, own []netip.Prefix, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	query := url.Values{}
	if len(own) <= maxOwnBlocks {
		texts := make([]string, len(own))
		for i, p := range own {
			texts[i] = p.String()
		}
		query.Set(agentBlocks, strings.Join(texts, ","))
	}
	stream, err := c.agentStream(ctx, a, opts, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var buf bytes.Buffer
	_, err = buf.ReadFrom(io.LimitReader(stream, limit+1))
	switch {
	case err != nil:
		return nil, plain(err)
	case int64(buf.Len()) > limit:
		return nil, fmt.Errorf("%w %d MiB", errViewTooLarge, limit>>20)
	}
	return buf.Bytes(), nil
}

// agentStream is an agent's answer as it comes.
func (c *apiClient) agentStream(ctx context.Context, a *agent, opts AgentOptions, query url.Values) (io.ReadCloser, error) {
	if opts.TLS != nil {
		return opts.TLS.get(ctx, a, query)
	}
	name := a.pod + ":" + strconv.Itoa(a.port)
	if strings.EqualFold(cmp.Or(opts.Scheme, a.scheme), "https") {
		name = "https:" + name
	}
	r := c.pods.Get().AbsPath("/api/v1/namespaces", a.namespace, "pods", name, "proxy", AgentPath).SetHeader("Accept", "application/json").MaxRetries(0)
	for key, values := range query {
		r.Param(key, values[0])
	}
	stream, err := answerOf(ctx, r, nil)
	if err != nil {
		return nil, agentError(err)
	}
	return stream, nil
}

// agentError is plain, and keeps the text that an agent answered itself.
func agentError(err error) error {
	failed := plain(err)
	var status *statusError
	if cause, ours := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); ours && errors.As(failed, &status) &&
		cause.Message != "unknown" && !strings.HasPrefix(cause.Message, "<") {
		status.Message = cause.Message
	}
	return failed
}

// agentReason says why an agent could not be asked.
func agentReason(err error, all context.Context, timeout time.Duration) string {
	var answered *statusError
	switch {
	case errors.As(err, &answered) && answered.Code == http.StatusForbidden && strings.Contains(answered.Message, "pods/proxy"):
		return "its agent could not be asked: forbidden: needs the right to get pods/proxy"
	case errors.As(err, &answered) && answered.Code == http.StatusNotFound && strings.Contains(answered.Message, "pods "):
		return "its agent could not be asked: its pod is gone"
	case errors.As(err, &answered):
		return "its agent could not be asked: " + strings.TrimPrefix(answered.Error(), "the API server answered ")
	case errors.Is(err, errViewTooLarge):
		return err.Error()
	case errors.Is(err, errNotVerified):
		return err.Error() + ": nothing was sent to it"
	case all.Err() != nil:
		return fmt.Sprintf("its agent was not heard: all agents together did not answer within %s", 10*timeout)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("its agent did not answer within %s", timeout)
	}
	return "its agent could not be asked: " + err.Error()
}
