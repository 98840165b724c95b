package storm

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// What the history reads of a stored block: who has which of its addresses, and who
// wrote that.

// storedBlock is what the history reads of a block.
type storedBlock struct {
	Metadata struct {
		ManagedFields []managedFields `json:"managedFields"`
	} `json:"metadata"`
	Spec struct {
		CIDR        netip.Prefix `json:"cidr"`
		Affinity    *string      `json:"affinity"`
		Allocations []*int       `json:"allocations"`
		Attributes  []struct {
			Handle    *string           `json:"handle_id"`
			Secondary map[string]string `json:"secondary"`
		} `json:"attributes"`
		Sequence uint64 `json:"sequenceNumber"`
		Deleted  bool   `json:"deleted"`
	} `json:"spec"`
}

type managedFields struct {
	Manager string          `json:"manager"`
	Fields  json.RawMessage `json:"fieldsV1"`
}

// manager is who wrote a field last: only then does a manager own it. Anyone who uses
// Calico's client without a [FaultProxy] is "Go-http-client": kube-controllers, in a
// storm.
func manager(fields []managedFields, field string) string {
	var names []string
	for _, f := range fields {
		if strings.Contains(string(f.Fields), `"`+field+`"`) {
			names = append(names, f.Manager)
		}
	}
	return strings.Join(names, "+")
}

// use is what an ordinal is allocated to.
type use struct{ handle, node string }

func (b *storedBlock) uses() map[netip.Addr]use {
	out := map[netip.Addr]use{}
	if b == nil {
		return out
	}
	addr := b.Spec.CIDR.Addr()
	for _, index := range b.Spec.Allocations {
		if index != nil {
			var u use
			if *index >= 0 && *index < len(b.Spec.Attributes) {
				a := b.Spec.Attributes[*index]
				if a.Handle != nil {
					u.handle = *a.Handle
				}
				u.node = a.Secondary["node"]
			}
			out[addr] = u
		}
		addr = addr.Next()
	}
	return out
}
