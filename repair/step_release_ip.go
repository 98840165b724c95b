package repair

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
	"github.com/calico-audit/calico-audit/blocks"
)

// releaseIP frees an address that nothing owns, as far as all evidence together
// goes, twice, and that nothing uses on its node, as far as that says: see evidence. Handle and sequence number pin the allocation itself: the block
// around it may change, for its node goes on using it.
var releaseIP = &StepKind{
	kind:  ReleaseIP,
	flag:  "--leaked-ips",
	asked: func(r Request) bool { return r.LeakedIPs },
	needs: []blocks.Resource{blocks.Blocks, blocks.Handles, blocks.Nodes, blocks.Pods, blocks.IPAMConfigs, blocks.Pools},
	exact: []string{GuardBlock, GuardBlockUID, GuardHandle, GuardSequence, GuardAttributes, GuardMachineOff},
	propose: func(p *proposals) {
		if p.podsUnread() {
			return
		}
		only, _ := netip.ParseAddr(strings.TrimPrefix(p.only, string(ReleaseIP)+":"))
		for _, b := range p.st.IPBlocks {
			switch {
			case p.only != "" && !b.CIDR.Contains(only):
				continue
			case len(b.Faults) > 0 && b.Used > 0:
				p.refuse(blockConcern(b), RefusedCorrupt, "its %s are not evaluated, because it contradicts itself: %s", phrase.Plural(b.Used, "address"), b.Faults[0])
				continue
			}
			for i, o := range b.Ordinals {
				r := state.AllocationRef{Block: b, Ordinal: i}
				if o != blocks.Free && (p.only == "" || r.Addr() == only) {
					p.proposeIP(r)
				}
			}
		}
	},
	refs: func(r *refs, s *Step) {
		a, err := netip.ParseAddr(s.Target.IP)
		if err != nil {
			return
		}
		r.one(blocks.Blocks, s.Guard(GuardBlock))
		r.handle(s.Guard(GuardHandle))
		r.node(s.Target.Node)
		if ref, ok := r.st.Allocation(a); ok {
			r.one(blocks.Blocks, ref.Block.Name)
			r.owner(ref)
			r.node(ref.Block.Owner.Node())
		}
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		return releaseTogether(ctx, w, st, []*Step{s})[0]
	},
	with:     func(s *Step) string { return s.Guard(GuardBlock) },
	together: releaseTogether,
	verify: func(st *state.State, s *Step) error {
		if err := verifyIP(st, s); err != nil {
			return err
		}
		if err := hasReleasedBlock(st, s); err != nil {
			return err
		}
		return loweredHandle(st, s.Guard(GuardHandle))
	},
	asBefore: asBefore,
	complete: func(b *Begun) Move {
		// A block of no one that became empty goes.
		if c := b.Log.first(blocks.Blocks); c != nil {
			for _, x := range b.State.IPBlocks {
				if x.Name == c.Name && x.UID == c.was().Metadata.UID && x.SoftDeleted && x.Used == 0 {
					return b.endMark(blocks.Blocks, x.Meta)
				}
			}
		}
		return b.lowerHandle()
	},
	undo: (*Begun).recordIP,
	pretend: func(x *pretence, step *Step) {
		if a, err := netip.ParseAddr(step.Target.IP); err == nil {
			x.free(step.Guard(GuardBlock), a)
		}
	},
}

// releaseTogether frees the addresses of one block, in one write.
func releaseTogether(ctx context.Context, w Writer, st *state.State, steps []*Step) []error {
	errs := make([]error, len(steps))
	var block ObjectRef
	var all []Release
	var at []int
	for i, s := range steps {
		a, _ := netip.ParseAddr(s.Target.IP)
		r, ok := st.Allocation(a)
		attr := r.Attributes
		if !ok || attr() == nil || r.Block.Name != s.Guard(GuardBlock) || attr().Handle != s.Guard(GuardHandle) || len(all) > 0 && r.Block.Name != block.Name {
			errs[i] = errGone(s)
			continue
		}
		sequence, _ := r.Block.SequenceAt(r.Ordinal)
		block, at = pin(blocks.Blocks, r.Block.Meta), append(at, i)
		all = append(all, Release{Step: s.ID, Ordinal: r.Ordinal, Handle: attr().Handle, Sequence: sequence})
	}
	if len(all) > 0 {
		for i, err := range w.ReleaseIPs(ctx, block, all) {
			errs[at[i]] = err
		}
	}
	return errs
}

