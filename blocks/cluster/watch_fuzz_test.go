package cluster

import (
	"bytes"
	"testing"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// FuzzWatchEvents reads arbitrary streams as watches: every event has a type and an object
// for decoders, or the stream is an error.
func FuzzWatchEvents(f *testing.F) {
	f.Add([]byte(`{"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {"cidr": "10.0.0.0/26"}}}`))
	f.Add([]byte(`{"type": "ERROR", "object": {"code": 410}}`))
	f.Add([]byte("\x00\x00\x00\x1d\x0a\x05ADDED\x12\x14\x0a\x12k8s\x00\x12\x0c\x0a\x0a\x0a\x01a\x1a\x02nsx\x013"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		events := newEventReader(bytes.NewReader(stream))
		for {
			e, err := events.next()
			if err != nil {
				break
			}
			for _, k := range decode.Kinds {
				p, failed := e.decode(k, decode.GroupCRD, &decode.SharedStrings{})
				if failed == nil && p.Len() == 1 {
					if key, _ := p.At(0); key.Name != e.meta.Name {
						t.Errorf("%s %q is called %q", k.Resource, key.Name, e.meta.Name)
					}
				}
			}
		}
	})
}
