package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// chooseOfBoth decides which API group Calico uses while both serve blocks, as during
// kube-controllers' migration from the older to the newer group. The phase of the
// DatastoreMigration decides; else the group that is not locked; else the group whose
// blocks record the addresses of live pods. Without evidence, or without the right to read it, the
// reading is inconclusive: the group that may be read may be out of date.
func (c *apiClient) chooseOfBoth(ctx context.Context, s *served) error {
	states, denied := map[string]groupState{}, ""
	for _, group := range []string{decode.GroupCRD, decode.GroupNative} {
		found, why, err := c.listed(ctx, blocks.ClusterInfos, group)
		if err != nil {
			return fmt.Errorf("reading the ClusterInformation of %s: %w", group, err)
		}
		states[group] = groupState{present: found.Info.Present, locked: found.Info.Locked}
		denied = cmp.Or(denied, why)
	}
	defer func() {
		s.other = otherGroup(s.group)
		s.otherLocked = states[s.other].locked
	}()
	migration, unknown, err := c.migration(ctx, s)
	if err != nil {
		return err
	}
	crd, native := states[decode.GroupCRD].inUse(), states[decode.GroupNative].inUse()
	switch {
	case migration != nil:
		s.group = decode.GroupCRD
		if migration.Moved() {
			s.group = decode.GroupNative
		}
		s.reason = fmt.Sprintf("both API groups serve ipamblocks, and DatastoreMigration %s is in phase %s", migration.Name, migration.Phase)
		return nil
	case unknown == "" && denied == "" && crd != native:
		s.group = decode.GroupCRD
		if native {
			s.group = decode.GroupNative
		}
		s.reason = fmt.Sprintf("both API groups serve ipamblocks, and %s is locked or has no ClusterInformation", otherGroup(s.group))
		return nil
	}
	inCRD, inNative := 0, 0
	if unknown == "" {
		inCRD, inNative, unknown, err = c.recordedByGroup(ctx)
	}
	switch {
	case err != nil:
		return err
	case unknown == "" && inCRD != inNative:
		s.group = decode.GroupCRD
		if inNative > inCRD {
			s.group = decode.GroupNative
		}
		s.reason = "both API groups serve ipamblocks, and the blocks of " + s.group + " record the addresses of live pods"
	default:
		s.group = decode.GroupCRD
		s.reason = "both API groups serve ipamblocks, and nothing shows which one Calico uses"
		if why := cmp.Or(unknown, denied); why != "" {
			s.reason += "; " + why
		}
		s.inconclusive = s.reason
	}
	return nil
}

func otherGroup(group string) string {
	if group == decode.GroupCRD {
		return decode.GroupNative
	}
	return decode.GroupCRD
}

// listed lists a kind with few objects. If it does not exist or may not be read, it counts as empty;
// denied then names the missing right.
func (c *apiClient) listed(ctx context.Context, r blocks.Resource, group string) (found *blocks.Snapshot, denied string, err error) {
	l := &lister{client: c, kind: decode.KindOf(r), group: group, pageSize: defaultPageSize, strings: &decode.SharedStrings{}}
	if err := l.run(ctx); err != nil {
		return nil, "", err
	}
	switch code := codeOf(l.cause); {
	case code == http.StatusForbidden:
		denied = l.failed.Error()
	case l.cause != nil && code != http.StatusNotFound:
		return nil, "", l.cause
	}
	return decode.NewSnapshot(l.out), denied, nil
}

// migration returns the DatastoreMigration; nil if there is none, or it may not be read.
func (c *apiClient) migration(ctx context.Context, s *served) (found *blocks.Migration, denied string, err error) {
	if !s.has(decode.KindOf(blocks.Migrations)) {
		return nil, "", nil
	}
	all, denied, err := c.listed(ctx, blocks.Migrations, s.group)
	if err != nil {
		return nil, "", fmt.Errorf("reading DatastoreMigrations: %w", err)
	}
	if len(all.Migrations) > 0 {
		found = &all.Migrations[0]
	}
	return found, denied, nil
}