// lowerHandle lowers the handle of an address that was freed, or deletes it, as far as
// the handle and the blocks now give reason for that: the same verdicts as
// --leaked-handles, without a second observation, for the run that broke off knew
// why the handle counts too many. What they do not allow is left.
func (b *Begun) lowerHandle() Move {
	h := b.State.Handle(b.Step.Guard(GuardHandle))
	if h == nil || verifyIP(b.State, b.Step) != nil {
		return Move{}
	}
	if h.SoftDeleted {
		return b.endHandle(h)
	}
	request := Request{LeakedHandles: true, AllowNewer: b.Request.AllowNewer}
	for _, kind := range []*StepKind{deleteHandle, fixHandleCount} {
		if derived, _ := kind.derive(b.State, request, stepID(kind.kind, state.HandleSubject(h.ID))); derived != nil {
			return toWrite(func(ctx context.Context) error { return kind.do(ctx, b.Writer, b.State, derived) }, "lowering the address's handle")
		}
	}
	return Move{}
}

// recordIP records the address again, if it is still free in the same block.
func (b *Begun) recordIP() Move {
	c := b.Log.first(blocks.Blocks)
	if c == nil || c.Before == nil {
		return cannot(SkipUnknown, "the journal does not hold the block")
	}
	was := c.was()
	x := blockAt(b.State, was.Spec.CIDR)
	switch {
	case x == nil:
		return cannot(SkipGone, "its block %s does not exist any more", was.Spec.CIDR)
	case x.UID != was.Metadata.UID:
		return cannot(SkipChanged, "its block %s was deleted and created again since", was.Spec.CIDR)
	case x.SoftDeleted:
		return cannot(SkipChanged, "its block %s is marked deleted", was.Spec.CIDR)
	case len(x.Faults) > 0:
		return cannot(SkipCode(RefusedCorrupt), "its block is corrupt: %s", x.Faults[0])
	}
	addr, err := netip.ParseAddr(b.Step.Target.IP)
	ordinal, ok := x.Ordinal(addr)
	if err != nil || !ok {
		return cannot(SkipUnknown, "%q is not an address of %s", b.Step.Target.IP, was.Spec.CIDR)
	}
	if x.Ordinals[ordinal] != blocks.Free {
		if at := x.At(ordinal); at != nil && at.Handle == b.Step.Guard(GuardHandle) {
			return nothing(Already, "the address is recorded again")
		}
		return cannot(SkipCode(RefusedInUse), "the address was given to somebody else since")
	}
	if !b.Log.Freed {
		return cannot(SkipUnknown, "the address is free, and the journal does not show that it was freed here: its node may have released it, and recorded again it would be leaked")
	}
	ref := pin(blocks.Blocks, x.Meta)
	var handle json.RawMessage
	if h := b.Log.first(blocks.Handles); h != nil {
		handle = h.Before
	}
	return toWrite(func(ctx context.Context) error {
		return b.Writer.RecordIP(ctx, ref, ordinal, Allocation{Block: c.Before, Stored: handle})
	}, "record the address as allocated again")
}

// verifyIP is nil if the address is free, or was given to somebody since.
func verifyIP(st *state.State, s *Step) error {
	a, err := netip.ParseAddr(s.Target.IP)
	if err != nil {
		return err
	}
	r, allocated := st.Allocation(a)
	if !allocated {
		return nil
	}
	was, err := strconv.ParseUint(s.Guard(GuardSequence), 10, 64)
	now, known := r.Block.SequenceAt(r.Ordinal)
	if err == nil && known && now > was {
		return nil // it was freed, and given to somebody since
	}
	return fmt.Errorf("%s is still allocated", a)
}

func ipConcern(r state.AllocationRef) concern {
	node := ""
	if attr := r.Attributes(); attr != nil {
		node = attr.Node
	}
	return concern{state.IPSubject(r.Addr(), node), poolNames(r.Block.Pool), []string{node, r.Block.Owner.Node()}}
}

