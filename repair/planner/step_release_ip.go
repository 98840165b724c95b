package planner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/releasable"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// releaseIP frees an address without an owner. Two observations must agree, and no host view of its
// node may show the address in use: see evidence. Handle and sequence number pin the allocation.
// The block around it may change, because its node still uses it.
var releaseIP = &repair.StepKind{
	Kind:       repair.ReleaseIP,
	Requires:   state.ReleaseIPReads,
	Exact:      []string{repair.GuardBlock, repair.GuardBlockUID, repair.GuardHandle, repair.GuardSequence, repair.GuardAttributes, repair.GuardMachineOff},
	AllPods:    true,
	AsksHosts:  true,
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get patch delete"), repair.May(blocks.Handles, "get patch delete")},
	UndoRights: []repair.Right{repair.May(blocks.Blocks, "get patch delete"), repair.May(blocks.Handles, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		only, _ := netip.ParseAddr(strings.TrimPrefix(p.Only, string(repair.ReleaseIP)+":"))
		for _, b := range p.State.IPBlocks {
			switch {
			case p.Only != "" && !b.CIDR.Contains(only):
				continue
			case len(b.Faults) > 0 && b.Used > 0:
				p.Refuse(blockConcern(b), repair.RefusedCorrupt, "its %s are not evaluated, because it contradicts itself: %s", phrase.Plural(b.Used, "address"), b.Faults[0])
				continue
			}
			for i, o := range b.Ordinals {
				r := state.AllocationRef{Block: b, Ordinal: i}
				if o != blocks.Free && (p.Only == "" || r.Addr() == only) {
					proposeIP(p, r)
				}
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		a, err := netip.ParseAddr(s.Target.IP)
		if err != nil {
			return
		}
		r.One(blocks.Blocks, s.Guard(repair.GuardBlock))
		r.Handle(s.Guard(repair.GuardHandle))
		r.Node(s.Target.Node)
		if ref, ok := r.State.Allocation(a); ok {
			r.One(blocks.Blocks, ref.Block.Name)
			r.Owner(ref)
			r.Node(ref.Block.Owner.Node())
		}
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		return releaseTogether(ctx, w, st, []*repair.Step{s})[0]
	},
	Shares:   func(s *repair.Step) string { return s.Guard(repair.GuardBlock) },
	Together: releaseTogether,
	Verify: func(st *state.State, s *repair.Step) error {
		if err := verifyIP(st, s); err != nil {
			return err
		}
		if err := hasReleasedBlock(st, s); err != nil {
			return err
		}
		return loweredHandle(st, s.Guard(repair.GuardHandle))
	},
	AsBefore: asBefore,
	Complete: func(b *repair.Begun) repair.Move {
		// An ownerless block that became empty is deleted.
		if c := b.Log.First(blocks.Blocks); c != nil {
			for _, x := range b.State.IPBlocks {
				if x.Name == c.Name && x.UID() == c.Was().Metadata.UID && x.SoftDeleted && x.Used == 0 {
					return b.EndMark(blocks.Blocks, x.Meta)
				}
			}
		}
		if b.Undo && recordedAgain(b) {
			return repair.Move{}
		}
		return lowerHandle(b)
	},
	Undo: recordAgain,
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		if a, err := netip.ParseAddr(step.Target.IP); err == nil {
			x.Free(step.Guard(repair.GuardBlock), a)
		}
	},
}

// releaseTogether frees addresses of one block (see Shares) in one write.
func releaseTogether(ctx context.Context, w repair.Writer, st *state.State, steps []*repair.Step) []error {
	errs := make([]error, len(steps))
	var block repair.ObjectRef
	var all []repair.ReleaseOptions
	var at []int
	for i, s := range steps {
		a, _ := netip.ParseAddr(s.Target.IP)
		r, ok := st.Allocation(a)
		attr := r.Attributes
		if !ok || attr() == nil || r.Block.Name != s.Guard(repair.GuardBlock) || attr().Handle != s.Guard(repair.GuardHandle) {
			errs[i] = repair.DeletedError(s)
			continue
		}
		sequence, _ := r.Block.SequenceAt(r.Ordinal)
		block, at = repair.Pin(blocks.Blocks, r.Block.Meta), append(at, i)
		all = append(all, repair.ReleaseOptions{Step: s.ID, Ordinal: r.Ordinal, Handle: attr().Handle, Sequence: sequence})
	}
	if len(all) > 0 {
		for i, err := range w.ReleaseIPs(ctx, block, all) {
			errs[at[i]] = err
		}
	}
	return errs
}

// lowerHandle lowers the count of the handle of a freed or reassigned address, or deletes the
// handle, if the handle and the blocks now allow it. Otherwise it leaves the handle. The verdicts
// are those of --leaked-handles, without a second observation: the interrupted run itself left
// the count too high.
func lowerHandle(b *repair.Begun) repair.Move {
	h := b.State.Handle(cmp.Or(b.Step.Guard(repair.GuardReplaces), b.Step.Guard(repair.GuardHandle)))
	if h == nil || verifyIP(b.State, b.Step) != nil || b.State.Cluster.Ageless { // its node may be raising the count
		return repair.Move{}
	}
	if h.SoftDeleted {
		return endHandle(b, h)
	}
	request := repair.Request{LeakedHandles: true, AllowNewer: b.Request.AllowNewer}
	for _, kind := range []*repair.StepKind{deleteHandle, fixHandleCount} {
		if derived, _ := kind.Derive(b.State, request, repair.StepID(kind.Kind, state.HandleSubject(h.ID))); derived != nil {
			return repair.ToWrite(func(ctx context.Context) error { return kind.Do(ctx, b.Writer, b.State, derived) }, "lowering the address's handle")
		}
	}
	return repair.Move{}
}

// recordAgain records the address again, if it is still free in the same block.
func recordAgain(b *repair.Begun) repair.Move {
	c := b.Log.First(blocks.Blocks)
	if c == nil || c.Before == nil {
		return repair.Cannot(repair.SkipUnknown, "the journal does not hold the block")
	}
	was := c.Was()
	x := repair.BlockAt(b.State, was.Spec.CIDR)
	switch {
	case x == nil:
		return repair.Cannot(repair.SkipDeleted, "its block %s does not exist any more", was.Spec.CIDR)
	case x.UID() != was.Metadata.UID:
		return repair.Cannot(repair.SkipChanged, "its block %s was deleted and created again since", was.Spec.CIDR)
	case x.SoftDeleted:
		return repair.Cannot(repair.SkipChanged, "its block %s is marked deleted", was.Spec.CIDR)
	case len(x.Faults) > 0:
		return repair.Cannot(repair.SkipCode(repair.RefusedCorrupt), "its block is corrupt: %s", x.Faults[0])
	}
	addr, err := netip.ParseAddr(b.Step.Target.IP)
	ordinal, ok := x.Ordinal(addr)
	if err != nil || !ok {
		return repair.Cannot(repair.SkipUnknown, "%q is not an address of %s", b.Step.Target.IP, was.Spec.CIDR)
	}
	switch h := b.State.Handle(b.Step.Guard(repair.GuardHandle)); {
	case recordedAgain(b):
		return repair.Nothing(repair.Already, "the address is recorded again")
	case x.Ordinals[ordinal] != blocks.Free:
		return repair.Cannot(repair.SkipCode(repair.RefusedInUse), "the address now has another owner")
	case h != nil && h.SoftDeleted:
		return repair.Cannot(repair.SkipChanged, "its handle is marked deleted")
	}
	if !b.Log.Freed {
		return repair.Cannot(repair.SkipUnknown, "the address is free, and the journal does not show that this run freed it: its node may have released it, and recorded again it would be leaked")
	}
	ref := repair.Pin(blocks.Blocks, x.Meta)
	var handle json.RawMessage
	if h := b.Log.First(blocks.Handles); h != nil {
		handle = h.Before
	}
	return repair.ToWrite(func(ctx context.Context) error {
		return b.Writer.RecordIP(ctx, ref, ordinal, repair.Allocation{Block: c.Before, Stored: handle})
	}, "record the address as allocated again")
}

// recordedAgain reports whether an address is allocated under the handle of its step.
func recordedAgain(b *repair.Begun) bool {
	a, err := netip.ParseAddr(b.Step.Target.IP)
	r, ok := b.State.Allocation(a)
	return err == nil && ok && r.Attributes() != nil && r.Attributes().Handle == b.Step.Guard(repair.GuardHandle)
}

// verifyIP returns nil if the address is free or has been assigned again since.
func verifyIP(st *state.State, s *repair.Step) error {
	a, err := netip.ParseAddr(s.Target.IP)
	if err != nil {
		return err
	}
	r, allocated := st.Allocation(a)
	if !allocated {
		return nil
	}
	was, err := strconv.ParseUint(s.Guard(repair.GuardSequence), 10, 64)
	now, known := r.Block.SequenceAt(r.Ordinal)
	if err == nil && known && now > was {
		return nil // it was freed and has been assigned again since
	}
	return fmt.Errorf("%s is still allocated", a)
}

func ipConcern(r state.AllocationRef) repair.Concern {
	node := ""
	if attr := r.Attributes(); attr != nil {
		node = attr.Node
	}
	return repair.Concern{Target: state.IPSubject(r.Addr(), node), Pools: state.PoolsOf(r.Block.Pool), Nodes: []string{node, r.Block.Owner.Node()}}
}

// proposeIP evaluates one allocation. It skips owned allocations, except those that a reader may
// mistake for leaked.
func proposeIP(p *repair.Proposals, r state.AllocationRef) {
	v := p.State.Classify(r)
	c := ipConcern(r)
	switch {
	case v.Owned && v.Young:
		p.Refuse(c, repair.RefusedYoung, "%s%s", v.Why(), repair.OldFrom(p.State, state.AssignedAt(r)))
		return
	case v.Unknown:
		p.Refuse(c, repair.RefusedUnknownOwner, "its owner is not known: %s", v.Why())
		return
	case v.Owned && v.Shared:
		p.Refuse(c, repair.RefusedInUse, "%s", v.Why())
		return
	case v.Owned && state.UseKindOf(r.Block, r.Attributes()) == state.UseTunnel && p.State.Vanished(state.NodeOf(r.Attributes())):
		p.Refuse(c, repair.RefusedMachineMayRun, "%s; if the machine is off, confirm that with --terminated %s", v.Why(), phrase.Arg(state.NodeOf(r.Attributes())))
		return
	case v.Owned:
		if p.Only != "" {
			p.Refuse(c, repair.RefusedInUse, "%s", v.Why())
		}
		return
	}
	e := releasable.Of(p.State, consents(p.Request), r)
	if e.Code != "" {
		p.Refuse(c, retainCodes[e.Code], "no owner was found (%s), but %s", v.Why(), e.Reason)
		return
	}
	attr := r.Attributes()
	sequence, _ := r.Block.SequenceAt(r.Ordinal)
	p.Add(c, repair.Step{
		TwoObservations: true, Apart: apart(r),
		Because: fmt.Sprintf("%s is allocated, and its owner no longer exists: %s", r.Addr(), v.Why()),
		Evidence: state.Evidences("block", r.Block.CIDR, "owner of the block", r.Block.Owner, "handle", attr.Handle,
			"pod", podName(attr), "node", attr.Node, "type", attr.Extras().Type, "assigned", attr.Assigned, "not in use", e.Evidence, "consent", repair.OnlyIf(e.Consent, withoutHostEvidence)),
		Guards: repair.Guards(repair.GuardBlock, r.Block.Name, repair.GuardBlockUID, r.Block.UID(), repair.GuardHandle, attr.Handle, repair.GuardSequence, strconv.FormatUint(sequence, 10),
			repair.GuardAttributes, fmt.Sprintf("%016x", attr.Digest), repair.GuardMachineOff, e.Off),
	}, r.Block.Meta)
}

// apart is the minimum time between two observations of an allocation. Calico's own garbage
// collector keeps allocations of virtual machines for five minutes, regardless of its grace period,
// because a machine that migrates between clusters or is restored comes back under its name
// (kube-controllers pkg/controllers/node/ipam.go of Calico v3.32).
func apart(r state.AllocationRef) repair.Duration {
	if _, _, isVM := r.Attributes().VMOf(); isVM {
		return repair.Duration{Duration: 5 * time.Minute}
	}
	return repair.Duration{}
}

func podName(a *blocks.Attributes) string {
	if a.Pod == "" {
		return ""
	}
	return a.Namespace + "/" + a.Pod
}
