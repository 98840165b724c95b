package repair

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// releaseIP frees an address that nothing owns, as far as all evidence together
// goes, twice, and that nothing uses on its node, as far as that says: see evidence. Handle and sequence number pin the allocation itself: the block
// around it may change, for its node goes on using it.
var releaseIP = &stepKind{
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
				p.refuse(blockConcern(b), RefusedCorrupt, "its %s are not judged, because it contradicts itself: %s", audit.Plural(b.Used, "address"), b.Faults[0])
				continue
			}
			for i, o := range b.Ordinals {
				r := audit.AllocationRef{Block: b, Ordinal: i}
				if o != blocks.Free && (p.only == "" || r.Addr() == only) {
					p.proposeIP(r)
				}
			}
		}
	},
	refs: func(st *audit.State, s *Step) []blocks.Ref {
		r := newRefs(st)
		a, err := netip.ParseAddr(s.Target.IP)
		if err != nil {
			return r.out
		}
		r.one(blocks.Blocks, s.Guard(GuardBlock))
		r.handle(s.Guard(GuardHandle))
		r.node(s.Target.Node)
		if ref, ok := st.Allocation(a); ok {
			r.one(blocks.Blocks, ref.Block.Name)
			r.owner(ref)
			r.node(ref.Block.Owner.Node())
		}
		return r.out
	},
	do: func(ctx context.Context, w Writer, st *audit.State, s *Step) error {
		a, _ := netip.ParseAddr(s.Target.IP)
		r, ok := st.Allocation(a)
		attr := r.Attributes
		if !ok || attr() == nil || r.Block.Name != s.Guard(GuardBlock) || attr().Handle != s.Guard(GuardHandle) {
			return errGone(s)
		}
		sequence, _ := r.Block.SequenceAt(r.Ordinal)
		return w.ReleaseIP(ctx, pin(blocks.Blocks, r.Block.Meta), r.Ordinal, attr().Handle, sequence)
	},
	verify: func(st *audit.State, s *Step) error {
		if err := verifyIP(st, s); err != nil {
			return err
		}
		if err := hasReleasedBlock(st, s); err != nil {
			return err
		}
		return loweredHandle(st, s.Guard(GuardHandle))
	},
	asBefore: asBefore,
	pretend: func(x *pretence, step *Step) {
		if a, err := netip.ParseAddr(step.Target.IP); err == nil {
			x.free(step.Guard(GuardBlock), a)
		}
	},
}

// verifyIP is nil if the address is free, or was given to somebody since.
func verifyIP(st *audit.State, s *Step) error {
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

func ipConcern(r audit.AllocationRef) concern {
	node := ""
	if attr := r.Attributes(); attr != nil {
		node = attr.Node
	}
	return concern{audit.IPSubject(r.Addr(), node), poolNames(r.Block.Pool), []string{node, r.Block.Owner.Node()}}
}

// proposeIP judges one allocation. Those that something owns are passed over, but
// for the ones that a reader may take for leaked.
func (p *proposals) proposeIP(r audit.AllocationRef) {
	v := p.st.Judge(r)
	c := ipConcern(r)
	switch {
	case v.Owned && v.Young:
		p.refuse(c, RefusedYoung, "%s%s", v.Why, oldFrom(p.st, audit.AssignedAt(r)))
		return
	case v.Unknown:
		p.refuse(c, RefusedUnknownOwner, "who owns it is not known: %s", v.Why)
		return
	case v.Owned && v.Shared:
		p.refuse(c, RefusedInUse, "%s", v.Why)
		return
	case v.Owned:
		if p.only != "" {
			p.refuse(c, RefusedInUse, "%s", v.Why)
		}
		return
	}
	if code, why := p.mustNotFree(r); code != "" {
		p.refuse(c, code, "nothing seems to own it (%s), but %s", v.Why, why)
		return
	}
	e := evidenceFor(p.st, p.req, r)
	if e.code != "" {
		p.refuse(c, e.code, "nothing seems to own it (%s), but %s", v.Why, e.why)
		return
	}
	attr := r.Attributes()
	sequence, _ := r.Block.SequenceAt(r.Ordinal)
	p.add(c, Step{
		TwoObservations: true, Apart: apart(r),
		Because: fmt.Sprintf("%s is allocated, and nothing owns it: %s", r.Addr(), v.Why),
		Evidence: audit.Evidences("block", r.Block.CIDR.String(), "owner of the block", audit.OwnerText(r.Block.Owner), "handle", attr.Handle,
			"pod", podName(attr), "node", attr.Node, "type", attr.Type, "assigned", audit.FormatTime(attr.Assigned), "not in use", e.says, "consent", onlyIf(e.consent, withoutHostEvidence)),
		Guards: guards(GuardBlock, r.Block.Name, GuardBlockUID, r.Block.UID, GuardHandle, attr.Handle, GuardSequence, strconv.FormatUint(sequence, 10),
			GuardAttributes, fmt.Sprintf("%016x", attr.Digest), GuardMachineOff, e.off),
	}, r.Block.Meta)
}

// mustNotFree says why an address that nothing seems to own must not be freed; an
// empty code if it may.
func (p *proposals) mustNotFree(r audit.AllocationRef) (RefusalCode, string) {
	st, attr, b := p.st, r.Attributes(), r.Block
	if _, known := b.SequenceAt(r.Ordinal); !known && attr.HasHandle && attr.Handle != "" {
		return RefusedUnpinned, "its block records no sequence number for it, so nothing says later that it is still the same allocation"
	}
	switch {
	case !attr.HasHandle || attr.Handle == "":
		return RefusedUnpinned, "it has no handle, so nothing says later that it is still the same allocation"
	case st.IPAM.Cooldown > 0:
		return RefusedSpecial, fmt.Sprintf("Calico lets released addresses cool down here (ipCooldownSeconds, %s), and freed like this it would not", st.IPAM.Cooldown)
	case recordedTwice(st, b, r.Addr()):
		return RefusedConflict, "several blocks record it"
	}
	if h := st.Handle(attr.Handle); h != nil && st.HandleMayBeUsed(h) {
		return RefusedNotRead, "a block that cannot be judged may hold another address of its handle"
	}
	return "", ""
}

// apart is how far apart an allocation must be seen at least: Calico's own collector
// leaves those of virtual machines alone for five minutes, whatever its grace, since
// a machine that moves between clusters or is restored comes back under its name
// (kube-controllers pkg/controllers/node/ipam.go of Calico v3.32).
func apart(r audit.AllocationRef) Duration {
	if _, _, isVM := r.Attributes().VMOf(); isVM {
		return Duration{5 * time.Minute}
	}
	return Duration{}
}

// recordedTwice tells whether another block than this one records an address, too.
func recordedTwice(st *audit.State, b *audit.Block, a netip.Addr) bool {
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
