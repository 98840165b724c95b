package testcluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
)

// Conditional wraps a transport to check writes of existing objects. A DELETE, PATCH or
// PUT fails the test unless it carries the UID and a resourceVersion that its sender has
// read, so that the API server can reject it.
func Conditional(tb testing.TB) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return &conditional{tb: tb, next: next, read: map[version]bool{}}
	}
}

// identity identifies a version of an object.
type identity struct{ UID, ResourceVersion string }

// version is an identity of the object at a path.
type version struct {
	path string
	identity
}

type conditional struct {
	tb   testing.TB
	next http.RoundTripper

	mu   sync.Mutex
	read map[version]bool
}

// RoundTrip checks a request, sends it, and records the object in the response.
func (c *conditional) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodDelete, http.MethodPatch, http.MethodPut:
		if err := c.check(r); err != nil {
			c.tb.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
	}
	resp, err := c.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	body, readErr := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{readErr}))
	var object struct {
		Metadata struct {
			identity
			Name string
		}
	}
	if resp.StatusCode < 300 && json.Unmarshal(body, &object) == nil && object.Metadata.UID != "" {
		path := r.URL.Path
		if r.Method == http.MethodPost {
			path += "/" + object.Metadata.Name
		}
		c.mu.Lock()
		c.read[version{path, object.Metadata.identity}] = true
		c.mu.Unlock()
	}
	return resp, nil
}

// failing returns the error with which the response body ended.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// check compares the condition of a write with the versions that were read.
func (c *conditional) check(r *http.Request) error {
	if r.Body == nil {
		return errors.New("it has no condition")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	on, err := conditionOf(r, body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case on.UID == "" || on.ResourceVersion == "":
		return fmt.Errorf("it is not conditional on UID and resourceVersion: %s", body)
	case !c.read[version{r.URL.Path, on}]:
		return fmt.Errorf("its sender never read the version that it is conditional on: %s", body)
	}
	return nil
}

// conditionOf returns the condition of a write.
func conditionOf(r *http.Request, body []byte) (identity, error) {
	if r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/json-patch+json" {
		var ops []struct {
			Op, Path string
			Value    any
		}
		if err := json.Unmarshal(body, &ops); err != nil {
			return identity{}, err
		}
		tests := map[string]string{}
		for _, op := range ops {
			if value, ok := op.Value.(string); ok && op.Op == "test" {
				tests[op.Path] = value
			}
		}
		return identity{tests["/metadata/uid"], tests["/metadata/resourceVersion"]}, nil
	}
	var object struct{ Metadata, Preconditions identity }
	if err := json.Unmarshal(body, &object); err != nil {
		return identity{}, err
	}
	if r.Method == http.MethodDelete {
		return object.Preconditions, nil
	}
	return object.Metadata, nil
}
