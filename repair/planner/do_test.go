package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// callLog is a writer that only records its calls.
type callLog struct {
	repair.Writer
	calls []string
	fail  map[string]error
}

func (c *callLog) note(format string, args ...any) error {
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
	name, _, _ := strings.Cut(format, " ")
	return c.fail[name]
}

func refText(r *repair.ObjectRef) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%s/%s@%s:%s", r.Resource, r.Name, r.UID, r.ResourceVersion)
}

func (c *callLog) ReleaseBlock(_ context.Context, b repair.ObjectRef, a, keeps *repair.ObjectRef) error {
	return c.note("ReleaseBlock %s %s keeps %s", refText(&b), refText(a), refText(keeps))
}
func (c *callLog) DisownBlock(_ context.Context, b repair.ObjectRef, a *repair.ObjectRef) error {
	return c.note("DisownBlock %s %s", refText(&b), refText(a))
}
func (c *callLog) CreateHandle(_ context.Context, id string, counts []blocks.HandleCount) error {
	return c.note("CreateHandle %s %s", id, countsGuard(counts))
}
func (c *callLog) RecordIP(_ context.Context, b repair.ObjectRef, ordinal int, a repair.Allocation) error {
	beside := ""
	for _, x := range a.Beside {
		beside += fmt.Sprintf(" with %d", x.Ordinal)
	}
	return c.note("RecordIP %s %d %s %v %s %s%s", refText(&b), ordinal, a.Handle, a.Attributes, a.Claim, a.Host, beside)
}
func (c *callLog) DeleteAffinity(_ context.Context, a repair.ObjectRef) error {
	return c.note("DeleteAffinity %s", refText(&a))
}
func (c *callLog) RestoreAffinity(_ context.Context, b repair.ObjectRef) error {
	return c.note("RestoreAffinity %s", refText(&b))
}
func (c *callLog) ReleaseIPs(_ context.Context, b repair.ObjectRef, all []repair.ReleaseOptions) (errs []error) {
	for _, r := range all {
		errs = append(errs, c.note("ReleaseIP %s %d %s %d", refText(&b), r.Ordinal, r.Handle, r.Sequence))
	}
	return errs
}
func (c *callLog) DeleteHandle(_ context.Context, h repair.ObjectRef) error {
	return c.note("DeleteHandle %s", refText(&h))
}
func (c *callLog) SetHandleCounts(_ context.Context, h repair.ObjectRef, counts []blocks.HandleCount) error {
	return c.note("SetHandleCounts %s %s", refText(&h), countsGuard(counts))
}
func (c *callLog) FinishDelete(_ context.Context, o repair.ObjectRef) error {
	return c.note("FinishDelete %s", refText(&o))
}
func entryText(e repair.SecondaryAddress) string {
	return strings.TrimSuffix(fmt.Sprintf("%s+%d of %s %s %s", e.Pool, e.Offset, e.Owner.Pod, e.Owner.Container, e.Owner.Interface), " of   ")
}

func (c *callLog) ReleaseWhereabouts(_ context.Context, p repair.ObjectRef, e repair.SecondaryAddress, r *repair.ObjectRef, beside []repair.SecondaryAddress) error {
	return c.note("ReleaseWhereabouts %s: %s, %s, beside %d", refText(&p), entryText(e), refText(r), len(beside))
}
func (c *callLog) DeleteWhereaboutsReservation(_ context.Context, r repair.ObjectRef, at []repair.SecondaryAddress) error {
	return c.note("DeleteWhereaboutsReservation %s, places %d", refText(&r), len(at))
}
func (c *callLog) ReserveWhereabouts(_ context.Context, stored json.RawMessage, at []repair.SecondaryAddress) error {
	return c.note("ReserveWhereabouts %s, places %d", stored, len(at))
}
func (c *callLog) RestoreWhereabouts(_ context.Context, p repair.ObjectRef, e repair.SecondaryAddress, r repair.ObjectRef) error {
	return c.note("RestoreWhereabouts %s: %s, %s", refText(&p), entryText(e), refText(&r))
}
func (c *callLog) RecordWhereabouts(_ context.Context, p *repair.ObjectRef, offset uint64, was, reservation json.RawMessage) error {
	return c.note("RecordWhereabouts %s+%d, entry %t, reservation %t", refText(p), offset, was != nil, reservation != nil)
}
func (c *callLog) ClaimBlock(_ context.Context, cidr netip.Prefix, host string) error {
	return c.note("ClaimBlock %s %s", cidr, host)
}
func (c *callLog) PutAffinityState(_ context.Context, a repair.ObjectRef, s blocks.AffinityState) error {
	return c.note("PutAffinityState %s %s", refText(&a), s)
}
func (c *callLog) RecreateHandle(_ context.Context, stored json.RawMessage) error {
	return c.note("RecreateHandle %s", stored)
}
func (c *callLog) SetStrictAffinity(_ context.Context, config *repair.ObjectRef, strict bool) error {
	return c.note("SetStrictAffinity %s %t", refText(config), strict)
}