// sampledPods is the number of pods to look up in the blocks of both groups.
const sampledPods = 500

// recordedByGroup counts, for some live pods, the addresses recorded in each group's
// blocks.
func (c *apiClient) recordedByGroup(ctx context.Context) (inCRD, inNative int, denied string, err error) {
	pods := &lister{client: c, kind: decode.KindOf(blocks.Pods), pageSize: sampledPods, strings: &decode.SharedStrings{}}
	pods.out = decode.NewObjects(pods.kind)
	if _, err := pods.page(ctx); err != nil && codeOf(err) != http.StatusForbidden {
		return 0, 0, "", fmt.Errorf("reading pods: %w", err)
	}
	live := decode.NewSnapshot(pods.out).Workloads
	for _, group := range []string{decode.GroupCRD, decode.GroupNative} {
		found, why, err := c.listed(ctx, blocks.Blocks, group)
		if err != nil {
			return 0, 0, "", fmt.Errorf("reading blocks of %s: %w", group, err)
		}
		denied = cmp.Or(denied, why)
		count := recordedOf(live, found.Blocks)
		if group == decode.GroupCRD {
			inCRD = count
		} else {
			inNative = count
		}
	}
	return inCRD, inNative, denied, nil
}

// recordedOf counts the addresses of live pods that blocks record.
func recordedOf(pods []*blocks.Workload, in []blocks.Block) (count int) {
	for _, w := range pods {
		if !w.Live() {
			continue
		}
		for a := range w.Addresses {
			if slices.ContainsFunc(in, func(b blocks.Block) bool {
				i, ok := b.Ordinal(a)
				return ok && b.Ordinals[i] != blocks.Free
			}) {
				count++
			}
		}
	}
	return count
}

// finish records the API group in a snapshot, and adds gaps if Calico keeps its data
// elsewhere: such a cluster must not look empty.
func (s *served) finish(snap *blocks.Snapshot) {
	c := &snap.Cluster
	c.APIGroup, c.APIGroupReason, c.OtherGroup, c.OtherLocked = s.group, s.reason, s.other, s.otherLocked
	why, empty := s.inconclusive, false
	if why == "" {
		why, empty = keptElsewhere(snap, s), true
	}
	if why == "" {
		return
	}
	for _, r := range []blocks.Resource{blocks.Pools, blocks.Blocks} {
		if _, missing := snap.Missing(r); missing || empty && count(snap, r) > 0 {
			continue
		}
		snap.Gaps = append(snap.Gaps, blocks.Gap{Resource: r, Reason: why})
	}
	// The other group may be in use without this one's lock.
	unsure := empty && !snap.Info.Present || !empty && snap.Info.Locked && !s.otherLocked
	if _, missing := snap.Missing(blocks.ClusterInfos); unsure && !missing {
		snap.Gaps = append(snap.Gaps, blocks.Gap{Resource: blocks.ClusterInfos, Reason: why})
	}
	slices.SortFunc(snap.Gaps, blocks.CompareGaps)
}

func count(snap *blocks.Snapshot, r blocks.Resource) int {
	if r == blocks.Pools {
		return len(snap.Pools) + len(snap.Unreadable(r))
	}
	return len(snap.Blocks) + len(snap.Unreadable(r))
}

// keptElsewhere explains why Calico's data is not in the API group that was read, but in
// etcd or, after a migration, in the other group. It returns "" without evidence. Calico's
// components create a ClusterInformation when they start, so a datastore without one is not
// in use.
func keptElsewhere(snap *blocks.Snapshot, s *served) string {
	if !s.has(decode.KindOf(blocks.ClusterInfos)) {
		return "" // absence reports the kinds that are not served
	}
	if _, missing := snap.Missing(blocks.ClusterInfos); !missing && !snap.Info.Present && len(snap.Unreadable(blocks.ClusterInfos)) == 0 {
		return fmt.Sprintf("%s has no ClusterInformation: %s", s.group, blocks.Elsewhere)
	}
	return snap.KeptElsewhere()
}
