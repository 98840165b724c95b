package decode

import (
	"encoding/json"

	"github.com/calico-audit/calico-audit/blocks"
)

var namespaces = describe(Kind{
	Resource: blocks.Namespaces, Names: []string{"Namespace"}, Core: true,
	keeps: object("", 0, metaMask(roleNamespace, true, allLabels,
		annotations(map[string]role{annotationPoolsV4: rolePoolList, annotationPoolsV6: rolePoolList}))),
}, column[blocks.Namespace]{
	json: (*Decoder).namespace,
	in:   func(s *blocks.Snapshot) *[]blocks.Namespace { return &s.Namespaces },
})

// namespaceBuilder makes a namespace out of its fields.
type namespaceBuilder struct {
	d      *Decoder
	ns     blocks.Namespace
	faults []fault
}

func (b *namespaceBuilder) label(key, value []byte) {
	if b.ns.Labels == nil {
		b.ns.Labels = map[string]string{}
	}
	b.ns.Labels[b.d.str(key)] = b.d.str(value)
}

func (b *namespaceBuilder) annotation(key, value []byte) {
	var into *[]string
	switch string(key) {
	case annotationPoolsV4:
		into = &b.ns.PoolsV4
	case annotationPoolsV6:
		into = &b.ns.PoolsV6
	default:
		return
	}
	names, ok := b.d.poolNames(value)
	if !ok {
		b.faults = append(b.faults, fault{"metadata.annotations[" + string(key) + "]", NotA("JSON list of pools", value)})
	}
	*into = names
}

// finish returns the namespace.
func (b *namespaceBuilder) finish() blocks.Namespace {
	b.d.gapPerFault(&b.ns.Meta, b.faults)
	return b.ns
}

func (d *Decoder) namespace(r *JSONReader) (blocks.Namespace, bool) {
	b := namespaceBuilder{d: d}
	found := d.object(r, &b.ns.Meta, metaHooks{label: b.label, annotation: b.annotation}, nil, nil)
	if !d.named(r, &b.ns.Meta, found) {
		return b.ns, false
	}
	b.faults = append(b.faults, r.Faults...)
	return b.finish(), true
}

// poolNames reads the pools that a pod or namespace asks for: a JSON list of
// names and CIDRs (cni-plugin pkg/k8s/k8s.go). An empty text asks for none.
func (d *Decoder) poolNames(value []byte) ([]string, bool) {
	if len(value) == 0 {
		return nil, true
	}
	var names []string
	if err := json.Unmarshal(value, &names); err != nil {
		return nil, false
	}
	for i, n := range names {
		names[i] = d.str([]byte(n))
	}
	return names, true
}
