package audit

import (
	"cmp"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Mark says what is out of the ordinary about an address; marks are added up.
type Mark int8

// The marks of an address.
const (
	// MarkBorrowed: it is used on another node than its block's owner.
	MarkBorrowed Mark = 1 << iota
	// MarkLeaked: a finding says that nothing owns it.
	MarkLeaked
	// MarkCooling: it was released, and waits out its cooldown.
	MarkCooling
)

// AddressUse says what one allocated address is in use for.
type AddressUse struct {
	// Ordinal is the place of the address in its block, from 0.
	Ordinal int           `json:"o"`
	Kind    state.UseKind `json:"k,omitempty"`
	Marks   Mark          `json:"m,omitempty"`
	// Namespace and Name are those of the pod that holds the address or, where none
	// is seen, of the pod or the virtual machine that the allocation names. For a
	// service the name alone is set, as Calico writes it ("NAMESPACE/NAME"), and for a
	// tunnel its type.
	Namespace string `json:"s,omitempty"`
	Name      string `json:"n,omitempty"`
	// Node is the node that uses the address, as far as is known.
	Node string `json:"w,omitempty"`
	// Handle is the ID of the handle; empty where none was stored.
	Handle string `json:"h,omitempty"`
}

// Pinned reports whether the address cannot move to another block by restarting what
// uses it: a tunnel's, a service's, a virtual machine's, or one that Windows keeps.
func (u *AddressUse) Pinned() bool {
	return u.Kind != state.UseUnknown && u.Kind != state.UsePod && u.Kind != state.UseCooling
}

// Usage says, of each block of a report, what each allocated address is in use for,
// by ordinal. It is made for pages, which show single addresses.
type Usage [][]AddressUse

// NewUsage makes the Usage of a state. r are the findings about it, which say what
// is leaked.
func NewUsage(st *state.State, r *Result) Usage {
	u := make(Usage, len(st.IPBlocks))
	leaked := map[string]bool{}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Check == "ip/leaked" {
			leaked[f.Subject.IP] = true
		}
	}
	borrowed := map[state.AllocationRef]*state.Borrow{}
	for _, br := range st.Borrows {
		if i, ok := br.Block.Ordinal(br.Addr); ok {
			borrowed[state.AllocationRef{Block: br.Block, Ordinal: i}] = br
		}
	}
	for n, b := range st.IPBlocks {
		u[n] = make([]AddressUse, 0, b.Used)
		for i, o := range b.Ordinals {
			if o == blocks.Free {
				continue
			}
			ref := state.AllocationRef{Block: b, Ordinal: i}
			x := addressUse(st, ref)
			if br := borrowed[ref]; br != nil {
				x.Marks, x.Node = x.Marks|MarkBorrowed, br.User
			}
			if len(leaked) > 0 && leaked[ref.Addr().String()] {
				x.Marks |= MarkLeaked
			}
			u[n] = append(u[n], x)
		}
	}
	return u
}

// addressUse says what an allocated address is in use for, without its marks of
// borrowed and leaked.
func addressUse(st *state.State, r state.AllocationRef) AddressUse {
	attr := r.Attributes()
	if attr == nil {
		return AddressUse{Ordinal: r.Ordinal}
	}
	x := AddressUse{Ordinal: r.Ordinal, Node: attr.Node, Handle: attr.Handle}
	x.Kind = state.UseKindOf(r.Block, attr)
	switch x.Kind {
	case state.UseCooling:
		x.Kind, x.Marks = state.UseUnknown, x.Marks|MarkCooling
	case state.UseTunnel:
		x.Name, x.Node = attr.TunnelOf()
	case state.UseService:
		x.Name = attr.Extras().Service
	case state.UseVM:
		x.Namespace, x.Name, _ = attr.VMOf()
	case state.UsePod:
		x.Namespace, x.Name = attr.Namespace, attr.Pod
	case state.UseUnknown, state.UseWindows:
	}
	if w := st.LiveUser(r.Addr(), attr); w != nil {
		switch x.Kind {
		case state.UsePod, state.UseUnknown:
			x.Kind, x.Namespace, x.Name, x.Node = state.UsePod, w.Namespace, w.Name, cmp.Or(w.Node, x.Node)
		case state.UseVM:
			x.Node = cmp.Or(w.Node, x.Node)
		case state.UseTunnel, state.UseService, state.UseWindows, state.UseCooling:
		}
	}
	return x
}

// Block returns what the addresses of one block are in use for, by ordinal; i is
// the block's place in the report. Nil where that is not known.
func (u Usage) Block(i int) []AddressUse {
	if i < 0 || i >= len(u) {
		return nil
	}
	return u[i]
}

// of returns the Usage of some of the blocks.
func (u Usage) of(indexes []int) Usage {
	out := make(Usage, len(indexes))
	for i, n := range indexes {
		out[i] = u.Block(n)
	}
	return out
}
