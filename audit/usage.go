package audit

import (
	"cmp"
	"encoding/json"
	"fmt"

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
	Ordinal int
	Kind    state.UseKind
	// Namespace and Name are those of the pod that holds the address or, where none
	// is seen, of the pod or the virtual machine that the allocation names. For a
	// service the name alone is set, as Calico writes it ("NAMESPACE/NAME"), and for a
	// tunnel its type.
	Namespace, Name string
	// Node is the node that uses the address, as far as is known.
	Node string
	// Handle is the ID of the handle; empty where none was stored.
	Handle string
	Marks  Mark
}

// Usage says, of the blocks of a report, what each allocated address is in use for.
// It is made for pages that show single addresses of very large clusters: as data it
// is a list per field with an entry per address, which takes a quarter of what
// objects would and compresses well. [Usage.Block] puts the entries together.
type Usage struct {
	// Texts are the texts that repeat: namespaces, nodes, types of tunnel. The first
	// is empty.
	Texts []string `json:"texts"`
	// Counts has, per block in the order of the report's, its number of entries in
	// the lists below, in which the blocks follow each other.
	Counts   []int           `json:"counts"`
	Ordinals []int           `json:"ordinals"`
	Kinds    []state.UseKind `json:"kinds"`
	Marks    []Mark          `json:"marks"`
	// Namespaces and Nodes point into Texts.
	Namespaces []int    `json:"namespaces"`
	Nodes      []int    `json:"nodes"`
	Names      []string `json:"names"`
	Handles    []string `json:"handles"`

	starts []int // where each block's entries begin; nil while the lists do not go together
}

// NewUsage makes the Usage of a state. r are the findings about it, which say what
// is leaked.
func NewUsage(st *state.State, r *Result) *Usage {
	u := &Usage{Texts: []string{""}}
	texts := map[string]int{"": 0}
	intern := func(s string) int {
		i, ok := texts[s]
		if !ok {
			i = len(u.Texts)
			texts[s], u.Texts = i, append(u.Texts, s)
		}
		return i
	}
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
	for _, b := range st.IPBlocks {
		before := len(u.Ordinals)
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
			u.Ordinals, u.Kinds, u.Marks = append(u.Ordinals, i), append(u.Kinds, x.Kind), append(u.Marks, x.Marks)
			u.Namespaces, u.Nodes = append(u.Namespaces, intern(x.Namespace)), append(u.Nodes, intern(x.Node))
			u.Names, u.Handles = append(u.Names, x.Name), append(u.Handles, x.Handle)
		}
		u.Counts = append(u.Counts, len(u.Ordinals)-before)
	}
	u.index()
	return u
}

// addressUse says what an allocated address is in use for, without its marks of
// borrowed and leaked.
func addressUse(st *state.State, r state.AllocationRef) AddressUse {
	attr := r.Attributes()
	if attr == nil {
		return AddressUse{}
	}
	x := AddressUse{Node: attr.Node, Handle: attr.Handle}
	x.Kind = state.KindOf(r.Block, attr)
	switch x.Kind {
	case state.UseCooling:
		x.Kind, x.Marks = state.UseUnknown, x.Marks|MarkCooling
	case state.UseTunnel:
		x.Name, x.Node = attr.TunnelOf()
	case state.UseService:
		x.Name = attr.Service
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
// the block's place in the report. Nil where the lists do not go together, as in
// data that was damaged.
func (u *Usage) Block(i int) []AddressUse {
	if u == nil || u.starts == nil || i < 0 || i >= len(u.Counts) {
		return nil
	}
	out := make([]AddressUse, 0, u.Counts[i])
	for j := u.starts[i]; j < u.starts[i+1]; j++ {
		out = append(out, AddressUse{
			Ordinal: u.Ordinals[j], Kind: u.Kinds[j], Marks: u.Marks[j], Name: u.Names[j], Handle: u.Handles[j],
			Namespace: u.text(u.Namespaces[j]), Node: u.text(u.Nodes[j]),
		})
	}
	return out
}

// UnmarshalJSON reads what json.Marshal writes of a Usage.
func (u *Usage) UnmarshalJSON(data []byte) error {
	type plain Usage
	if err := json.Unmarshal(data, (*plain)(u)); err != nil {
		return fmt.Errorf("reading what addresses are in use for: %w", err)
	}
	u.index()
	return nil
}

// index notes where each block's entries begin, if the lists go together.
func (u *Usage) index() {
	u.starts = nil
	starts := []int{0}
	for _, n := range u.Counts {
		starts = append(starts, starts[len(starts)-1]+max(n, 0))
	}
	n := starts[len(starts)-1]
	for _, have := range []int{
		len(u.Ordinals), len(u.Kinds), len(u.Marks), len(u.Namespaces), len(u.Nodes), len(u.Names), len(u.Handles),
	} {
		if have != n {
			return
		}
	}
	u.starts = starts
}

func (u *Usage) text(i int) string {
	if i < 0 || i >= len(u.Texts) {
		return ""
	}
	return u.Texts[i]
}

// of returns the Usage of some of the blocks.
func (u *Usage) of(indexes []int) *Usage {
	if u.starts == nil {
		return nil
	}
	out := &Usage{Texts: u.Texts}
	for _, i := range indexes {
		if i >= len(u.Counts) {
			return nil
		}
		from, to := u.starts[i], u.starts[i+1]
		out.Counts, out.Ordinals = append(out.Counts, to-from), append(out.Ordinals, u.Ordinals[from:to]...)
		out.Kinds, out.Marks = append(out.Kinds, u.Kinds[from:to]...), append(out.Marks, u.Marks[from:to]...)
		out.Namespaces, out.Nodes = append(out.Namespaces, u.Namespaces[from:to]...), append(out.Nodes, u.Nodes[from:to]...)
		out.Names, out.Handles = append(out.Names, u.Names[from:to]...), append(out.Handles, u.Handles[from:to]...)
	}
	out.index()
	return out
}
