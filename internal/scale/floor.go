package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// floor lists all that a report reads, each kind in one answer, all kinds at once,
// nodes and pods in protobuf, uncompressed, and drops every byte: no reader of it all
// can be faster than the API server is at telling it. It returns the time and how
// many bytes there were. A query narrows the lists; it may be empty.
func floor(ctx context.Context, cfg *rest.Config, query string) (time.Duration, int64, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return 0, 0, err
	}
	defer client.CloseIdleConnections()
	var total atomic.Int64
	began := time.Now()
	lists, ctx := errgroup.WithContext(ctx)
	for _, r := range append(testcluster.CRDv1.Resources(), testcluster.Core...) {
		path, accept := "/apis/"+r.Group+"/"+r.Version+"/"+r.Resource, "application/json"
		if r.Group == "" {
			path, accept = "/api/v1/"+r.Resource, "application/vnd.kubernetes.protobuf"
		}
		lists.Go(func() error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+path+query, nil)
			if err != nil {
				return err
			}
			request.Header.Set("Accept", accept)
			answer, err := client.Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("listing %s: %s", r.Resource, answer.Status)
			}
			n, err := io.Copy(io.Discard, answer.Body)
			total.Add(n)
			return err
		})
	}
	err = lists.Wait()
	return time.Since(began), total.Load(), err
}
