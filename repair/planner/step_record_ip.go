package planner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/recordable"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// recordIP records an address that a live pod uses and that no block records, or that a block
// records for another pod, for example after the datastore was restored from a backup. Unrecorded, the address would be assigned a second time. It
// is recorded as Calico's CNI plugin would have recorded it, under the handle of the pod's sandbox,
// which the plugin uses to release it.
var recordIP = &repair.StepKind{
	Kind:     repair.RecordIP,
	Requires: state.RecordIPReads,
	AllPods:  true,
	Exact:    []string{repair.GuardHandle, repair.GuardPod, repair.GuardReplaces, repair.GuardSequence, repair.GuardAttributes},
	Loose: map[string]func(*state.State, *repair.Step, *repair.Step) bool{
		repair.GuardBlock: sameOrClaimed, repair.GuardBlockUID: sameOrClaimed, repair.GuardSlot: sameOrClaimed, repair.GuardClaim: sameOrClaimed, repair.GuardBeside: sameOrClaimed,
	},
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get create patch"), repair.May(blocks.Affinities, "get list create patch delete"), repair.May(blocks.Handles, "get create patch delete")},
	UndoRights: []repair.Right{repair.May(blocks.Blocks, "get create patch"), repair.May(blocks.Affinities, "get list create patch delete"), repair.May(blocks.Handles, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		if other := p.State.OtherIPAM(); other.Cluster {
			p.Refuse(repair.Concern{Target: state.ClusterSubject(p.State)}, repair.RefusedSpecial, "no address is recorded: %s", other.Reason)
			return
		}
		for _, u := range recordable.Of(p.State) {
			if p.Wants(unrecordedConcern(u).Target) {
				proposeRecord(p, u)
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		a, _ := netip.ParseAddr(s.Target.IP)
		r.Handle(s.Guard(repair.GuardHandle))
		r.Node(s.Target.Node)
		r.Claim(recordedIn(r.State, a), s.Guard(repair.GuardClaim))
		if ref, ok := r.State.Allocation(a); ok && s.Guard(repair.GuardReplaces) != "" {
			r.Handle(s.Guard(repair.GuardReplaces))
			r.Owner(ref)
		}
		for _, u := range r.State.LiveUses(a, r.State.NamedBy(a)) {
			if u.Pod != nil {
				r.Pod(u.Pod.Namespace, u.Pod.Name)
			}
		}
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		a, _ := netip.ParseAddr(s.Target.IP)
		u := unrecordedAt(st, a)
		if u == nil || u.Reason != "" || u.Handle != s.Guard(repair.GuardHandle) {
			return repair.DeletedError(s)
		}
		record := repair.Allocation{Handle: u.Handle, Attributes: attributesFor(st, u)}
		if u.Block == nil {
			record.Claim, record.Host = u.Slot, u.Host
			for _, x := range u.Beside {
				if x.Addr != a {
					record.Beside = append(record.Beside, repair.Beside{Ordinal: ordinalIn(x.Slot, x.Addr), Handle: x.Handle, Attributes: attributesFor(st, x)})
				}
			}
			return w.RecordIP(ctx, repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(u.Slot)}, ordinalIn(u.Slot, a), record)
		}
		ordinal, _ := u.Block.Ordinal(a)
		if u.Replaces != nil {
			sequence, _ := u.Block.SequenceAt(ordinal)
			record.Replaces = &repair.ReleaseOptions{Handle: u.Replaces.Attributes().Handle, Sequence: sequence}
		}
		return w.RecordIP(ctx, repair.Pin(blocks.Blocks, u.Block.Meta), ordinal, record)
	},
	Verify: func(st *state.State, s *repair.Step) error {
		a, err := netip.ParseAddr(s.Target.IP)
		if err != nil {
			return err
		}
		id := s.Guard(repair.GuardHandle)
		r, allocated := st.Allocation(a)
		if !allocated || r.Attributes() == nil || r.Attributes().Handle != id {
			return fmt.Errorf("%s is not recorded under handle %s", a, id)
		}
		if h := st.Handle(id); h == nil || h.SoftDeleted {
			return repair.LeftBehind(blocks.Blocks, r.Block.Name, "records %s under handle %s, which does not exist", a, id)
		}
		if old := st.Handle(s.Guard(repair.GuardReplaces)); old != nil && len(st.HandleRefs(old.ID)) == 0 {
			return repair.LeftBehind(blocks.Handles, old.Name, "is left, and no block refers to it")
		}
		if a := unconfirmedClaim(st, s); a != nil {
			return repair.LeftBehind(blocks.Affinities, a.Name, "is left %s, and its block names %s", leftState(a), s.Guard(repair.GuardClaim))
		}
		return ownersAffinity(st, r.Block.CIDR.String(), s.Guard(repair.GuardClaim))
	},
	// A started recording is completed even by an undo: the pod uses the address.
	Complete: func(b *repair.Begun) repair.Move {
		if verifyKind(b) == nil {
			return repair.Move{}
		}
		if unconfirmedClaim(b.State, b.Step) != nil {
			return repair.ToWrite(func(ctx context.Context) error {
				return b.Writer.ClaimBlock(ctx, repair.PrefixOf(state.Subject{CIDR: b.Step.Guard(repair.GuardSlot)}), b.Step.Guard(repair.GuardClaim))
			}, "confirming the affinity to its block")
		}
		if derived, _ := b.Kind.Derive(b.State, b.Request, b.Step.ID); derived != nil {
			return repair.ToWrite(func(ctx context.Context) error { return b.Kind.Do(ctx, b.Writer, b.State, derived) }, "recording the address")
		}
		return lowerHandle(b)
	},
	Undo: func(b *repair.Begun) repair.Move {
		if verifyKind(b) != nil {
			return repair.Nothing(repair.Already, "the address is not recorded under its handle any more")
		}
		return repair.Cannot(repair.SkipHarm, "the address is not taken out of its block again: unrecorded, it would be handed out a second time; once its pod has gone, --leaked-ips releases it")
	},
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		a, _ := netip.ParseAddr(step.Target.IP)
		record(x, step, a)
	},
}

// sameOrClaimed reports whether an address is in the block that the plan names, or in a block that
// an earlier step, or the plan's node itself, has claimed since.
func sameOrClaimed(st *state.State, planned, now *repair.Step) bool {
	same := true
	for _, g := range []string{repair.GuardBlock, repair.GuardBlockUID, repair.GuardSlot, repair.GuardClaim, repair.GuardBeside} {
		same = same && planned.Guard(g) == now.Guard(g)
	}
	b := repair.BlockAt(st, planned.Guard(repair.GuardSlot))
	return same || planned.Guard(repair.GuardBlock) == repair.Absent && b != nil && b.Name == now.Guard(repair.GuardBlock) && b.Owner.Node() == planned.Guard(repair.GuardClaim)
}

// unconfirmedClaim returns the unconfirmed affinity of the node that a step claims a block for, if
// that node owns the block; nil otherwise.
func unconfirmedClaim(st *state.State, s *repair.Step) *blocks.Affinity {
	b := repair.BlockAt(st, s.Guard(repair.GuardSlot))
	if b == nil || b.SoftDeleted || s.Guard(repair.GuardClaim) == "" || b.Owner.Node() != s.Guard(repair.GuardClaim) {
		return nil
	}
	if a := repair.OwnAffinity(st, b); a != nil && !a.SoftDeleted && a.Effective() != blocks.Confirmed {
		return a
	}
	return nil
}

// attributesFor returns the attributes that the CNI plugin gives a pod's address (cni-plugin
// pkg/ipamplugin/ipam_plugin.go, cmdAdd).
func attributesFor(st *state.State, u *recordable.Address) map[string]string {
	pod := u.Users[0].Pod
	return map[string]string{"pod": pod.Name, "namespace": pod.Namespace, "node": pod.Node, "timestamp": st.Cluster.TakenAt.UTC().String()}
}

func verifyKind(b *repair.Begun) error { return b.Kind.Verify(b.State, b.Step) }

// recordedIn is the CIDR of the block that contains an address, or of the block that would now be
// claimed for it.
func recordedIn(st *state.State, a netip.Addr) netip.Prefix {
	if b := st.CoveringBlock(a); b != nil {
		return b.CIDR
	}
	if pool := st.EnabledPool(a); pool != nil {
		return netip.PrefixFrom(a, pool.BlockSize).Masked()
	}
	return netip.Prefix{}
}

// unrecordedAt returns an unrecorded address with its verdict; nil if it is recorded or unused.
func unrecordedAt(st *state.State, a netip.Addr) *recordable.Address {
	for _, u := range recordable.Of(st) {
		if u.Addr == a {
			return u
		}
	}
	return nil
}

// ordinalIn is the ordinal of an address in a block.
func ordinalIn(block netip.Prefix, a netip.Addr) int {
	b := blocks.Block{CIDR: block, Ordinals: make([]int32, 1<<min(16, a.BitLen()-block.Bits()))}
	ordinal, _ := b.Ordinal(a)
	return ordinal
}

func unrecordedConcern(u *recordable.Address) repair.Concern {
	c := repair.Concern{Target: state.IPSubject(u.Addr, u.Users[0].Node), Pools: state.PoolsOf(u.Pool), Nodes: []string{u.Host}}
	for _, x := range u.Users {
		c.Nodes = append(c.Nodes, x.Node)
	}
	if u.Block != nil {
		c.Nodes = append(c.Nodes, u.Block.Owner.Node())
	}
	return c
}

func proposeRecord(p *repair.Proposals, u *recordable.Address) {
	c := unrecordedConcern(u)
	if bars(p, c, u.Bar) {
		return
	}
	pod := u.Users[0].Pod
	block, uid, slot, claim, pinned := repair.Absent, repair.Absent, u.Slot.String(), u.Host, []blocks.Meta{}
	var beside []string
	for _, x := range u.Beside {
		beside = append(beside, x.Addr.String()+"="+x.Handle)
	}
	because, replaces, sequence, attributes := "no block records it: it would be handed out a second time", "", "", ""
	if u.Replaces != nil {
		attr := u.Replaces.Attributes()
		n, _ := u.Block.SequenceAt(u.Replaces.Ordinal)
		because = fmt.Sprintf("its allocation names pod %s: Calico's collector may free it under the live pod", podName(attr))
		replaces, sequence, attributes = attr.Handle, strconv.FormatUint(n, 10), fmt.Sprintf("%016x", attr.Digest)
	}
	says := fmt.Sprintf("does not exist: %s is claimed for %s, and created with %s in use there", u.Slot, u.Host, phrase.Plural(len(beside), "address"))
	if u.Block != nil {
		block, uid, slot, claim, pinned = u.Block.Name, u.Block.UID(), "", "", append(pinned, u.Block.Meta)
		says = fmt.Sprintf("%s of %s", u.Block.CIDR, u.Block.Owner)
	}
	p.Add(c, repair.Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("pod %s on %s uses %s, and %s", pod.FullName(), pod.Node, u.Addr, because),
		Evidence: state.Evidences("pod", pod.FullName(), "node", pod.Node, "by evidence of", u.Users[0].Source, "block", says,
			"handle", u.Handle, "pool", state.PoolName(u.Pool)),
		Guards: repair.Guards(repair.GuardBlock, block, repair.GuardBlockUID, uid, repair.GuardSlot, slot, repair.GuardClaim, claim, repair.GuardBeside, strings.Join(beside, " "), repair.GuardHandle, u.Handle, repair.GuardPod, pod.FullName(),
			repair.GuardReplaces, replaces, repair.GuardSequence, sequence, repair.GuardAttributes, attributes),
	}, pinned...)
}

