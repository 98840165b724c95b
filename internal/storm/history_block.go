package storm

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// The parts of a stored block that the history reads: who has which address, and who
// wrote that.

// storedBlock holds the fields of a block that the history reads.
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

// manager returns the last writer of a field, because only the last writer owns it. Users
// of Calico's client without a [FaultProxy] are all named "Go-http-client"; in a storm
// that is only kube-controllers.
func manager(fields []managedFields, field string) string {
	var names []string
	for _, f := range fields {
		if strings.Contains(string(f.Fields), `"`+field+`"`) {
			names = append(names, f.Manager)
		}
	}
	return strings.Join(names, "+")
}

// use is the owner of an ordinal.
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
