package source

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestStoryWithoutBlocks: a dump of a whole cluster from which the blocks were
// left out must not look like a cluster without blocks.
func TestStoryWithoutBlocks(t *testing.T) {
	const story = "../../examples/snapshots/story"
	files, err := filepath.Glob(filepath.Join(story, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("reading the example: %v, %v", files, err)
	}
	dir := t.TempDir()
	for _, f := range files {
		if filepath.Base(f) == "ipamblocks.yaml" {
			continue
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := ReadFiles([]string{dir}, FileOptions{Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if g, missing := s.Missing(blocks.Blocks); !missing || !strings.Contains(g.Reason, "no IPAMBlock in the files") {
		t.Errorf("blocks are not a gap: %v", s.Gaps)
	}
}

// TestOlderGroupUnknown: where the older group is served and cannot be asked
// what it holds, the newer one must not be read in its place. A server that
// refuses to list the resources of one group cannot be had of the real one.
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

func TestPeerAcceptsItsOwnAS(t *testing.T) {
	p := decodeOne(t, bgpPeers, objectNamed("tor", `"peerIP": "10.0.0.1", "asNumber": 64600, "numAllowedLocalASNumbers": 2`))
	noGaps(t, p)
	if all[blocks.BGPPeer](p)[0].AllowedLocalAS != 2 {
		t.Errorf("got %+v", all[blocks.BGPPeer](p)[0])
	}
}
