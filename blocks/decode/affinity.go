package decode

import (
	"cmp"
	"strconv"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var affinities = describe(Kind{
	Resource: blocks.Affinities, Names: []string{apiv3.KindBlockAffinity},
	Absent: always("no BlockAffinity in the files"), always: []string{"state"}, Record: true,
	keeps: keep.CalicoObject(keep.AffinityName,
		parse.Value("cidr", 0, keep.Addresses), parse.Value("node", 0, keep.Node), parse.Value("type", 0, keep.Word),
		parse.Value("state", 0, keep.Word), parse.Value("deleted", 0, keep.Bool)),
}, descriptor[blocks.Affinity]{
	json: (*Decoder).affinity,
	in:   func(s *blocks.Snapshot) *[]blocks.Affinity { return &s.Affinities },
})

// affinity decodes a BlockAffinity (libcalico-go lib/apis/v3/blockaffinity.go, and the type
// of the same name in the newer group).
func (d *Decoder) affinity(r *parse.Reader, a *blocks.Affinity) bool {
	var (
		node, kind, labelled string
		hasCIDR, hasNode     bool
		cidrOK, nodeOK, tyOK = false, false, true
	)
	a.Unlabelled = true
	// Calico v3.31 and newer list affinities by these labels (libcalico-go
	// backend/model/block_affinity.go, EnsureBlockAffinityLabels).
	hooks := metaHooks{label: func(key, value []byte) {
		switch string(key) {
		case apiv3.LabelHostnameHash:
			a.Unlabelled = false
		case apiv3.LabelAffinityType:
			labelled = d.str(value)
		}
	}}
	found := d.object(r, &a.Meta, hooks, func(key []byte) {
		if r.Null() {
			return
		}
		var s []byte
		switch string(key) {
		case "cidr":
			hasCIDR = true
			a.CIDR, cidrOK = d.cidr(r)
		case "node":
			hasNode = true
			s, nodeOK = r.Bytes()
			node = d.str(s)
		case "type":
			s, tyOK = r.Bytes()
			kind = d.str(s)
		case "state":
			a.State = blocks.AffinityState(d.text(r))
		case "deleted":
			a.SoftDeleted = flexibleBool(r)
		}
	}, nil)
	if r.Err() != nil {
		return false
	}
	if found && !hasCIDR {
		r.FaultAt("spec.cidr", blocks.FieldMissing)
	}
	if found && !hasNode {
		r.FaultAt("spec.node", blocks.FieldMissing)
	}
	a.Owner = blocks.Owner{Kind: cmp.Or(blocks.OwnerKind(kind), blocks.OwnerKind(labelled), blocks.HostOwner), Name: node}
	checkName(r, &a.Meta)
	if len(r.Faults) == 0 {
		return true
	}
	g := d.gap(&a.Meta, r.Faults[0])
	if g.OwnerKnown = nodeOK && tyOK; g.OwnerKnown {
		g.Owner = a.Owner
	}
	if g.Prefix = a.CIDR; !cidrOK && nodeOK {
		if cidr, ok := strings.CutPrefix(a.Name, node+"-"); ok {
			g.Prefix = blocks.PrefixOfName(cidr)
		}
	}
	return false
}

// flexibleBool parses a boolean, which the older API group stores as a string (libcalico-go
// backend/k8s/resources/ipam_affinity.go, toV1).
func flexibleBool(r *parse.Reader) bool {
	if r.Peek() != '"' {
		v, _ := r.Boolean()
		return v
	}
	s, ok := r.Bytes()
	if !ok || len(s) == 0 {
		return false
	}
	v, err := strconv.ParseBool(string(s))
	if err != nil {
		r.Fault(parse.NotA("boolean", s))
	}
	return v
}
