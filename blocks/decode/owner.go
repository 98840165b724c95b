package decode

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// ownerRef is an entry of metadata.ownerReferences.
type ownerRef struct {
	version, kind, name, uid []byte
	controller               bool
}

// is reports whether the owner is of the given KubeVirt kind.
func (o ownerRef) is(kind string) bool {
	group, _, _ := strings.Cut(string(o.version), "/")
	return group == blocks.GroupKubeVirt && string(o.kind) == kind
}

// readOwners calls fn for each owner reference. Invalid references are ignored: an object
// without an owner gets more protection, not less.
func readOwners(r *parse.Reader, fn func(ownerRef)) {
	r.Quietly(func() {
		r.Array(func(int) {
			var o ownerRef
			r.Object(func(key []byte) {
				switch string(key) {
				case "apiVersion":
					o.version, _ = r.Bytes()
				case "kind":
					o.kind, _ = r.Bytes()
				case "name":
					o.name, _ = r.Bytes()
				case "uid":
					o.uid, _ = r.Bytes()
				case "controller":
					o.controller, _ = r.Boolean()
				}
			})
			fn(o)
		})
	})
}
