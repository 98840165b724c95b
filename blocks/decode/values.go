package decode

import (
	"encoding/json"
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// cidr decodes a CIDR as [blocks.ParseCIDR] does.
func (d *Decoder) cidr(r *parse.Reader) (netip.Prefix, bool) {
	p, ok := d.network(r)
	return p.Masked(), ok
}

// network decodes a CIDR as [blocks.ParseNetwork] does.
func (d *Decoder) network(r *parse.Reader) (netip.Prefix, bool) {
	s, ok := r.Bytes()
	if !ok {
		return netip.Prefix{}, false
	}
	p, ok := blocks.ParseNetwork(string(s))
	if !ok {
		r.Fault(parse.NotA("CIDR", s))
	}
	return p, ok
}

// labels returns a function that adds a label to an object's labels.
func (d *Decoder) labels(to *map[string]string) func(key, value []byte) {
	return func(key, value []byte) {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[d.str(key)] = d.str(value)
	}
}

// jsonList decodes what a pod or namespace requests: a JSON list of pools, by name or CIDR, or
// of addresses (cni-plugin pkg/k8s/k8s.go). An empty string requests none.
func (d *Decoder) jsonList(r *parse.Reader, value []byte, of string) []string {
	var names []string
	if len(value) > 0 && json.Unmarshal(value, &names) != nil {
		r.Fault(parse.NotA("JSON list of "+of, value))
		return nil
	}
	for i, n := range names {
		names[i] = d.str([]byte(n))
	}
	return names
}
