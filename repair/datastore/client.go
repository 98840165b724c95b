package datastore

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

// client sends single requests to an API server.
type client struct{ rest *rest.RESTClient }

// maxAnswer limits the size of a response in bytes.
const maxAnswer = 64 << 20

// call is a request to the API server.
type call struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// absent reports whether an error says that an object does not exist.
func absent(err error, name string) bool {
	s := request.StatusOf(err)
	return s != nil && s.Code == http.StatusNotFound && s.Details != nil && s.Details.Name == path.Base(name)
}

// answer returns the error of a request as a [Response], if it is one.
func answer(err error) error {
	s := request.StatusOf(err)
	if s == nil {
		return err
	}
	return &Response{Err: err, Refused: s.Refused(), Exists: s.Code == http.StatusConflict, Busy: s.Code == http.StatusTooManyRequests, After: s.RetryAfter()}
}

// send sends a request once and returns the body of a successful response. A retry after a lost
// answer would hide that the first request may have been carried out.
func (c *client) send(ctx context.Context, r call) ([]byte, error) {
	req := c.rest.Verb(r.method).AbsPath(r.path).SetHeader("Accept", "application/json").MaxRetries(0)
	for name, values := range r.query {
		for _, v := range values {
			req.Param(name, v)
		}
	}
	if r.contentType != "" {
		req.SetHeader("Content-Type", r.contentType).Body(r.body)
	}
	answer, err := request.Stream(ctx, req, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller does
	}
	defer answer.Close()
	body, err := io.ReadAll(io.LimitReader(answer, maxAnswer+1))
	switch {
	case err != nil:
		return nil, request.WithoutURL(err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return body, nil
}