const oneOfEach = `
config rv=90
pool pods 10.0.0.0/16
node n1
node n2
pod shop/x n1 10.0.0.2
block 10.0.0.0/26 n1 rv=10
affinity 10.0.0.0/26 n1
alloc 10.0.0.1 pod=shop/gone node=n1 handle=k8s-pod-network.a seq=20
alloc 10.0.0.2 pod=shop/x node=n1 handle=k8s-pod-network.x
handle k8s-pod-network.x rv=30
handle k8s-pod-network.gone rv=40
block 10.0.1.0/26 n1 rv=50
affinity 10.0.1.0/26 n1 rv=51
block 10.0.2.0/26 - rv=60
affinity 10.0.3.0/26 n2 rv=70
block 10.0.4.0/26 n2 rv=80
use 10.0.4.1 shop/y n2
block 10.0.5.0/26 n1 deleted rv=100
affinity 10.0.5.0/26 n1 rv=101
block 10.0.6.0/26 n1 deleted rv=102
affinity 10.0.7.0/26 n2 deleted rv=103
handle k8s-pod-network.marked deleted rv=104
block 10.0.8.0/26 off rv=110
affinity 10.0.8.0/26 off rv=111
use 10.0.8.1 shop/z n1
pod shop/r n1 10.0.0.9 cid=r
pod shop/s n2 10.0.9.9 cid=s
view n1 complete
`

