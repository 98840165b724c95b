package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestOlderGroupUnknown: if the resources of the older group cannot be listed, the newer
// group must not be read instead. A real API server cannot be made to refuse this for one
// group.
func TestOlderGroupUnknown(t *testing.T) {
	answers := map[string]string{
		"/apis": `{"kind":"APIGroupList","groups":[{"name":"crd.projectcalico.org","versions":[{"groupVersion":"crd.projectcalico.org/v1"}]},` +
			`{"name":"projectcalico.org","versions":[{"groupVersion":"projectcalico.org/v3"}]}]}`,
		"/apis/projectcalico.org/v3": `{"kind":"APIResourceList","resources":[{"name":"ipamblocks"},{"name":"ippools"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			body = `{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}`
		}
		_, _ = fmt.Fprint(w, body)
	}))
	defer server.Close()
	k, err := NewKubernetes(&rest.Config{Host: server.URL}, KubernetesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "discovering the resources of crd.projectcalico.org/v1") {
		t.Errorf("got %+v, %v", s, err)
	}
}
