package repair

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// find returns the first element that a test takes; nil if there is none.
func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// blockAt returns the block of a CIDR; nil if there is none.
func blockAt(st *state.State, cidr string) *state.Block {
	p, err := netip.ParsePrefix(cidr)
	if b := find(st.IPBlocks, func(b **state.Block) bool { return err == nil && (*b).CIDR == p }); b != nil {
		return *b
	}
	return nil
}

// affinityNamed and handleNamed return an object by its name; nil if there is none.
func affinityNamed(st *state.State, name string) *blocks.Affinity {
	return find(st.Affinities, func(a *blocks.Affinity) bool { return a.Name == name })
}

func handleNamed(st *state.State, name string) *blocks.Handle {
	return find(st.Handles, func(h *blocks.Handle) bool { return h.Name == name })
}

// affinityOf returns a host's affinity to a CIDR; nil if there is none.
func affinityOf(st *state.State, cidr, node string) *blocks.Affinity {
	return find(st.Affinities, func(a *blocks.Affinity) bool { return a.CIDR.String() == cidr && a.Owner.Node() == node })
}

// object is what all kinds of objects have that a repair marks, or changes the state of.
type object struct {
	*blocks.Meta
	word   string // what messages call it
	marked bool   // deleted
}

// objectNamed returns an object; nil for those of other kinds, and if there is none of
// its name.
func objectNamed(s *blocks.Snapshot, r blocks.Resource, name string) *object {
	switch r {
	case blocks.Blocks:
		if b := find(s.Blocks, func(b *blocks.Block) bool { return b.Name == name }); b != nil {
			return &object{&b.Meta, "block", b.SoftDeleted}
		}
	case blocks.Affinities:
		if a := find(s.Affinities, func(a *blocks.Affinity) bool { return a.Name == name }); a != nil {
			return &object{&a.Meta, "affinity", a.SoftDeleted}
		}
	case blocks.Handles:
		if h := find(s.Handles, func(h *blocks.Handle) bool { return h.Name == name }); h != nil {
			return &object{&h.Meta, "handle", h.SoftDeleted}
		}
	default: // written at once
	}
	return nil
}

// TargetMissing reports whether the object that a step is about does not exist.
func (s *Step) TargetMissing(st *state.State) bool {
	t := s.Target
	switch t.Kind {
	case state.KindBlock:
		return blockAt(st, t.CIDR) == nil
	case state.KindAffinity:
		return affinityOf(st, t.CIDR, t.Node) == nil && affinityNamed(st, t.Name) == nil
	case state.KindHandle:
		return handleNamed(st, t.Name) == nil
	case state.KindIP:
		addr, err := netip.ParseAddr(t.IP)
		if err != nil {
			return false
		}
		return !slices.ContainsFunc(st.IPBlocks, func(b *state.Block) bool { return b.CIDR.Contains(addr) })
	}
	return false
}

func pin(r blocks.Resource, m blocks.Meta) ObjectRef {
	return ObjectRef{Resource: r, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// stored is what is needed of an object that a journal holds.
type stored struct {
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		CIDR           string         `json:"cidr"`
		Node           string         `json:"node"`
		State          string         `json:"state"`
		HandleID       string         `json:"handleID"`
		Block          map[string]int `json:"block"`
		StrictAffinity *bool          `json:"strictAffinity"`
		Affinity       *string        `json:"affinity"`
	} `json:"spec"`
}

// storedObject reads an object that a journal holds; the zero value if it cannot be
// read.
func storedObject(raw json.RawMessage) stored {
	var s stored
	if json.Unmarshal(raw, &s) != nil {
		return stored{}
	}
	return s
}
