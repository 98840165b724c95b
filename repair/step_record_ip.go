package repair

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// recordIP records an address that a live pod uses and no block records, as after the
// datastore was restored from a backup: unrecorded, it would be handed out a second
// time. It is recorded as Calico's CNI plugin would have done, under the handle of the
// pod's sandbox, by which the plugin releases it.
var recordIP = &StepKind{
	kind:  RecordIP,
	flag:  "--unrecorded-ips",
	asked: func(r Request) bool { return r.UnrecordedIPs },
	needs: []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.Nodes, blocks.Pods, blocks.Pools},
	exact: []string{GuardHandle, GuardPod},
	loose: map[string]func(*state.State, *Step, *Step) bool{
		GuardBlock: sameOrClaimed, GuardBlockUID: sameOrClaimed, GuardSlot: sameOrClaimed, GuardClaim: sameOrClaimed, GuardBeside: sameOrClaimed,
	},
	propose: func(p *proposals) {
		if p.podsUnread() {
			return
		}
		var all []state.UnrecordedIP
		p.st.EachUnrecorded(func(u state.UnrecordedIP) { all = append(all, u) })
		p.st.Recordable(all)
		for i := range all {
			if u := &all[i]; p.wants(unrecordedConcern(u).target) {
				p.proposeRecord(u)
			}
		}
	},
	refs: func(r *refs, s *Step) {
		a, _ := netip.ParseAddr(s.Target.IP)
		r.handle(s.Guard(GuardHandle))
		r.node(s.Target.Node)
		r.claim(recordedIn(r.st, a), s.Guard(GuardClaim))
		r.st.EachLiveUse(func(used netip.Addr, users []state.LiveUse) {
			for _, u := range users {
				if used == a && u.Pod != nil {
					r.pod(u.Pod.Namespace, u.Pod.Name)
				}
			}
		})
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		a, _ := netip.ParseAddr(s.Target.IP)
		u := unrecordedAt(st, a)
		if u == nil || u.Held != "" || u.Handle != s.Guard(GuardHandle) {
			return errGone(s)
		}
		record := Allocation{Handle: u.Handle, Attributes: attributesFor(st, u)}
		if u.Block == nil {
			record.Claim, record.Host = u.Slot, u.Host
			for _, x := range u.Beside {
				if x.Addr != a {
					record.Beside = append(record.Beside, Beside{ordinalIn(x.Slot, x.Addr), x.Handle, attributesFor(st, x)})
				}
			}
			return w.RecordIP(ctx, ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(u.Slot)}, ordinalIn(u.Slot, a), record)
		}
		ordinal, _ := u.Block.Ordinal(a)
		return w.RecordIP(ctx, pin(blocks.Blocks, u.Block.Meta), ordinal, record)
	},
	verify: func(st *state.State, s *Step) error {
		a, err := netip.ParseAddr(s.Target.IP)
		if err != nil {
			return err
		}
		id := s.Guard(GuardHandle)
		r, allocated := st.Allocation(a)
		if !allocated || r.Attributes() == nil || r.Attributes().Handle != id {
			return fmt.Errorf("%s is not recorded under handle %s", a, id)
		}
		if h := st.Handle(id); h == nil || h.SoftDeleted {
			return left(blocks.Blocks, r.Block.Name, "records %s under handle %s, which does not exist", a, id)
		}
		if a := unconfirmedClaim(st, s); a != nil {
			return left(blocks.Affinities, a.Name, "is left %s, and its block names %s", leftState(a), s.Guard(GuardClaim))
		}
		return ownersAffinity(st, r.Block.CIDR.String(), s.Guard(GuardClaim))
	},
	// What was begun is brought to its end also by an undo: the pod uses the address.
	complete: func(b *Begun) Move {
		if verifyKind(b) == nil {
			return Move{}
		}
		if unconfirmedClaim(b.State, b.Step) != nil {
			return toWrite(func(ctx context.Context) error {
				return b.Writer.ClaimBlock(ctx, prefixOf(state.Subject{CIDR: b.Step.Guard(GuardSlot)}), b.Step.Guard(GuardClaim))
			}, "confirming the affinity to its block")
		}
		if derived, _ := b.Kind.derive(b.State, b.Request, b.Step.ID); derived != nil {
			return toWrite(func(ctx context.Context) error { return b.Kind.do(ctx, b.Writer, b.State, derived) }, "recording the address")
		}
		return b.lowerHandle()
	},
	undo: func(b *Begun) Move {
		if verifyKind(b) != nil {
			return nothing(Already, "the address is not recorded under its handle any more")
		}
		return cannot(SkipHarm, "the address is not taken out of its block again: unrecorded, it would be handed out a second time; once its pod has gone, --leaked-ips releases it")
	},
	pretend: func(x *pretence, step *Step) {
		a, _ := netip.ParseAddr(step.Target.IP)
		x.record(step, a)
	},
}

// sameOrClaimed reports whether an address is in the block that the plan says, or in the one
// that an earlier step of it, or its node, has claimed for the node that the plan names.
func sameOrClaimed(st *state.State, planned, now *Step) bool {
	same := true
	for _, g := range []string{GuardBlock, GuardBlockUID, GuardSlot, GuardClaim, GuardBeside} {
		same = same && planned.Guard(g) == now.Guard(g)
	}
	b := blockAt(st, planned.Guard(GuardSlot))
	return same || planned.Guard(GuardBlock) == Absent && b != nil && b.Name == now.Guard(GuardBlock) && b.Owner.Node() == planned.Guard(GuardClaim)
}

