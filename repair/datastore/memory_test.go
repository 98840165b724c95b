package datastore_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// memory is an API server in memory, for fast tests of the conditions of writes. It
// applies patches with the API server's own library. Other behaviour is tested with a
// real API server.
type memory struct {
	t       *testing.T
	objects map[string]json.RawMessage // by path
	version int
	// reading is called before an object is read.
	reading func(path string)
	// before is called before a write with its number, from 1.
	before func(n int, path string)
	// lost reports whether the answer to a write is lost, and whether the write arrives.
	lost   func(n int) (lost, arrives bool)
	writes []carried
}

// carried is a write, and whether it was carried out.
type carried struct {
	what string
	done bool
}

// writer returns a writer to memory, checked by [testcluster.Conditional].
func (m *memory) writer(group testcluster.Group) *datastore.Writer {
	m.t.Helper()
	cfg := &rest.Config{Host: "http://memory.invalid"}
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return m })
	cfg.Wrap(testcluster.Conditional(m.t))
	k, err := datastore.New(cfg, string(group), datastore.Options{})
	must(m.t, err)
	return k.Impatient()
}

// put stores an object in a new version. A new object gets a new UID.
func (m *memory) put(path string, object map[string]any) json.RawMessage {
	m.version++
	meta := object["metadata"].(map[string]any)
	meta["resourceVersion"] = strconv.Itoa(m.version)
	if _, exists := m.objects[path]; !exists {
		meta["uid"] = fmt.Sprint("uid-", m.version)
		meta["managedFields"] = []any{map[string]any{"manager": "calico-audit"}}
	}
	text, err := json.Marshal(object)
	must(m.t, err)
	m.objects[path] = text
	return text
}

// get returns a stored object, or nil.
func (m *memory) get(path string) map[string]any {
	text, ok := m.objects[path]
	if !ok {
		return nil
	}
	var object map[string]any
	must(m.t, json.Unmarshal(text, &object))
	return object
}

// edit changes a stored object like another client.
func (m *memory) edit(path string, change func(object map[string]any)) {
	object := m.get(path)
	change(object)
	m.put(path, object)
}

func (m *memory) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if r.Method == http.MethodGet {
		if m.reading != nil {
			m.reading(r.URL.Path)
			m.reading = nil
		}
		return m.read(r.URL.Path), nil
	}
	if m.before != nil {
		m.before(len(m.writes)+1, r.URL.Path)
	}
	lost, arrives := false, true
	if m.lost != nil {
		lost, arrives = m.lost(len(m.writes) + 1)
	}
	code, answer := http.StatusGatewayTimeout, []byte(nil)
	if !lost || arrives {
		code, answer = m.write(r.Method, r.URL.Path, body)
	}
	m.writes = append(m.writes, carried{r.Method + " " + r.URL.Path, code < 300})
	switch {
	case lost:
		return nil, errDead
	case code >= 300:
		return refusal(code, r.URL.Path), nil
	}
	return response(code, string(answer)), nil
}

func refusal(code int, at string) *http.Response {
	return response(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"refused","details":{"name":%q}}`, code, path.Base(at)))
}

func (m *memory) read(at string) *http.Response {
	if object, ok := m.objects[at]; ok {
		return response(http.StatusOK, string(object))
	}
	if strings.Count(at, "/") > 4 && path.Base(at) != "pods" { // /apis/GROUP/VERSION/RESOURCE/NAME
		return refusal(http.StatusNotFound, at)
	}
	items := []json.RawMessage{}
	for p, object := range m.objects {
		if path.Dir(p) == at {
			items = append(items, object)
		}
	}
	list, err := json.Marshal(map[string]any{"items": items, "metadata": map[string]any{}})
	must(m.t, err)
	return response(http.StatusOK, string(list))
}

// write carries out a write and returns the status code.
func (m *memory) write(method, at string, body []byte) (int, []byte) {
	if method == http.MethodPost {
		var object map[string]any
		must(m.t, json.Unmarshal(body, &object))
		at += "/" + object["metadata"].(map[string]any)["name"].(string)
		if m.objects[at] != nil {
			return http.StatusConflict, nil
		}
		return http.StatusCreated, m.put(at, object)
	}
	if m.objects[at] == nil {
		return http.StatusNotFound, nil
	}
	if method == http.MethodDelete {
		return m.remove(at, body)
	}
	patch, err := jsonpatch.DecodePatch(body)
	must(m.t, err)
	after, err := patch.Apply(m.objects[at])
	if err != nil {
		return http.StatusUnprocessableEntity, nil
	}
	var object map[string]any
	must(m.t, json.Unmarshal(after, &object))
	return http.StatusOK, m.put(at, object)
}

func (m *memory) remove(at string, body []byte) (int, []byte) {
	var options struct{ Preconditions map[string]string }
	must(m.t, json.Unmarshal(body, &options))
	meta := m.get(at)["metadata"].(map[string]any)
	for field, value := range options.Preconditions {
		if meta[field] != value {
			return http.StatusConflict, nil
		}
	}
	delete(m.objects, at)
	return http.StatusOK, []byte(`{"kind":"Status","status":"Success"}`)
}
