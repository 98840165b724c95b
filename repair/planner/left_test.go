package planner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// leftovers are states in which a step's target is as intended, but a part of the step's protocol
// is left over. want is the reported leftover, or "" for none. All steps are planned from the same
// state.
const beforeLeftovers = `
pool pods 10.0.0.0/24 size=28
node n1
node n3
pod shop/x n1 10.0.0.1
block 10.0.0.0/28 n1
affinity 10.0.0.0/28 n1
alloc 10.0.0.1 pod=shop/x node=n1 handle=k8s-pod-network.x
handle k8s-pod-network.x 10.0.0.0/28=3
alloc 10.0.0.2 pod=shop/gone node=n1 handle=k8s-pod-network.gone seq=20
alloc 10.0.0.3 pod=shop/gone node=n1 handle=k8s-pod-network.gone seq=21
handle k8s-pod-network.gone 10.0.0.0/28=2
block 10.0.0.16/28 n1
affinity 10.0.0.16/28 n1
affinity 10.0.0.32/28 n3
block 10.0.0.48/28 n1
block 10.0.0.64/28 n1 deleted
affinity 10.0.0.64/28 n1
affinity 10.0.0.80/28 n3 deleted
handle k8s-pod-network.marked deleted
handle k8s-pod-network.leaked
block 10.0.0.96/28 -
alloc 10.0.0.97 pod=shop/late node=n1 handle=k8s-pod-network.late seq=22
use 10.0.0.49 shop/y n1
block 10.0.0.112/28 off
affinity 10.0.0.112/28 off
use 10.0.0.113 shop/b n1
handle k8s-pod-network.late 10.0.0.96/28=1
alloc 10.0.0.4 pod=shop/m node=n1 handle=k8s-pod-network.missing
pod shop/m n1 10.0.0.4
pod shop/u n1 10.0.0.5 cid=u
view n1 complete
view n3 complete
view off complete
nad shop/fast 10.9.0.0/24
wpool 10.9.0.0-24 10.9.0.0/24 age=3h
walloc 10.9.0.0-24 10.9.0.5 shop/gone id=c5 if=net1
wres 10.9.0.5 shop/gone if=net1
wres 10.9.0.6 shop/gone if=net1 age=3h
pod shop/v n1 nets=shop/fast@10.9.0.7 cid=v
wres 10.9.0.7 shop/v if=net1
`

const kept = `
node n1
node n3
block 10.0.0.0/28 n1
affinity 10.0.0.0/28 n1
alloc 10.0.0.1 pod=shop/x node=n1 handle=k8s-pod-network.x
`

