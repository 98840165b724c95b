package datastore_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestStateBackWithoutBlock plays a block that disappears just after its affinity got its
// state back, and an affinity that can then no longer be written. The error must describe
// the affinity as stored.
func TestStateBackWithoutBlock(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	block := blocks.BlockName(empty)
	writes := 0
	k := s.answering(func(r *http.Request) *http.Response {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/"+block) {
			s.edit(s.path(blocks.Blocks, block), func(o map[string]any) { o["metadata"].(map[string]any)["resourceVersion"] = "999999" })
			return nil
		}
		if r.Method == http.MethodPatch {
			if writes++; writes == 2 {
				delete(s.objects, s.path(blocks.Blocks, block)) // Calico's collector releases it at that moment
			}
			if writes > 2 {
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)))}
			}
		}
		return nil
	})
	a := s.affinityRef("n1", empty)
	err := k.ReleaseBlock(t.Context(), s.blockRef(empty), &a, nil)
	stored := string(s.objects[s.path(blocks.Affinities, a.Name)])
	if !strings.Contains(stored, `"state":"confirmed"`) || err == nil ||
		!strings.Contains(err.Error(), `is left "confirmed", and another client released its block meanwhile`) || strings.Contains(err.Error(), "left pendingDeletion") {
		t.Errorf("%v\nstored: %s", err, stored)
	}
}
