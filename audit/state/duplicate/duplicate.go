// Package duplicate finds addresses with several live owners, and decides which of them keeps the
// address.
package duplicate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// Address is an address with several live owners.
type Address struct {
	netip.Addr
	// Users are the pods and tunnels that use the address, one for each owner. The two pods of a
	// migrating virtual machine count as one.
	Users []state.LiveUse
	// Second are the network namespaces that have the address and belong to none of the Users.
	Second []hosts.Use
	// Owner is the user that keeps the address; nil if no evidence favours one. Why is the reason
	// in either case.
	Owner *state.LiveUse
	Why   string
}

type all []Address

// Of returns the addresses with several live owners: first those that pods or tunnels name, in
// order, then those that only host views show.
func Of(st *state.State) []Address {
	return *state.Derived(st, func(st *state.State) *all {
		var out all
		st.EachSharedUse(func(a netip.Addr, users []state.LiveUse) { out.add(st, a, users) })
		st.Views.EachUse(func(a netip.Addr, _ []hosts.Use) {
			if len(st.SecondOwners(a)) > 1 && len(st.LiveUses(a, st.NamedBy(a))) == 0 {
				out.add(st, a, nil)
			}
		})
		return &out
	})
}

// add appends an address if it has several live owners.
func (out *all) add(st *state.State, a netip.Addr, users []state.LiveUse) {
	second := st.SecondOwners(a)
	if len(users)+len(second) < 2 {
		return // true for nearly every address
	}
	r, allocated := st.Allocation(a)
	d := Address{Addr: a, Users: joinOwners(state.Certain(users), r.AttributesIf(allocated)), Second: second}
	if len(d.Users)+len(second) < 2 {
		return
	}
	d.decide(st, r.AttributesIf(allocated))
	*out = append(*out, d)
}

// decide picks the user that keeps the address. A recorded user comes first, because if it
// restarted, Calico would free the address under the other user.
func (d *Address) decide(st *state.State, attr *blocks.Attributes) {
	b := st.CoveringBlock(d.Addr)
	for _, rule := range []struct {
		why string
		of  func(u *state.LiveUse) bool
	}{
		{"the block records the address under the handle of its sandbox", func(u *state.LiveUse) bool {
			return attr != nil && u.Pod != nil && blocks.SandboxHandle(attr.Handle, u.Pod.ContainerID)
		}},
		{"the block records the address for it", func(u *state.LiveUse) bool { return attr != nil && records(attr, u) }},
		{"only this pod can be recorded: its annotations name the address and its sandbox", func(u *state.LiveUse) bool {
			return u.Pod != nil && u.Pod.ContainerID != "" && slices.Contains(u.Pod.AnnotationIPs, d.Addr)
		}},
		{"its node owns the block, and traffic to the address is routed there", func(u *state.LiveUse) bool {
			return b != nil && b.Owner.Node() == u.Node
		}},
	} {
		var fit []*state.LiveUse
		for i := range d.Users {
			if rule.of(&d.Users[i]) {
				fit = append(fit, &d.Users[i])
			}
		}
		if len(fit) == 1 {
			d.Owner, d.Why = fit[0], rule.why
			return
		}
	}
	d.Why = "the block records it for neither"
	if attr != nil && attr.Pod != "" {
		d.Why = fmt.Sprintf("the block records it for pod %s/%s", attr.Namespace, attr.Pod)
	} else if b == nil {
		d.Why = "no block records it"
	}
	d.Why += ", and neither the annotations nor the block's owner show which of them may keep it"
}

// records reports whether an allocation names a user.
func records(attr *blocks.Attributes, u *state.LiveUse) bool {
	if u.Pod != nil {
		return activeOwner(attr, u.Pod)
	}
	_, node := attr.TunnelOf()
	return node == u.Node
}

// joinOwners keeps one of several users that are the same owner: two pods that run one virtual
// machine, or the active and the alternate owner of an allocation during a live migration.
func joinOwners(users []state.LiveUse, attr *blocks.Attributes) []state.LiveUse {
	var out []state.LiveUse
	for _, u := range users {
		if !slices.ContainsFunc(out, func(before state.LiveUse) bool { return oneOwner(before.Pod, u.Pod, attr) }) {
			out = append(out, u)
		}
	}
	return out
}

// oneOwner reports whether two pods are the same owner of an address.
func oneOwner(a, b *blocks.Workload, attr *blocks.Attributes) bool {
	if a == nil || b == nil {
		return false
	}
	if a.Extras().VM != "" && a.Extras().VM == b.Extras().VM && a.Namespace == b.Namespace {
		return true
	}
	return activeOwner(attr, a) && alternateOwner(attr, b) || activeOwner(attr, b) && alternateOwner(attr, a)
}

// activeOwner reports whether a pod is the owner that an allocation names.
func activeOwner(attr *blocks.Attributes, w *blocks.Workload) bool {
	return attr != nil && attr.Pod == w.Name && attr.Namespace == w.Namespace
}

// alternateOwner reports whether a pod is the alternate owner of an allocation, which takes the
// address over when a live migration ends.
func alternateOwner(attr *blocks.Attributes, w *blocks.Workload) bool {
	return attr != nil && activeOwner(attr.Extras().Alternate, w)
}