var leftovers = []struct{ step, state, want string }{
	{"release-block:10.0.0.16/28", kept, ""},
	{"release-block:10.0.0.16/28", kept + "affinity 10.0.0.16/28 n1 state=pendingDeletion", "blockaffinity/n1-10.0.0.16/28 is left pendingDeletion"},
	{"release-block:10.0.0.16/28", kept + "affinity 10.0.0.16/28 n1", "blockaffinity/n1-10.0.0.16/28 is left confirmed"},
	{"release-block:10.0.0.16/28", kept + "affinity 10.0.0.16/28 n1 deleted", "blockaffinity/n1-10.0.0.16/28 is left marked deleted"},
	{"release-block:10.0.0.16/28", kept + "affinity 10.0.0.16/28 n1 state=pending", ""}, // its node is claiming it
	{"release-block:10.0.0.16/28", kept + "block 10.0.0.16/28 n3 uid=new age=1m\naffinity 10.0.0.16/28 n3\naffinity 10.0.0.16/28 n1 state=pendingDeletion",
		"blockaffinity/n1-10.0.0.16/28 is left pendingDeletion"},
	{"release-block:10.0.0.16/28", kept + "block 10.0.0.16/28 n1 uid=new age=1m\naffinity 10.0.0.16/28 n1", ""},
	{"release-block:10.0.0.16/28", kept + "block 10.0.0.16/28 n1 uid=new age=1m", "ipamblock/10-0-0-16-28 is left without an affinity of n1"},

	{"delete-affinity:n3:10.0.0.32/28", kept, ""},
	{"delete-affinity:n3:10.0.0.32/28", kept + "block 10.0.0.32/28 n3 age=1m", "ipamblock/10-0-0-32-28 is left without an affinity of n3"},
	{"delete-affinity:n3:10.0.0.32/28", kept + "block 10.0.0.32/28 n1 age=1m", ""},
	{"delete-affinity:n3:10.0.0.32/28", kept + "block 10.0.0.32/28 n3 age=1m\naffinity 10.0.0.32/28 n3 uid=new age=1m", ""},
	{"delete-affinity:n3:10.0.0.32/28", kept + "block 10.0.0.32/28 n3 age=1m\naffinity 10.0.0.32/28 n3 uid=new age=1m state=pendingDeletion",
		"blockaffinity/n3-10.0.0.32/28 is left pendingDeletion"},

	{"disown-block:10.0.0.112/28", kept, ""},
	{"disown-block:10.0.0.112/28", kept + "block 10.0.0.112/28 -", ""},
	{"disown-block:10.0.0.112/28", kept + "block 10.0.0.112/28 -\naffinity 10.0.0.112/28 off state=pendingDeletion", "blockaffinity/off-10.0.0.112/28 is left pendingDeletion, and its block belongs to no node"},
	{"disown-block:10.0.0.112/28", kept + "affinity 10.0.0.112/28 off deleted", "blockaffinity/off-10.0.0.112/28 is left marked deleted, and its block is gone"},
	{"disown-block:10.0.0.112/28", kept + "block 10.0.0.112/28 off uid=new age=1m", "ipamblock/10-0-0-112-28 is left without an affinity of off"},

	{"create-handle:k8s-pod-network.missing", kept, ""},
	{"create-handle:k8s-pod-network.missing", kept + "handle k8s-pod-network.missing 10.0.0.0/28=1", "ipamhandle/k8s-pod-network.missing is left, and no block refers to it"},
	{"create-handle:k8s-pod-network.missing", kept + "alloc 10.0.0.4 pod=shop/m node=n1 handle=k8s-pod-network.missing\nhandle k8s-pod-network.missing 10.0.0.0/28=1", ""},
	{"record-ip:10.0.0.5", kept + "alloc 10.0.0.5 pod=shop/u node=n1 handle=k8s-pod-network.u\nhandle k8s-pod-network.u 10.0.0.0/28=1", ""},
	{"record-ip:10.0.0.5", kept + "alloc 10.0.0.5 pod=shop/u node=n1 handle=k8s-pod-network.u", "ipamblock/10-0-0-0-28 records 10.0.0.5 under handle k8s-pod-network.u, which does not exist"},

	{"restore-affinity:10.0.0.48/28", kept + "block 10.0.0.48/28 n1\naffinity 10.0.0.48/28 n1", ""},
	{"restore-affinity:10.0.0.48/28", kept + "affinity 10.0.0.48/28 n1", "blockaffinity/n1-10.0.0.48/28 is left confirmed without its block"},
	{"restore-affinity:10.0.0.48/28", kept + "block 10.0.0.48/28 n3\naffinity 10.0.0.48/28 n1", "blockaffinity/n1-10.0.0.48/28 is left confirmed to a block of n3"},

	{"release-ip:10.0.0.2", kept + "alloc 10.0.0.3 pod=shop/gone node=n1 handle=k8s-pod-network.gone seq=21\nhandle k8s-pod-network.gone 10.0.0.0/28=1", ""},
	{"release-ip:10.0.0.2", kept + "alloc 10.0.0.3 pod=shop/gone node=n1 handle=k8s-pod-network.gone seq=21\nhandle k8s-pod-network.gone 10.0.0.0/28=2",
		"ipamhandle/k8s-pod-network.gone is left with a count that differs from the blocks: 10.0.0.0/28: the handle counts 2, blocks record 1"},
	{"release-ip:10.0.0.2", kept, ""},
	{"release-ip:10.0.0.2", kept + "handle k8s-pod-network.gone 10.0.0.0/28=1", "ipamhandle/k8s-pod-network.gone is left, and no block refers to it"},
	{"release-ip:10.0.0.2", kept + "handle k8s-pod-network.gone deleted", "ipamhandle/k8s-pod-network.gone is left marked deleted"},
	{"release-ip:10.0.0.2", kept + "alloc 10.0.0.2 pod=shop/new node=n1 handle=k8s-pod-network.new seq=30\nhandle k8s-pod-network.gone 10.0.0.0/28=1",
		"ipamhandle/k8s-pod-network.gone is left, and no block refers to it"},
	{"release-ip:10.0.0.97", kept + "block 10.0.0.96/28 - deleted", "ipamblock/10-0-0-96-28 is left marked deleted"},
	{"release-ip:10.0.0.97", kept, ""},

	{"delete-handle:k8s-pod-network.leaked", kept, ""},
	{"delete-handle:k8s-pod-network.leaked", kept + "alloc 10.0.0.5 pod=shop/z node=n1 handle=k8s-pod-network.leaked", "ipamhandle/k8s-pod-network.leaked is missing, and 10.0.0.5 is recorded under it"},
	{"fix-handle-count:k8s-pod-network.x", kept + "handle k8s-pod-network.x 10.0.0.0/28=1", ""},
	{"fix-handle-count:k8s-pod-network.x", kept, "ipamhandle/k8s-pod-network.x is missing, and 10.0.0.1 is recorded under it"},
	{"fix-handle-count:k8s-pod-network.x", "node n1", ""},

	{"release-whereabouts:kube-system/10.9.0.0-24:10.9.0.5", kept, ""},
	{"release-whereabouts:kube-system/10.9.0.0-24:10.9.0.5", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwres 10.9.0.5 shop/gone if=net1", "overlappingrangeipreservation/kube-system/10.9.0.5 is left, and no pool records its address"},
	{"release-whereabouts:kube-system/10.9.0.0-24:10.9.0.5", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwres 10.9.0.5 shop/gone if=net1\npod shop/gone n1 phase=Pending", ""},
	{"release-whereabouts:kube-system/10.9.0.0-24:10.9.0.5", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwalloc 10.9.0.0-24 10.9.0.5 shop/gone id=new if=net1", "overlappingrangeipreservation/kube-system/10.9.0.5 is missing, and pool kube-system/10.9.0.0-24 records its address"},
	{"release-whereabouts:kube-system/10.9.0.0-24:10.9.0.5", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwalloc 10.9.0.0-24 10.9.0.5 shop/gone id=new if=net1\nwres 10.9.0.5 shop/other if=net1 uid=new", "overlappingrangeipreservation/kube-system/10.9.0.5 belongs to pod shop/other, and pool kube-system/10.9.0.0-24 records its address for pod shop/gone: both may have it"},
	{"delete-whereabouts-reservation:kube-system/10.9.0.6", kept, ""},
	{"delete-whereabouts-reservation:kube-system/10.9.0.6", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwalloc 10.9.0.0-24 10.9.0.6 shop/gone id=new if=net1\nwres 10.9.0.6 shop/other if=net1 uid=new age=1m", "overlappingrangeipreservation/kube-system/10.9.0.6 belongs to pod shop/other, and pool kube-system/10.9.0.0-24 records its address for pod shop/gone: both may have it"},
	{"delete-whereabouts-reservation:kube-system/10.9.0.6", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwalloc 10.9.0.0-24 10.9.0.6 shop/gone id=new if=net1", "overlappingrangeipreservation/kube-system/10.9.0.6 is missing, and pool kube-system/10.9.0.0-24 records its address"},
	{"restore-whereabouts:kube-system/10.9.0.7", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwalloc 10.9.0.0-24 10.9.0.7 shop/v id=v if=net1\nwres 10.9.0.7 shop/v if=net1", ""},
	{"restore-whereabouts:kube-system/10.9.0.7", kept + "wpool 10.9.0.0-24 10.9.0.0/24\nwalloc 10.9.0.0-24 10.9.0.7 shop/v id=v if=net1", "overlappingrangeipreservation/kube-system/10.9.0.7 is gone, and pool kube-system/10.9.0.0-24 records its address"},

	{"finish-delete:IPAMBlock:10.0.0.64/28", kept, ""},
	{"finish-delete:IPAMBlock:10.0.0.64/28", kept + "affinity 10.0.0.64/28 n1 state=pendingDeletion", "blockaffinity/n1-10.0.0.64/28 is left pendingDeletion"},
	{"finish-delete:IPAMBlock:10.0.0.64/28", kept + "affinity 10.0.0.64/28 n1 state=pending", ""},
	{"finish-delete:IPAMBlock:10.0.0.64/28", kept + "block 10.0.0.64/28 n1 uid=new age=1m", "ipamblock/10-0-0-64-28 is left without an affinity of n1"},
	{"finish-delete:BlockAffinity:n3:10.0.0.80/28", kept, ""},
	{"finish-delete:BlockAffinity:n3:10.0.0.80/28", kept + "block 10.0.0.80/28 n3 age=1m", "ipamblock/10-0-0-80-28 is left without an affinity of n3"},
	{"finish-delete:IPAMHandle:k8s-pod-network.marked", kept, ""},
	{"finish-delete:IPAMHandle:k8s-pod-network.marked", kept + "alloc 10.0.0.5 pod=shop/z node=n1 handle=k8s-pod-network.marked", "ipamhandle/k8s-pod-network.marked is missing, and 10.0.0.5 is recorded under it"},
}

// TestVerifyLooksAtAll: a step counts as done only if its whole protocol is. A leftover is named and
// read again.
func TestVerifyLooksAtAll(t *testing.T) {
	before := parseState(t, beforeLeftovers, 0)
	p := Build(before, everything)
	tried := map[repair.Kind]bool{}
	for _, c := range leftovers {
		i := slices.IndexFunc(p.Steps, func(s repair.Step) bool { return s.ID == c.step })
		if i < 0 {
			t.Fatalf("%s is not planned, but %v; refused: %+v", c.step, stepIDs(p), p.Refused)
		}
		s, after := &p.Steps[i], parseState(t, "pool pods 10.0.0.0/24 size=28\n"+c.state, 0)
		err := KindOf(s.Kind).Verify(after, s)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s is done, and is not seen to be: %v\n%s", c.step, err, strings.TrimPrefix(c.state, kept))
			}
			continue
		}
		tried[s.Kind] = true
		var left *repair.LeftBehindError
		if !errors.As(err, &left) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q\n%s", c.step, err, c.want, strings.TrimPrefix(c.state, kept))
			continue
		}
		read := KindOf(s.Kind).Refs(before, s)
		read = append(read, KindOf(s.Kind).Refs(after, s)...)
		ref := blocks.Ref{Resource: left.Resource, Name: left.Name}
		if namespace, name, ok := strings.Cut(left.Name, "/"); ok && left.Resource == blocks.WhereaboutsReservations {
			ref.Namespace, ref.Name = namespace, name
		}
		if !slices.Contains(read, ref) {
			t.Errorf("%s: %s/%s may be left, and is not read again: %v", c.step, left.Resource, left.Name, read)
		}
	}
	for _, k := range kinds {
		if !tried[k.Kind] && everything.Asks(k.Kind) {
			t.Errorf("nothing is left of %s", k.Kind)
		}
	}
}

// TestLeftAsBefore: a handle that stays wrong does not fail a step if it was equally wrong before.
func TestLeftAsBefore(t *testing.T) {
	const without = "pool pods 10.0.0.0/24 size=28\nnode n1\nblock 10.0.0.0/28 n1\naffinity 10.0.0.0/28 n1\n"
	const freed = without + "alloc 10.0.0.3 pod=shop/gone node=n1 handle=k8s-pod-network.gone seq=21\n"
	const held = freed + "alloc 10.0.0.2 pod=shop/gone node=n1 handle=k8s-pod-network.gone seq=20\n"
	handle := func(rest string) string { return "handle k8s-pod-network.gone " + rest }
	for _, c := range []struct {
		before, now string
		left        bool
	}{
		{held + handle("10.0.0.0/28=4"), freed + handle("10.0.0.0/28=3"), false},
		{held + handle("10.0.0.0/28=4"), freed + handle("10.0.0.0/28=2"), false},
		{held + handle("10.0.0.0/28=4"), freed + handle("10.0.0.0/28=4"), true},
		{held + handle("10.0.0.0/28=2"), freed + handle("10.0.0.0/28=2"), true},
		{held + handle("10.0.0.0/28=4"), freed + handle("10.0.0.0/28=3 uid=new"), true},
		{held + handle("10.0.0.0/28=4"), freed + handle("10.0.0.0/28=3 deleted"), true},
		{held + handle("10.0.0.0/28=2 deleted"), freed + handle("10.0.0.0/28=1 deleted"), false},
	} {
		before, now := parseState(t, c.before, 0), parseState(t, c.now, 0)
		s := &repair.Step{ID: "x", Kind: repair.ReleaseIP, Target: state.Subject{Kind: state.KindIP, IP: "10.0.0.2"}, Guards: []repair.Guard{{Name: repair.GuardHandle, Value: "k8s-pod-network.gone"}, {Name: repair.GuardSequence, Value: "20"}}}
		remark, err := KindOf(s.Kind).VerifySince(before, now, s)
		if (err != nil) != c.left || (remark == "") != c.left {
			t.Errorf("%s\nto %s: %v, remark %q", strings.TrimPrefix(c.before, held), strings.TrimPrefix(c.now, freed), err, remark)
		}
	}
}

// TestLeftHalfDone: the reservations and cordons of others are not leftovers of this program.
func TestLeftHalfDone(t *testing.T) {
	st := parseState(t, `
pool pods 10.0.0.0/24
node n1 cordoned mine=n1,20260131T080000,10.0.0.64/26
node n2 cordoned
reserve 10.0.0.64/26 mine=n1,20260131T080000
reserve 10.0.0.128/26
`, 0)
	want := []string{"ipreservation/calico-audit-10-0-0-64-26", "node/n1 (cordoned)"}
	if got := LeftHalfDone(st); !slices.Equal(got, want) {
		t.Errorf("left half-done: %q, want %q", got, want)
	}
}
