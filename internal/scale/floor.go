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

// floor lists every kind that a report reads and discards the data. It lists all kinds at
// once and uncompressed, each in one response, with nodes and pods in protobuf. No reader
// can be faster than the API server sends the data. floor returns the time and the number
// of bytes. query narrows the lists and may be empty.
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