// record allocates an address. If no block contains it, record first claims one.
func record(x *repair.Pretence, s *repair.Step, a netip.Addr) {
	name := s.Guard(repair.GuardBlock)
	if name == repair.Absent {
		name = blocks.BlockName(repair.PrefixOf(state.Subject{CIDR: s.Guard(repair.GuardSlot)}))
	}
	b := x.BlockByName[name]
	if b == nil {
		b = x.Claim(repair.PrefixOf(state.Subject{CIDR: s.Guard(repair.GuardSlot)}), s.Guard(repair.GuardClaim))
	}
	if s.Guard(repair.GuardReplaces) != "" {
		x.Free(name, a)
	}
	i, ok := b.Ordinal(a)
	if !ok || b.Ordinals[i] != blocks.Free {
		return
	}
	b.Ordinals, b.Attributes = slices.Clone(b.Ordinals), slices.Clone(b.Attributes)
	b.Ordinals[i] = int32(len(b.Attributes))
	b.Attributes = append(b.Attributes, blocks.Attributes{
		Handle: s.Guard(repair.GuardHandle), HasHandle: true, Node: s.Target.Node, Assigned: x.Cluster.Taken(),
	})
	b.Unallocated = slices.DeleteFunc(slices.Clone(b.Unallocated), func(o int32) bool { return int(o) == i })
	b.OrdinalSequences = append(slices.Clone(b.OrdinalSequences), blocks.OrdinalSequence{Ordinal: int32(i), Sequence: b.Sequence})
	b.Sequence++
	b.Written = x.Cluster.Taken()
	x.Count(s.Guard(repair.GuardHandle), b)
}
