package repair

import (
	"encoding/json"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file find objects in a state by what identifies them.

// blockAt returns the block of a CIDR; nil if there is none.
func blockAt(st *state.State, cidr string) *state.Block {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil
	}
	for _, b := range st.IPBlocks {
		if b.CIDR == p {
			return b
		}
	}
	return nil
}

// affinityNamed returns an affinity by its object's name; nil if there is none.
func affinityNamed(st *state.State, name string) *blocks.Affinity {
	for i := range st.Affinities {
		if st.Affinities[i].Name == name {
			return &st.Affinities[i]
		}
	}
	return nil
}

// affinityOf returns a host's affinity to a CIDR; nil if there is none.
func affinityOf(st *state.State, cidr, node string) *blocks.Affinity {
	for i := range st.Affinities {
		if a := &st.Affinities[i]; a.CIDR.String() == cidr && a.Owner.Node() == node {
			return a
		}
	}
	return nil
}

// handleNamed returns a handle by its object's name; nil if there is none.
func handleNamed(st *state.State, name string) *blocks.Handle {
	for i := range st.Handles {
		if st.Handles[i].Name == name {
			return &st.Handles[i]
		}
	}
	return nil
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
		for i := range s.Blocks {
			if b := &s.Blocks[i]; b.Name == name {
				return &object{&b.Meta, "block", b.SoftDeleted}
			}
		}
	case blocks.Affinities:
		for i := range s.Affinities {
			if a := &s.Affinities[i]; a.Name == name {
				return &object{&a.Meta, "affinity", a.SoftDeleted}
			}
		}
	case blocks.Handles:
		for i := range s.Handles {
			if h := &s.Handles[i]; h.Name == name {
				return &object{&h.Meta, "handle", h.SoftDeleted}
			}
		}
	default: // written at once
	}
	return nil
}

// gone tells whether the object of a target does not exist.
func gone(st *state.State, t state.Subject) bool {
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
		for _, b := range st.IPBlocks {
			if b.CIDR.Contains(addr) {
				return false
			}
		}
		return true
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
