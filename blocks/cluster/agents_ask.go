package cluster

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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errViewTooLarge means that an agent answered more than a host view should have.
var errViewTooLarge = fmt.Errorf("its answer has more than %d MiB", maxAgentView>>20)

// askAgent gets the view of one agent. An agent must not send this program elsewhere
// with the user's credentials: no redirect is followed.
func (k *Kubernetes) askAgent(ctx context.Context, p *corev1.Pod, opts AgentOptions) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	name := p.Name + ":" + strconv.Itoa(agentPort(p))
	if scheme := cmp.Or(opts.Scheme, p.Annotations[AgentSchemeAnnotation]); strings.EqualFold(scheme, "https") {
		name = "https:" + name
	}
	path := []string{"/api/v1/namespaces", p.Namespace, "pods", name, "proxy", AgentPath}
	stream, err := answerOf(ctx, k.client.pods.Get().AbsPath(path...).SetHeader("Accept", "application/json").MaxRetries(0), nil)
	if err != nil {
		return nil, agentError(err)
	}
	defer func() { _ = stream.Close() }()
	var buf bytes.Buffer
	_, err = buf.ReadFrom(io.LimitReader(stream, maxAgentView+1))
	switch {
	case err != nil:
		return nil, plain(err)
	case buf.Len() > maxAgentView:
		return nil, errViewTooLarge
	}
	return buf.Bytes(), nil
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
	case all.Err() != nil:
		return fmt.Sprintf("its agent was not heard: all agents together did not answer within %s", 10*timeout)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("its agent did not answer within %s", timeout)
	}
	return "its agent could not be asked: " + err.Error()
}