// unconfirmedClaim returns the affinity of the node that a step claims a block for, if the
// block is its and the affinity is there and not confirmed; nil otherwise.
func unconfirmedClaim(st *state.State, s *Step) *blocks.Affinity {
	b := blockAt(st, s.Guard(GuardSlot))
	if b == nil || b.SoftDeleted || s.Guard(GuardClaim) == "" || b.Owner.Node() != s.Guard(GuardClaim) {
		return nil
	}
	if a := ownAffinity(st, b); a != nil && !a.SoftDeleted && a.Effective() != blocks.Confirmed {
		return a
	}
	return nil
}

// attributesFor are those that the CNI plugin gives a pod's address (cni-plugin
// pkg/ipamplugin/ipam_plugin.go, cmdAdd).
func attributesFor(st *state.State, u *state.UnrecordedIP) map[string]string {
	pod := u.Users[0].Pod
	return map[string]string{"pod": pod.Name, "namespace": pod.Namespace, "node": pod.Node, "timestamp": st.Cluster.TakenAt.UTC().String()}
}

func verifyKind(b *Begun) error { return b.Kind.verify(b.State, b.Step) }

// recordedIn is the CIDR of the block that an address is in, or would be in if one were
// claimed for it now.
func recordedIn(st *state.State, a netip.Addr) netip.Prefix {
	if b := st.CoveringBlock(a); b != nil {
		return b.CIDR
	}
	if pool := st.EnabledPool(a); pool != nil {
		return netip.PrefixFrom(a, pool.BlockSize).Masked()
	}
	return netip.Prefix{}
}

// unrecordedAt returns an unrecorded address with its verdict; nil if it is recorded, or
// not in use.
func unrecordedAt(st *state.State, a netip.Addr) *state.UnrecordedIP {
	var all []state.UnrecordedIP
	st.EachUnrecorded(func(u state.UnrecordedIP) { all = append(all, u) })
	st.Recordable(all)
	return find(all, func(u *state.UnrecordedIP) bool { return u.Addr == a })
}

// ordinalIn is the place of an address in a block.
func ordinalIn(block netip.Prefix, a netip.Addr) int {
	b := blocks.Block{CIDR: block, Ordinals: make([]int32, 1<<min(16, a.BitLen()-block.Bits()))}
	ordinal, _ := b.Ordinal(a)
	return ordinal
}

func unrecordedConcern(u *state.UnrecordedIP) concern {
	c := concern{state.IPSubject(u.Addr, u.Users[0].Node), poolNames(u.Pool), []string{u.Host}}
	for _, x := range u.Users {
		c.nodes = append(c.nodes, x.Node)
	}
	if u.Block != nil {
		c.nodes = append(c.nodes, u.Block.Owner.Node())
	}
	return c
}

func (p *proposals) proposeRecord(u *state.UnrecordedIP) {
	c := unrecordedConcern(u)
	if u.Held != "" {
		why := u.Held
		if w := u.Users[0].Pod; u.Code == state.RetainYoung && w != nil {
			why += oldFrom(p.st, w.Created)
		}
		p.refuse(c, retainCodes[u.Code], "%s", why)
		return
	}
	pod := u.Users[0].Pod
	block, uid, slot, claim, pinned := Absent, Absent, u.Slot.String(), u.Host, []blocks.Meta{}
	var beside []string
	for _, x := range u.Beside {
		beside = append(beside, x.Addr.String()+"="+x.Handle)
	}
	says := fmt.Sprintf("does not exist: %s is claimed for %s, and created with %s in use there", u.Slot, u.Host, phrase.Plural(len(beside), "address"))
	if u.Block != nil {
		block, uid, slot, claim, pinned = u.Block.Name, u.Block.UID, "", "", append(pinned, u.Block.Meta)
		says = fmt.Sprintf("%s of %s", u.Block.CIDR, phrase.Owner(u.Block.Owner))
	}
	p.add(c, Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("pod %s on %s uses %s, and no block records it: it would be handed out a second time", pod.FullName(), pod.Node, u.Addr),
		Evidence: state.Evidences("pod", pod.FullName(), "node", pod.Node, "by evidence of", u.Users[0].Source, "block", says,
			"handle", u.Handle, "pool", poolName(u.Pool)),
		Guards: guards(GuardBlock, block, GuardBlockUID, uid, GuardSlot, slot, GuardClaim, claim, GuardBeside, strings.Join(beside, " "), GuardHandle, u.Handle, GuardPod, pod.FullName()),
	}, pinned...)
}

// record allocates an address, in a block that is claimed for it where there is none.
func (x *pretence) record(s *Step, a netip.Addr) {
	name := s.Guard(GuardBlock)
	if name == Absent {
		name = blocks.BlockName(prefixOf(state.Subject{CIDR: s.Guard(GuardSlot)}))
	}
	b := x.blocks[name]
	if b == nil {
		b = x.claim(prefixOf(state.Subject{CIDR: s.Guard(GuardSlot)}), s.Guard(GuardClaim))
	}
	i, ok := b.Ordinal(a)
	if !ok || b.Ordinals[i] != blocks.Free {
		return
	}
	b.Ordinals, b.Attributes = slices.Clone(b.Ordinals), slices.Clone(b.Attributes)
	b.Ordinals[i] = int32(len(b.Attributes))
	b.Attributes = append(b.Attributes, blocks.Attributes{
		Handle: s.Guard(GuardHandle), HasHandle: true, Node: s.Target.Node, Assigned: x.Cluster.Taken(),
	})
	b.Unallocated = slices.DeleteFunc(slices.Clone(b.Unallocated), func(o int32) bool { return int(o) == i })
	b.OrdinalSequences = append(slices.Clone(b.OrdinalSequences), blocks.OrdinalSequence{Ordinal: int32(i), Sequence: b.Sequence})
	b.Sequence++
	b.Written = x.Cluster.Taken()
	x.count(s.Guard(GuardHandle), b.CIDR)
}
