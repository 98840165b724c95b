package audit

import (
	"cmp"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Mark is a set of flags for unusual addresses.
type Mark int8

// The flags of an address.
const (
	// MarkBorrowed: a node other than the block's owner uses it.
	MarkBorrowed Mark = 1 << iota
	// MarkLeaked: a finding reports it as leaked.
	MarkLeaked
	// MarkCooling: it was released and is in its cooldown.
	MarkCooling
)

// AddressUse describes the use of one allocated address.
type AddressUse struct {
	// Ordinal is the position of the address in its block, from 0.
	Ordinal int           `json:"o"`
	Kind    state.UseKind `json:"k,omitempty"`
	Marks   Mark          `json:"m,omitempty"`
	// Namespace and Name identify the pod that uses the address. If no pod is seen with it,
	// they are the pod or virtual machine recorded in the block. A service has only Name,
	// as Calico writes it ("NAMESPACE/NAME"); a tunnel has only its type as Name.
	Namespace string `json:"s,omitempty"`
	Name      string `json:"n,omitempty"`
	// Node is the node that uses the address; empty if unknown.
	Node string `json:"w,omitempty"`
	// Handle is the recorded handle ID; empty if there is none.
	Handle string `json:"h,omitempty"`
}

// Pinned reports whether a restart of the user cannot move the address to another block:
// tunnels, services, virtual machines, and addresses that Windows reserves.
func (u *AddressUse) Pinned() bool {
	return u.Kind != state.UseUnknown && u.Kind != state.UsePod && u.Kind != state.UseCooling
}

// Usage describes the allocated addresses of each block of a report, by ordinal. Only
// outputs that show single addresses need it.
type Usage [][]AddressUse

// NewUsage builds the Usage of a state. Findings of the check ip/leaked in r mark leaked
// addresses.
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

// addressUse describes an allocated address, except for MarkBorrowed and MarkLeaked.
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

// Block returns the used addresses of the block at index i of the report, by ordinal; nil
// if unknown.
func (u Usage) Block(i int) []AddressUse {
	if i < 0 || i >= len(u) {
		return nil
	}
	return u[i]
}

// of returns the Usage of the blocks at the given indexes.
func (u Usage) of(indexes []int) Usage {
	out := make(Usage, len(indexes))
	for i, n := range indexes {
		out[i] = u.Block(n)
	}
	return out
}
