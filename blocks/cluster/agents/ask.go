package agents

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

	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

// errViewTooLarge means that an agent's response exceeds the size limit.
var errViewTooLarge = errors.New("its answer has more than")

// maxOwnBlocks limits the blocks sent to an agent.
const maxOwnBlocks = 400

// ask requests the view of one agent, of at most limit bytes. The request contains the
// node's own blocks, so that the agent omits irrelevant routes, and the time that the view
// must be newer than, because an agent may serve one view for some seconds.
func (a *agent) ask(ctx context.Context, pods *cluster.Pods, opts Options, own []netip.Prefix, since time.Time, limit int64) ([]byte, error) {
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
	if !since.IsZero() {
		query.Set(agentNewerThan, since.Format(time.RFC3339Nano))
	}
	stream, err := a.stream(ctx, pods, opts, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var buf bytes.Buffer
	_, err = buf.ReadFrom(io.LimitReader(stream, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(buf.Len()) > limit:
		return nil, fmt.Errorf("%w %d MiB", errViewTooLarge, limit>>20)
	}
	return buf.Bytes(), nil
}

// stream requests an agent's view and returns the response body.
func (a *agent) stream(ctx context.Context, pods *cluster.Pods, opts Options, query url.Values) (io.ReadCloser, error) {
	if opts.TLS != nil {
		return opts.TLS.get(ctx, a, query)
	}
	name := a.pod + ":" + strconv.Itoa(a.port)
	if strings.EqualFold(cmp.Or(opts.Scheme, a.scheme), "https") {
		name = "https:" + name
	}
	return pods.Get(ctx, a.namespace, name, Path, query)
}

// agentReason explains why an agent could not be queried.
func agentReason(err error, all context.Context, timeout time.Duration) string {
	var answered *request.StatusError
	switch {
	case errors.As(err, &answered) && answered.Code == http.StatusForbidden && strings.Contains(answered.Message, "pods/proxy"):
		return "its agent could not be queried: forbidden: needs the right to get pods/proxy"
	case errors.As(err, &answered) && answered.Code == http.StatusNotFound && strings.Contains(answered.Message, "pods "):
		return "its agent could not be queried: its pod is gone"
	case errors.As(err, &answered):
		return "its agent could not be queried: " + strings.TrimPrefix(answered.Error(), "the API server answered ")
	case errors.Is(err, errViewTooLarge):
		return err.Error()
	case errors.Is(err, errNotVerified):
		return err.Error() + ": nothing was sent to it"
	case all.Err() != nil:
		return fmt.Sprintf("its agent was not queried: the time limit for all agents (%s) ended first", 10*timeout)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("its agent did not answer within %s", timeout)
	}
	return "its agent could not be queried: " + err.Error()
}
