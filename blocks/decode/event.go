package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var sandboxEvents = describe(Kind{
	Resource: blocks.SandboxEvents, Names: []string{"Event"}, Core: true, version: "v1", Namespaced: true,
	Selector: "involvedObject.kind=Pod,reason=" + blocks.SandboxFailed,
}, descriptor[blocks.SandboxEvent]{
	json: (*Decoder).sandboxEvent,
	in:   func(s *blocks.Snapshot) *[]blocks.SandboxEvent { return &s.SandboxEvents },
})

// sandboxEvent decodes an Event. It drops events with another reason and events that are not about
// a pod.
func (d *Decoder) sandboxEvent(r *parse.Reader, e *blocks.SandboxEvent) bool {
	var kind, reason string
	r.Object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &e.Meta, metaHooks{noWritten: true})
		case "involvedObject":
			r.Object(r.Known(parse.Members{"kind": &kind, "namespace": &e.Namespace, "name": &e.Pod}))
		case "reason":
			reason = r.String()
		case "message":
			e.Message = r.String()
		case "lastTimestamp", "eventTime":
			if !r.Null() {
				e.Seen = e.Seen.Later(d.seenTime(r))
			}
		}
	})
	return reason == blocks.SandboxFailed && kind == "Pod" && d.whole(r, &e.Meta, anywhere)
}
