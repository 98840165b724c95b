package repair

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Find returns the first element that a test takes; nil if there is none.
func Find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// BlockAt returns the block of a CIDR; nil if there is none.
func BlockAt(st *state.State, cidr string) *state.Block {
	return st.BlockOf(PrefixOf(state.Subject{CIDR: cidr}))
}

// AffinityNamed and HandleNamed return an object by its name; nil if there is none.
func AffinityNamed(st *state.State, name string) *blocks.Affinity {
	return Find(st.Affinities, func(a *blocks.Affinity) bool { return a.Name == name })
}

// HandleNamed returns the handle of an object's name; nil if there is none.
func HandleNamed(st *state.State, name string) *blocks.Handle {
	if h := Find(st.Handles, func(h **blocks.Handle) bool { return (*h).Name == name }); h != nil {
		return *h
	}
	return nil
}

// AffinityOf returns a host's affinity to a CIDR; nil if there is none.
func AffinityOf(st *state.State, cidr, node string) *blocks.Affinity {
	return Find(st.Affinities, func(a *blocks.Affinity) bool { return a.CIDR.String() == cidr && a.Owner.Node() == node })
}

// SecondaryPoolNamed returns a pool of Whereabouts', by namespace and name; nil if there is
// none.
func SecondaryPoolNamed(st *state.State, name string) *blocks.WhereaboutsPool {
	return Find(st.WhereaboutsPools, func(p *blocks.WhereaboutsPool) bool { return p.Key().String() == name })
}

// ReservationNamed is SecondaryPoolNamed for Whereabouts' reservations.
func ReservationNamed(st *state.State, name string) *blocks.WhereaboutsReservation {
	return Find(st.WhereaboutsReservations, func(r *blocks.WhereaboutsReservation) bool { return r.Key().String() == name })
}

// Object is what all kinds of objects have that a repair marks, or changes the state of.
type Object struct {
	*blocks.Meta
	Word   string // what messages call it
	marked bool   // deleted
}

// ObjectNamed returns an object; nil for those of other kinds, and if there is none of
// its name.
func ObjectNamed(s *blocks.Snapshot, r blocks.Resource, name string) *Object {
	switch r {
	case blocks.Blocks:
		if b := Find(s.Blocks, func(b *blocks.Block) bool { return b.Name == name }); b != nil {
			return &Object{&b.Meta, "block", b.SoftDeleted}
		}
	case blocks.Affinities:
		if a := Find(s.Affinities, func(a *blocks.Affinity) bool { return a.Name == name }); a != nil {
			return &Object{&a.Meta, "affinity", a.SoftDeleted}
		}
	case blocks.Handles:
		if h := Find(s.Handles, func(h **blocks.Handle) bool { return (*h).Name == name }); h != nil {
			return &Object{&(*h).Meta, "handle", (*h).SoftDeleted}
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
		return BlockAt(st, t.CIDR) == nil
	case state.KindAffinity:
		return AffinityOf(st, t.CIDR, t.Node) == nil && AffinityNamed(st, t.Name) == nil
	case state.KindHandle:
		return HandleNamed(st, t.Name) == nil
	case state.KindWhereaboutsReservation:
		return ReservationNamed(st, t.Name) == nil
	case state.KindIP:
		if t.Name != "" {
			return SecondaryPoolNamed(st, t.Name) == nil
		}
		addr, err := netip.ParseAddr(t.IP)
		if err != nil {
			return false
		}
		return !slices.ContainsFunc(st.IPBlocks, func(b *state.Block) bool { return b.CIDR.Contains(addr) })
	}
	return false
}

// PinOf is Pin for an object of a namespace, whose name then has both.
func PinOf(r blocks.Resource, namespace string, m blocks.Meta) ObjectRef {
	ref := Pin(r, m)
	ref.Name = namespace + "/" + m.Name
	return ref
}

// Pin names an object as it was read, for a write on the condition that it still is.
func Pin(r blocks.Resource, m blocks.Meta) ObjectRef {
	return ObjectRef{Resource: r, Name: m.Name, UID: m.UID(), ResourceVersion: m.ResourceVersion()}
}

// Stored is what is needed of an object that a journal holds.
type Stored struct {
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
		PodRef         string         `json:"podref"`
		Range          string         `json:"range"`
	} `json:"spec"`
}

// StoredObject reads an object that a journal holds; the zero value if it cannot be
// read.
func StoredObject(raw json.RawMessage) Stored {
	var s Stored
	if json.Unmarshal(raw, &s) != nil {
		return Stored{}
	}
	return s
}

// OwnAffinity returns the affinity of a block's owner to it; nil if there is none.
func OwnAffinity(st *state.State, b *state.Block) *blocks.Affinity {
	if b.Owner == (blocks.Owner{}) {
		return nil
	}
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner == b.Owner {
			return a
		}
	}
	return nil
}
