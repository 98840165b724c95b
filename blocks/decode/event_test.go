package decode

import (
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestSandboxEvents: only the kubelets' events about pods whose network they could not set up are
// kept, and a malformed one makes no reading incomplete.
func TestSandboxEvents(t *testing.T) {
	const about = `{"metadata":{"name":"web.1","namespace":"shop"},"involvedObject":{"kind":"Pod","namespace":"shop","name":"web"},"reason":"FailedCreatePodSandBox","message":"no address",`
	for object, want := range map[string]string{
		about + `"lastTimestamp":"2025-11-20T09:00:00Z","eventTime":null}`:                                         "2025-11-20T09:00:00Z",
		about + `"lastTimestamp":null,"eventTime":"2025-11-20T09:00:01.5Z"}`:                                       "2025-11-20T09:00:01.5Z",
		about + `"reason":"FailedMount"}`:                                                                          "",
		`{"metadata":{"name":"n"},"involvedObject":{"kind":"Node","name":"n1"},"reason":"FailedCreatePodSandBox"}`: "",
		`{"metadata":{"name":"n"},"involvedObject":5,"reason":7}`:                                                  "",
	} {
		s := NewSnapshot(decodeOne(t, sandboxEvents, object))
		if want == "" {
			if len(s.SandboxEvents) > 0 || !s.Complete() {
				t.Errorf("%s: kept %v, gaps %v", object, s.SandboxEvents, s.Gaps)
			}
			continue
		}
		if len(s.SandboxEvents) != 1 {
			t.Errorf("%s: not kept, gaps %v", object, s.Gaps)
			continue
		}
		if e := s.SandboxEvents[0]; e.Key() != (blocks.Key{Namespace: "shop", Name: "web.1"}) || e.Pod != "web" || e.Message != "no address" || e.Seen != at(want) {
			t.Errorf("%s: %+v", object, e)
		}
	}
}