// proposeIP judges one allocation. Those that something owns are passed over, but
// for the ones that a reader may take for leaked.
func (p *proposals) proposeIP(r state.AllocationRef) {
	v := p.st.Classify(r)
	c := ipConcern(r)
	switch {
	case v.Owned && v.Young:
		p.refuse(c, RefusedYoung, "%s%s", v.Why, oldFrom(p.st, state.AssignedAt(r)))
		return
	case v.Unknown:
		p.refuse(c, RefusedUnknownOwner, "who owns it is not known: %s", v.Why)
		return
	case v.Owned && v.Shared:
		p.refuse(c, RefusedInUse, "%s", v.Why)
		return
	case v.Owned && state.UseKindOf(r.Block, r.Attributes()) == state.UseTunnel && p.st.Vanished(state.NodeOf(r.Attributes())):
		p.refuse(c, RefusedMachineMayRun, "%s; if the machine is off, say so with --terminated %s", v.Why, phrase.Arg(state.NodeOf(r.Attributes())))
		return
	case v.Owned:
		if p.only != "" {
			p.refuse(c, RefusedInUse, "%s", v.Why)
		}
		return
	}
	e := evidenceFor(p.st, p.req, r)
	if no := cmp.Or(p.mustNotFree(r), e.reason); no.code != "" {
		p.refuse(c, no.code, "nothing seems to own it (%s), but %s", v.Why, no.why)
		return
	}
	attr := r.Attributes()
	sequence, _ := r.Block.SequenceAt(r.Ordinal)
	p.add(c, Step{
		TwoObservations: true, Apart: apart(r),
		Because: fmt.Sprintf("%s is allocated, and nothing owns it: %s", r.Addr(), v.Why),
		Evidence: state.Evidences("block", r.Block.CIDR.String(), "owner of the block", phrase.Owner(r.Block.Owner), "handle", attr.Handle,
			"pod", podName(attr), "node", attr.Node, "type", attr.Type, "assigned", phrase.Time(attr.Assigned), "not in use", e.says, "consent", onlyIf(e.consent, withoutHostEvidence)),
		Guards: guards(GuardBlock, r.Block.Name, GuardBlockUID, r.Block.UID, GuardHandle, attr.Handle, GuardSequence, strconv.FormatUint(sequence, 10),
			GuardAttributes, fmt.Sprintf("%016x", attr.Digest), GuardMachineOff, e.off),
	}, r.Block.Meta)
}

// mustNotFree says why an address that nothing seems to own must not be freed; an
// empty code if it may.
func (p *proposals) mustNotFree(r state.AllocationRef) reason {
	st, attr, b := p.st, r.Attributes(), r.Block
	if _, known := b.SequenceAt(r.Ordinal); !known && attr.HasHandle && attr.Handle != "" {
		return reason{RefusedUnpinned, "its block records no sequence number for it, so nothing says later that it is still the same allocation"}
	}
	switch {
	case !attr.HasHandle || attr.Handle == "":
		return reason{RefusedUnpinned, "it has no handle, so nothing says later that it is still the same allocation"}
	case st.IPAM.Cooldown > 0:
		return because(RefusedSpecial, "Calico lets released addresses cool down here (ipCooldownSeconds, %s), and freed like this it would not", st.IPAM.Cooldown)
	case recordedTwice(st, b, r.Addr()):
		return reason{RefusedConflict, "several blocks record it"}
	}
	if h := st.Handle(attr.Handle); h != nil && st.HandleMayBeUsed(h) {
		return reason{RefusedNotRead, "a block that cannot be evaluated may hold another address of its handle"}
	}
	return reason{}
}

// apart is how far apart an allocation must be seen at least: Calico's own collector
// leaves those of virtual machines alone for five minutes, whatever its grace, since
// a machine that moves between clusters or is restored comes back under its name
// (kube-controllers pkg/controllers/node/ipam.go of Calico v3.32).
func apart(r state.AllocationRef) Duration {
	if _, _, isVM := r.Attributes().VMOf(); isVM {
		return Duration{5 * time.Minute}
	}
	return Duration{}
}

// recordedTwice reports whether another block than this one records an address, too.
func recordedTwice(st *state.State, b *state.Block, a netip.Addr) bool {
	if st.BlockObjects(b.CIDR) > 1 {
		return true
	}
	for bits := range a.BitLen() + 1 {
		if p, err := a.Prefix(bits); err == nil && p != b.CIDR && st.BlockOf(p) != nil {
			return true
		}
	}
	return false
}

func podName(a *blocks.Attributes) string {
	if a.Pod == "" {
		return ""
	}
	return a.Namespace + "/" + a.Pod
}
