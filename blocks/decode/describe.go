package decode

import (
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// describe returns a kind, completed with the functions that depend on its record type.
func describe[T any, P record[T]](k Kind, c descriptor[T]) *Kind {
	k.Single, k.keepsOthers = c.put != nil, c.others != nil
	k.none = func() records { return &list[T, P]{descriptor: &c} }
	k.store = func() storedRecords { return &store[T, P]{base: list[T, P]{descriptor: &c}} }
	k.JSON = func(d *Decoder, r *parse.Reader) {
		d.inNamespace = ""
		l := d.Out.records.(*list[T, P])
		if o := new(T); c.json(d, r, o) {
			l.all = append(l.all, o)
		}
	}
	return &k
}
