package source

import (
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// hostnameHashLabel is the label that Calico v3.31 and newer list a host's
// affinities by (libcalico-go backend/model/block_affinity.go,
// EnsureBlockAffinityLabels).
const hostnameHashLabel = "projectcalico.org/hostname-hash"

// affinity reads a BlockAffinity (libcalico-go lib/apis/v3/blockaffinity.go, and
// its namesake in the newer group).
func (d *decoder) affinity(r *jsonReader) {
	var (
		a                    = blocks.Affinity{Unlabelled: true}
		node, kind           string
		hasCIDR, hasNode     bool
		cidrOK, nodeOK, tyOK = false, false, true
	)
	found := r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &a.Meta, metaHooks{label: func(key, _ []byte) {
				if string(key) == hostnameHashLabel {
					a.Unlabelled = false
				}
			}})
		case "spec":
			r.object(func(key []byte) {
				if r.null() {
					return
				}
				switch string(key) {
				case "cidr":
					hasCIDR = true
					a.CIDR, cidrOK = d.cidr(r)
				case "node":
					hasNode = true
					var s []byte
					s, nodeOK = r.str()
					node = d.str(s)
				case "type":
					var s []byte
					s, tyOK = r.str()
					kind = d.str(s)
				case "state":
					a.State = blocks.AffinityState(d.text(r))
				case "deleted":
					a.SoftDeleted = flexibleBool(r)
				}
			})
		}
	})
	if r.err != nil {
		return
	}
	if found && !hasCIDR {
		r.faultAt("spec.cidr", "is missing")
	}
	if found && !hasNode {
		r.faultAt("spec.node", "is missing")
	}
	if kind == "" {
		kind = string(blocks.HostOwner)
	}
	a.Owner = blocks.Owner{Kind: blocks.OwnerKind(kind), Name: node}
	checkName(r, &a.Meta)
	if len(r.faults) == 0 {
		d.out.affinities = append(d.out.affinities, a)
		return
	}
	g := d.gap(blocks.Affinities, &a.Meta, r.faults[0])
	if g.OwnerKnown = nodeOK && tyOK; g.OwnerKnown {
		g.Owner = a.Owner
	}
	if g.Prefix = a.CIDR; !cidrOK && nodeOK {
		if cidr, ok := strings.CutPrefix(a.Name, node+"-"); ok {
			g.Prefix = prefixFromName(cidr)
		}
	}
}

// flexibleBool reads a boolean that is a text in the older API group
// (libcalico-go backend/k8s/resources/ipam_affinity.go, toV1).
func flexibleBool(r *jsonReader) bool {
	if r.peek() != '"' {
		v, _ := r.boolean()
		return v
	}
	s, ok := r.str()
	if !ok || len(s) == 0 {
		return false
	}
	v, err := strconv.ParseBool(string(s))
	if err != nil {
		r.fault(notA("boolean", s))
	}
	return v
}

// handle reads an IPAMHandle (libcalico-go lib/apis/v3/ipam_handle.go). A count
// that is none is left out, as a gap of its own.
func (d *decoder) handle(r *jsonReader) {
	var (
		h     blocks.Handle
		hasID bool
	)
	found := r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &h.Meta, metaHooks{})
		case "spec":
			r.object(func(key []byte) {
				switch string(key) {
				case "handleID":
					if hasID = !r.null(); hasID {
						h.ID = d.text(r)
					}
				case "block":
					h.Blocks = d.handleCounts(r)
				case "deleted":
					h.SoftDeleted = flexibleBool(r)
				}
			})
		}
	})
	if r.err != nil {
		return
	}
	if found && !hasID {
		r.faultAt("spec.handleID", "is missing")
	}
	checkName(r, &h.Meta)
	if f, ok := faultOutside(r.faults, "spec.block"); ok {
		d.gap(blocks.Handles, &h.Meta, f)
		return
	}
	d.gapPerFault(blocks.Handles, h.Name, r.faults)
	d.out.handles = append(d.out.handles, h)
}

// faultOutside returns the first fault that does not merely concern an entry of
// the given list or map.
func faultOutside(faults []fault, list string) (fault, bool) {
	for _, f := range faults {
		rest, inside := strings.CutPrefix(f.field, list)
		if !inside || rest == "" || rest[0] != '[' && rest[0] != '.' {
			return f, true
		}
	}
	return fault{}, false
}

// handleCounts reads a handle's counts by block.
func (d *decoder) handleCounts(r *jsonReader) []blocks.HandleCount {
	var out []blocks.HandleCount
	r.object(func(key []byte) {
		p, ok := parseCIDR(string(key))
		if !ok {
			r.fault(notA("CIDR", key))
			return
		}
		if n, ok := r.int(); ok {
			out = append(out, blocks.HandleCount{CIDR: p, Count: int(n)})
		}
	})
	slices.SortStableFunc(out, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	return out
}
