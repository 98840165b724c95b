package testcluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// IPAMState holds a cluster's stored IPAM objects, read in the simplest way, so that
// tests can compare results with it.
type IPAMState struct {
	// Blocks holds the CIDRs of blocks by owner: a node's name, another owner as stored
	// ("virtual:load-balancer"), or "" without an owner.
	Blocks map[string][]netip.Prefix
	// Empty lists the blocks without allocations.
	Empty []netip.Prefix
	// Affinities holds the CIDRs of BlockAffinities by node.
	Affinities map[string][]netip.Prefix
	// Allocations holds the addresses in use by node, or "" if the allocation names no
	// node.
	Allocations map[string][]netip.Addr
	// Borrowed holds the addresses that a node uses from another node's block.
	Borrowed map[netip.Addr]Borrowing
	// Handles is the number of IPAM handles.
	Handles int
}

// Borrowing names the node that uses an address and the owner of its block.
type Borrowing struct{ User, Owner string }

// ReadIPAM reads the IPAM objects of a group.
func (c *Cluster) ReadIPAM(ctx context.Context, group Group) (*IPAMState, error) {
	state := &IPAMState{
		Blocks: map[string][]netip.Prefix{}, Affinities: map[string][]netip.Prefix{},
		Allocations: map[string][]netip.Addr{}, Borrowed: map[netip.Addr]Borrowing{},
	}
	blocks, err := c.List(ctx, group.Resource("ipamblocks"))
	if err != nil {
		return nil, err
	}
	for i := range blocks {
		spec, _ := blocks[i].Object["spec"].(map[string]any)
		if err := state.addBlock(spec); err != nil {
			return nil, fmt.Errorf("reading block %s: %w", blocks[i].GetName(), err)
		}
	}
	affinities, err := c.List(ctx, group.Resource("blockaffinities"))
	if err != nil {
		return nil, err
	}
	for i := range affinities {
		spec, _ := affinities[i].Object["spec"].(map[string]any)
		node, _ := spec["node"].(string)
		text, _ := spec["cidr"].(string)
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("reading affinity %s: %w", affinities[i].GetName(), err)
		}
		state.Affinities[node] = append(state.Affinities[node], cidr)
	}
	handles, err := c.List(ctx, group.Resource("ipamhandles"))
	state.Handles = len(handles)
	state.sort()
	return state, err
}

func (s *IPAMState) addBlock(spec map[string]any) error {
	text, _ := spec["cidr"].(string)
	cidr, err := netip.ParsePrefix(text)
	if err != nil {
		return err
	}
	affinity, _ := spec["affinity"].(string)
	owner := strings.TrimPrefix(affinity, "host:")
	s.Blocks[owner] = append(s.Blocks[owner], cidr)

	attributes, _ := spec["attributes"].([]any)
	allocations, _ := spec["allocations"].([]any)
	addr, empty := cidr.Addr(), true
	for _, index := range allocations {
		if index, ok := index.(int64); ok {
			empty = false
			if int(index) >= len(attributes) {
				return fmt.Errorf("%s has attributes %d of %d", addr, index, len(attributes))
			}
			attribute, _ := attributes[index].(map[string]any)
			secondary, _ := attribute["secondary"].(map[string]any)
			user, _ := secondary["node"].(string)
			s.Allocations[user] = append(s.Allocations[user], addr)
			if user != "" && user != owner {
				s.Borrowed[addr] = Borrowing{User: user, Owner: owner}
			}
		}
		addr = addr.Next()
	}
	if empty {
		s.Empty = append(s.Empty, cidr)
	}
	return nil
}

func (s *IPAMState) sort() {
	byAddr := func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }
	slices.SortFunc(s.Empty, byAddr)
	for _, cidrs := range s.Blocks {
		slices.SortFunc(cidrs, byAddr)
	}
	for _, cidrs := range s.Affinities {
		slices.SortFunc(cidrs, byAddr)
	}
	for _, addrs := range s.Allocations {
		slices.SortFunc(addrs, netip.Addr.Compare)
	}
}
