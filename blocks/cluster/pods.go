package cluster

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

// Pods sends requests to pods through the API server. Its failures do not affect other
// requests.
type Pods struct {
	client   *apiClient
	pageSize int64
}

// Pods returns access to the pods of the cluster.
func (k *Kubernetes) Pods() *Pods { return &Pods{k.client.apart(), k.pageSize} }

// Pods returns access to the pods of the watched cluster.
func (w *Watch) Pods() *Pods { return &Pods{w.client.apart(), w.pageSize} }

// ServerTime converts a local time to the API server's time.
func (p *Pods) ServerTime(local time.Time) time.Time { return p.client.clock.At(local) }

// List calls found for each pod in a namespace (or, if that is empty, in all) that a label
// selector matches. Errors of the API server are [request.StatusError]s.
func (p *Pods) List(ctx context.Context, namespace, selector string, found func(*corev1.Pod)) error {
	path := "/api/v1/pods"
	if namespace != "" {
		path = "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods"
	}
	query := url.Values{"labelSelector": {selector}, "limit": {strconv.FormatInt(p.pageSize, 10)}}
	for {
		var page corev1.PodList
		err := p.client.get(ctx, path, query, "application/json", func(body io.Reader) error {
			page = corev1.PodList{}
			return json.NewDecoder(body).Decode(&page)
		})
		if err != nil {
			return err
		}
		for i := range page.Items {
			found(&page.Items[i])
		}
		if page.Continue == "" {
			return nil
		}
		query.Set("continue", page.Continue)
	}
}

// Get sends a request to a pod (NAME:PORT, or https:NAME:PORT) through the API server, and
// returns the response while it arrives. It requires the right to get pods/proxy. Redirects
// are not followed: a pod must not send this program elsewhere with the user's credentials.
// Errors of the API server and of the pod are [request.StatusError]s.
func (p *Pods) Get(ctx context.Context, namespace, name, path string, query url.Values) (io.ReadCloser, error) {
	r := p.client.pods.Get().AbsPath("/api/v1/namespaces", namespace, "pods", name, "proxy", path).SetHeader("Accept", "application/json").MaxRetries(0)
	for key, values := range query {
		r.Param(key, values[0])
	}
	return request.Stream(ctx, r, nil) //nolint:wrapcheck // the caller does
}