// TestDo: each step calls the writer with objects of the present state, not of the plan.
func TestDo(t *testing.T) {
	on := true
	req := everything
	req.StrictAffinity = &on
	p := Build(parseState(t, oneOfEach, 0), req)
	later := parseState(t, strings.ReplaceAll(oneOfEach, "rv=", "rv=9"), 0)
	log := &callLog{}
	for i := range p.Steps {
		if err := KindOf(p.Steps[i].Kind).Do(t.Context(), log, later, &p.Steps[i]); err != nil {
			t.Errorf("%s: %v", p.Steps[i].ID, err)
		}
	}
	want := []string{
		"RestoreAffinity ipamblocks/10-0-4-0-26@uid-10-0-4-0-26:980",
		"DeleteAffinity blockaffinities/n2-10.0.3.0/26@uid-n2-10.0.3.0/26:970",
		"FinishDelete ipamhandles/k8s-pod-network.marked@uid-k8s-pod-network.marked:9104",
		"FinishDelete ipamblocks/10-0-5-0-26@uid-10-0-5-0-26:9100",
		"DeleteAffinity blockaffinities/n1-10.0.5.0/26@uid-n1-10.0.5.0/26:9101",
		"FinishDelete ipamblocks/10-0-6-0-26@uid-10-0-6-0-26:9102",
		"FinishDelete blockaffinities/n2-10.0.7.0/26@uid-n2-10.0.7.0/26:9103",
		"ReleaseBlock ipamblocks/10-0-1-0-26@uid-10-0-1-0-26:950 blockaffinities/n1-10.0.1.0/26@uid-n1-10.0.1.0/26:951 keeps ipamblocks/10-0-0-0-26@uid-10-0-0-0-26:910",
		"ReleaseBlock ipamblocks/10-0-2-0-26@uid-10-0-2-0-26:960 none keeps none",
		"DisownBlock ipamblocks/10-0-8-0-26@uid-10-0-8-0-26:9110 blockaffinities/off-10.0.8.0/26@uid-off-10.0.8.0/26:9111",
		"CreateHandle k8s-pod-network.a 10.0.0.0/26=1",
		"CreateHandle k8s-pod-network.shop/y 10.0.4.0/26=1",
		"CreateHandle k8s-pod-network.shop/z 10.0.8.0/26=1",
		"SetHandleCounts ipamhandles/k8s-pod-network.x@uid-k8s-pod-network.x:930 10.0.0.0/26=1",
		"RecordIP ipamblocks/10-0-0-0-26@uid-10-0-0-0-26:910 9 k8s-pod-network.r map[namespace:shop node:n1 pod:r timestamp:2026-01-02 12:00:00 +0000 UTC] invalid Prefix ",
		"RecordIP ipamblocks/10-0-9-0-26@: 9 k8s-pod-network.s map[namespace:shop node:n2 pod:s timestamp:2026-01-02 12:00:00 +0000 UTC] 10.0.9.0/26 n2",
		"ReleaseIP ipamblocks/10-0-0-0-26@uid-10-0-0-0-26:910 1 k8s-pod-network.a 20",
		"DeleteHandle ipamhandles/k8s-pod-network.gone@uid-k8s-pod-network.gone:940",
		"SetStrictAffinity ipamconfigs/default@uid-default:990 true",
	}
	if diff := cmp.Diff(want, log.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}

	// A missing object is not written and is reported as changed.
	log = &callLog{}
	empty := parseState(t, "node n1", 0)
	for i := range p.Steps {
		s := &p.Steps[i]
		err := KindOf(s.Kind).Do(t.Context(), log, empty, s)
		if s.Kind != repair.SetStrictAffinity && !errors.Is(err, repair.ErrChanged) {
			t.Errorf("%s of an object that is gone: %v", s.ID, err)
		}
	}
	if diff := cmp.Diff([]string{"SetStrictAffinity none true"}, log.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestFinishBlockHalfWay: a step that deleted a marked block but not its affinity does not count as
// unwritten. The next reading shows whether the affinity has changed since.
func TestFinishBlockHalfWay(t *testing.T) {
	st := parseState(t, oneOfEach, 0)
	s, _ := Derive(st, everything, "finish-delete:IPAMBlock:10.0.5.0/26")
	if s == nil {
		t.Fatal("no such step")
	}
	for _, c := range []struct {
		fail error
		ok   bool
	}{{repair.ErrChanged, true}, {errors.New("connection refused"), false}} {
		err := KindOf(repair.FinishDelete).Do(t.Context(), &callLog{fail: map[string]error{"DeleteAffinity": c.fail}}, st, s)
		if (err == nil) != c.ok || errors.Is(err, repair.ErrChanged) {
			t.Errorf("the affinity's deletion fails with %v: %v", c.fail, err)
		}
	}
	if err := KindOf(repair.FinishDelete).Do(t.Context(), &callLog{fail: map[string]error{"FinishDelete": repair.ErrChanged}}, st, s); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("the block's deletion fails with %v: %v", repair.ErrChanged, err)
	}
}

// TestWorldMovesOn: a step is refused if the state has changed and no longer allows it.
func TestWorldMovesOn(t *testing.T) {
	for _, c := range []struct {
		name, id, before, after string
		code                    repair.RefusalCode
	}{
		{
			"the node came back under its name, and this is its last block", "release-block:10.0.0.0/26",
			"pool p 10.0.0.0/24\nnode n2\npod a/b n2\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1",
			"pool p 10.0.0.0/24\nnode n2\nnode n1 age=1m\npod a/b n2\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1", repair.RefusedLastBlock,
		},
		{
			"the node came back, and its tunnel's address with it", "release-ip:10.0.0.9",
			"pool p 10.0.0.0/24\nnode n2\npod a/b n2\nblock 10.0.0.0/26 n2\naffinity 10.0.0.0/26 n2\nalloc 10.0.0.9 node=n1 type=vxlanTunnelAddress handle=vxlan-tunnel-addr-n1",
			"pool p 10.0.0.0/24\nnode n2\nnode n1\npod a/b n2\nblock 10.0.0.0/26 n2\naffinity 10.0.0.0/26 n2\nalloc 10.0.0.9 node=n1 type=vxlanTunnelAddress handle=vxlan-tunnel-addr-n1", repair.RefusedInUse,
		},
		{
			"the machine that was off is Ready again", "release-ip:10.0.0.9",
			"pool p 10.0.0.0/24\nnode n1 notready\npod a/b n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\nalloc 10.0.0.9 pod=a/gone node=n1 handle=h",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\nalloc 10.0.0.9 pod=a/gone node=n1 handle=h", repair.RefusedNoEvidence,
		},
		{
			"a view shows it by now", "release-ip:10.0.0.9",
			"pool p 10.0.0.0/24\nnode n2\npod a/b n2\nblock 10.0.0.0/26 n2\naffinity 10.0.0.0/26 n2\nalloc 10.0.0.9 pod=a/gone node=n2 handle=h\nview n2 complete",
			"pool p 10.0.0.0/24\nnode n2\npod a/b n2\nblock 10.0.0.0/26 n2\naffinity 10.0.0.0/26 n2\nalloc 10.0.0.9 pod=a/gone node=n2 handle=h\nview n2 complete\nnetns n2 1 10.0.0.9", repair.RefusedHostView,
		},
		{
			"the view is older than ten minutes by now", "release-ip:10.0.0.9",
			"pool p 10.0.0.0/24\nnode n2\npod a/b n2\nblock 10.0.0.0/26 n2\naffinity 10.0.0.0/26 n2\nalloc 10.0.0.9 pod=a/gone node=n2 handle=h\nview n2 complete age=10m",
			"pool p 10.0.0.0/24\nnode n2\npod a/b n2\nblock 10.0.0.0/26 n2\naffinity 10.0.0.0/26 n2\nalloc 10.0.0.9 pod=a/gone node=n2 handle=h\nview n2 complete age=10m1s", repair.RefusedNoEvidence,
		},
		{
			"the other block went first", "release-block:10.0.0.64/26",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\nblock 10.0.0.64/26 n1\naffinity 10.0.0.64/26 n1",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\nblock 10.0.0.64/26 n1\naffinity 10.0.0.64/26 n1", repair.RefusedLastBlock,
		},
		{
			"the claim was completed", "delete-affinity:n1:10.0.0.0/26",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\naffinity 10.0.0.0/26 n1",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\naffinity 10.0.0.0/26 n1\nblock 10.0.0.0/26 n1 age=1m", repair.RefusedInUse,
		},
		{
			"a pod of the sandbox is starting", "delete-handle:k8s-pod-network.c",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\nhandle k8s-pod-network.c",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1 cid=c phase=Pending\nhandle k8s-pod-network.c", repair.RefusedInUse,
		},
		{
			"the block is given out again", "finish-delete:IPAMBlock:10.0.0.0/26",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\nblock 10.0.0.0/26 n1 deleted",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\nblock 10.0.0.0/26 n1 deleted\nuse 10.0.0.1 a/c n1", repair.RefusedInUse,
		},
		{
			"somebody else claims it", "restore-affinity:10.0.0.0/26",
			"pool p 10.0.0.0/24\nnode n1\npod a/b n1\nblock 10.0.0.0/26 n1",
			"pool p 10.0.0.0/24\nnode n1\nnode n2\npod a/b n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n2 age=1m", repair.RefusedConflict,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := everything
			req.Terminated = []string{"n1"}
			if s, r := Derive(parseState(t, c.before, 0), req, c.id); s == nil {
				t.Fatalf("%s is not planned at first: %+v", c.id, r)
			}
			s, r := Derive(parseState(t, c.after, 0), req, c.id)
			if s != nil || r == nil || r.Code != c.code {
				t.Errorf("%s comes out as %v, %+v; want it refused: %s", c.id, s, r, c.code)
			}
		})
	}
}
