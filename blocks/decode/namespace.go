package decode

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var namespaces = describe(Kind{
	Resource: blocks.Namespaces, Names: []string{"Namespace"}, Core: true, Lasts: "kube-system",
	Absent: func(s *blocks.Snapshot) string {
		if why := needNamespaces(s); why != "" {
			return "no Namespace in the files" + why
		}
		return ""
	},
	LeftOut: func(s *blocks.Snapshot) string {
		if name, out := blocks.NamespaceLeftOut(s); out && needNamespaces(s) != "" {
			return fmt.Sprintf("the files hold pods of namespace %q, but not the namespace%s", name, needNamespaces(s))
		}
		return ""
	},
	keeps: parse.Object("", 0, keep.Meta(keep.Namespace, true, keep.AllLabels,
		keep.Annotations(map[string]keep.Class{annotationPoolsV4: keep.PoolList, annotationPoolsV6: keep.PoolList}))),
}, descriptor[blocks.Namespace]{
	json: (*Decoder).namespace,
	in:   func(s *blocks.Snapshot) *[]blocks.Namespace { return &s.Namespaces },
})

// needNamespaces explains why namespaces are needed, as the end of a sentence; "" if they are not.
func needNamespaces(s *blocks.Snapshot) string {
	inFamily := map[blocks.Family]int{}
	for i := range s.Pools {
		if inFamily[blocks.FamilyOf(s.Pools[i].CIDR.Addr())]++; s.Pools[i].NamespaceSelector != "" {
			return ", but a pool selects namespaces by label"
		}
	}
	if max(inFamily[blocks.IPv4], inFamily[blocks.IPv6]) > 1 {
		return ", so it is not known which pools namespaces ask for by annotation"
	}
	if i := slices.IndexFunc(s.Workloads, (*blocks.Workload).Waiting); i >= 0 {
		return ", but pod " + s.Workloads[i].FullName() + " waits, and its namespace may ask for a pool"
	}
	return ""
}

func (d *Decoder) namespace(r *parse.Reader, ns *blocks.Namespace) bool {
	d.object(r, &ns.Meta, metaHooks{label: d.labels(&ns.Labels), annotation: func(key, value []byte) {
		switch string(key) {
		case annotationPoolsV4:
			ns.PoolsV4 = d.jsonList(r, value, "pools")
		case annotationPoolsV6:
			ns.PoolsV6 = d.jsonList(r, value, "pools")
		}
	}}, nil, nil)
	return d.whole(r, &ns.Meta, anywhere)
}
