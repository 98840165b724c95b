package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// errViewTooLarge means that an agent answered more than a host view should have.
var errViewTooLarge = fmt.Errorf("its answer has more than %d MiB", maxAgentView>>20)

// askAgent gets the view of one agent.
func (k *Kubernetes) askAgent(ctx context.Context, p *agentPod, opts AgentOptions) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	name := p.Metadata.Name + ":" + strconv.Itoa(p.port())
	if scheme := cmp.Or(opts.Scheme, p.Metadata.Annotations[AgentSchemeAnnotation]); strings.EqualFold(scheme, "https") {
		name = "https:" + name
	}
	u := *k.client.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + name + "/proxy" + AgentPath
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	client := *k.client.http
	// An agent must not send this program elsewhere with the user's credentials.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var buf bytes.Buffer
	limit := int64(maxAgentView)
	if resp.StatusCode != http.StatusOK {
		limit = 4096
	}
	_, err = buf.ReadFrom(io.LimitReader(resp.Body, limit+1))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, &agentError{resp.StatusCode, agentMessage(resp, buf.Bytes())}
	case err != nil:
		return nil, plain(err)
	case int64(buf.Len()) > limit:
		return nil, errViewTooLarge
	}
	return buf.Bytes(), nil
}

// agentError is an answer that is an error, of the API server or of the agent.
type agentError struct {
	code    int
	message string
}

func (e *agentError) Error() string {
	text := fmt.Sprintf("%d %s", e.code, http.StatusText(e.code))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// agentMessage returns what an error answer says: the message of a Status, or the
// text of another answer.
func agentMessage(resp *http.Response, body []byte) string {
	if text := (answer{body: body, mimeType: resp.Header.Get("Content-Type")}).message(); text != "" {
		return clipMessage(text)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return clipMessage(string(body))
	}
	return ""
}

// agentReason says why an agent could not be asked.
func agentReason(err error, all context.Context, timeout time.Duration) string {
	var answered *agentError
	switch {
	case errors.As(err, &answered) && answered.code == http.StatusForbidden && strings.Contains(answered.message, "pods/proxy"):
		return "its agent could not be asked: forbidden: needs the right to get pods/proxy"
	case errors.As(err, &answered) && answered.code == http.StatusNotFound && strings.Contains(answered.message, "pods "):
		return "its agent could not be asked: its pod is gone"
	case errors.As(err, &answered):
		return "its agent could not be asked: " + answered.Error()
	case errors.Is(err, errViewTooLarge):
		return err.Error()
	case all.Err() != nil:
		return fmt.Sprintf("its agent was not heard: all agents together did not answer within %s", 10*timeout)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("its agent did not answer within %s", timeout)
	}
	return "its agent could not be asked: " + err.Error()
}
