package audit

import (
	"fmt"
	"slices"
	"strings"
)

// all are the checks, ordered by ID. A new check is its file and a line here.
var all = []*Check{
	&affinityDeadNode,
	&affinityNoBlock,
	&affinityNotOwner,
	&affinityStuck,
	&blockCorrupt,
	&blockDeadNode,
	&blockEmpty,
	&blockNoAffinity,
	&blockNoPool,
	&blockOverlap,
	&blockSizeMismatch,
	&blockSoftDeleted,
	&blockUnaffine,
	&configBlockStrictAffinity,
	&configDatastoreLocked,
	&configGCDisabled,
	&configStrictAffinity,
	&handleCount,
	&handleLeaked,
	&handleMissing,
	&ipBorrowed,
	&ipDuplicate,
	&ipHostInUse,
	&ipLeaked,
	&ipUnallocated,
	&ipUnknownOwner,
	&ipWrongNode,
	&nodeBlockLimit,
	&nodeManyBlocks,
	&nodeNoBlock,
	&poolDisabledInUse,
	&poolExhausted,
	&poolLowAddresses,
	&poolLowFreeBlocks,
	&poolNoFreeBlocks,
	&poolOverlap,
	&poolSelector,
	&poolUndersized,
	&routeBlackhole,
	&routeStrayBlackhole,
}

// Checks returns every check, ordered by ID.
func Checks() []*Check { return slices.Clone(all) }

// CheckByID returns a check, or an error that names the ones closest to it.
func CheckByID(id string) (*Check, error) {
	group, _, _ := strings.Cut(id, "/")
	var near []string
	for _, c := range all {
		if c.ID == id {
			return c, nil
		}
		if strings.HasPrefix(c.ID, group+"/") || strings.HasSuffix(c.ID, "/"+id) {
			near = append(near, c.ID)
		}
	}
	if len(near) > 0 {
		return nil, fmt.Errorf("unknown check %q: did you mean %s?", id, strings.Join(near, ", "))
	}
	return nil, fmt.Errorf("unknown check %q: \"calico-audit checks\" lists them all", id)
}

// SelectChecks returns the checks that patterns name: an ID, a group ("pool" or
// "pool/*"), or nothing for all. A pattern that names no check is an error.
func SelectChecks(patterns []string) ([]*Check, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	var out []*Check
	for _, p := range patterns {
		group := strings.TrimSuffix(p, "/*")
		found := false
		for _, c := range all {
			if c.ID == p || strings.HasPrefix(c.ID, group+"/") {
				found = true
				if !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
		}
		if !found {
			_, err := CheckByID(p)
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b *Check) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}
