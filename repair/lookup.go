package repair

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Find returns the first element that satisfies a predicate, or nil.
func Find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// BlockAt returns the block of a CIDR, or nil.
func BlockAt(st *state.State, cidr string) *state.Block {
	return st.BlockOf(PrefixOf(state.Subject{CIDR: cidr}))
}

// AffinityNamed returns the affinity with a name, or nil.
func AffinityNamed(st *state.State, name string) *blocks.Affinity {
	return Find(st.Affinities, func(a *blocks.Affinity) bool { return a.Name == name })
}

// HandleNamed returns the handle object with a name, or nil.
func HandleNamed(st *state.State, name string) *blocks.Handle {
	if h := Find(st.Handles, func(h **blocks.Handle) bool { return (*h).Name == name }); h != nil {
		return *h
	}
	return nil
}

// AffinityOf returns a host's affinity to a CIDR, or nil.
func AffinityOf(st *state.State, cidr, node string) *blocks.Affinity {
	return Find(st.Affinities, func(a *blocks.Affinity) bool { return a.CIDR.String() == cidr && a.Owner.Node() == node })
}

// SecondaryPoolNamed returns a Whereabouts pool by "NAMESPACE/NAME", or nil.
func SecondaryPoolNamed(st *state.State, name string) *blocks.WhereaboutsPool {
	return Find(st.WhereaboutsPools, func(p *blocks.WhereaboutsPool) bool { return p.Key().String() == name })
}

// ReservationNamed returns a Whereabouts reservation by "NAMESPACE/NAME", or nil.
func ReservationNamed(st *state.State, name string) *blocks.WhereaboutsReservation {
	return Find(st.WhereaboutsReservations, func(r *blocks.WhereaboutsReservation) bool { return r.Key().String() == name })
}

// Object holds the common fields of the kinds of objects that a repair marks deleted or
// changes the state of.
type Object struct {
	*blocks.Meta
	Word   string // name of the kind in messages
	marked bool   // marked deleted
}

// ObjectNamed returns a block, affinity or handle by name, or nil. It returns nil for
// other kinds.
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
	default: // changed in a single write
	}
	return nil
}

// TargetMissing reports whether the step's target does not exist.
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

// PinOf is Pin for a namespaced object. The reference's name is "NAMESPACE/NAME".
func PinOf(r blocks.Resource, namespace string, m blocks.Meta) ObjectRef {
	ref := Pin(r, m)
	ref.Name = namespace + "/" + m.Name
	return ref
}

// Pin returns a reference to an object in the version that was read, as the condition of
// a write.
func Pin(r blocks.Resource, m blocks.Meta) ObjectRef {
	return ObjectRef{Resource: r, Name: m.Name, UID: m.UID(), ResourceVersion: m.ResourceVersion()}
}

// Stored holds the fields that are read from an object in a journal.
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
		SequenceNumber *uint64        `json:"sequenceNumber"`
		StrictAffinity *bool          `json:"strictAffinity"`
		Affinity       *string        `json:"affinity"`
		PodRef         string         `json:"podref"`
		Range          string         `json:"range"`
		Deleted        any            `json:"deleted"` // a text in affinities of the older API group
	} `json:"spec"`
}

// Marked reports whether the object is marked deleted.
func (s *Stored) Marked() bool { return fmt.Sprint(s.Spec.Deleted) == "true" }

// StoredObject parses an object in a journal. It returns the zero value if the object
// cannot be parsed.
func StoredObject(raw json.RawMessage) Stored {
	var s Stored
	if json.Unmarshal(raw, &s) != nil {
		return Stored{}
	}
	return s
}

// OwnAffinity returns the affinity of a block's owner to the block, or nil.
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
