package datastore_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/storm"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// The blocks of a world.
var (
	inUse     = prefix("10.64.0.0/26")   // of n1
	empty     = prefix("10.64.0.64/26")  // of n1
	contested = prefix("10.64.0.128/26") // of n2; n3 has an affinity to it, too
	noBlock   = prefix("10.64.0.192/26") // only an affinity of n3
	nobodys   = prefix("10.65.0.0/28")   // without an owner, with one leaked address
	lost      = prefix("10.65.0.16/28")  // of n2, without an affinity
	marked    = prefix("10.65.0.32/28")  // of n2, marked deleted
	forgotten = prefix("10.65.0.48/28")  // only an affinity of n3, which is marked deleted
	orphaned  = prefix("10.66.0.0/29")   // of a deleted node, with an address borrowed by a pod of n2
)

const (
	leaked  = 3 // the ordinal of a leaked address in inUse
	orphan  = "k8s-pod-network.orphan"
	doomed  = "k8s-pod-network.doomed"
	miscont = "a" // the pod whose handle counts too many addresses
)

// world is a small cluster with an object for every kind of step.
type world struct {
	*bench
	seeder *seeding.Seeder
	live   map[netip.Addr]string
	image  storm.Image
	seen   map[string]string // the contents at the start of a step
	// interrupted is the context of a step that is to be interrupted, or nil.
	interrupted context.Context
}

// ctx returns the context of a step.
func (w *world) ctx() context.Context {
	if w.interrupted != nil {
		return w.interrupted
	}
	return w.Context()
}

// newWorld creates a world whose objects are an hour old.
func newWorld(t *testing.T, group testcluster.Group) *world {
	t.Helper()
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(c)
	must(t, err)
	w := &world{bench: &bench{t, c, testcluster.CRDv1}, seeder: s, live: map[netip.Addr]string{}}
	must(t, s.Init(ctx))
	must(t, s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.64.0.0/24", BlockSize: 26}))
	must(t, s.Pool(ctx, "more", apiv3.IPPoolSpec{CIDR: "10.65.0.0/26", BlockSize: 28}))
	must(t, s.Pool(ctx, "third", apiv3.IPPoolSpec{CIDR: "10.66.0.0/29", BlockSize: 29}))
	for _, name := range []string{"n1", "n2", "n3", "off"} {
		must(t, s.Node(ctx, seeding.Node{Name: name}))
	}
	must(t, s.ClaimBlocks(ctx, "off", orphaned))
	w.pod("e", "n2", "10.66.0.1")
	must(t, s.DeleteNode(ctx, "off"))
	w.pod("a", "n1", "10.64.0.1")
	w.pod("b", "n1", "10.64.0.2")
	w.pod("gone", "n1", "10.64.0.3")
	w.pod("c", "n2", "10.64.0.129")
	w.pod("gone-too", "n1", "10.65.0.1")
	w.pod("d", "n2", "10.65.0.17")
	for _, name := range []string{"gone", "gone-too"} {
		must(t, s.DeletePod(ctx, "default", name, false))
		maps.DeleteFunc(w.live, func(_ netip.Addr, h string) bool { return h == seeding.Handle("default", name) })
	}
	must(t, s.ClaimBlocks(ctx, "n1", empty))
	must(t, s.ClaimBlocks(ctx, "n2", marked))
	must(t, s.ReleaseBlocks(ctx, "n1", nobodys, false))
	for _, cidr := range []netip.Prefix{contested, noBlock, forgotten} {
		must(t, s.Affinity(ctx, "n3", cidr, string(blocks.Confirmed)))
	}
	w.edit(blocks.Affinities, blocks.AffinityName("n3", forgotten), func(spec map[string]any) { spec["deleted"], spec["state"] = "true", "pendingDeletion" })
	w.edit(blocks.Affinities, blocks.AffinityName("n2", marked), func(spec map[string]any) { spec["state"] = "pendingDeletion" })
	w.edit(blocks.Blocks, blocks.BlockName(marked), func(spec map[string]any) { spec["deleted"] = true })
	must(t, c.Delete(ctx, w.group.Resource("blockaffinities"), "", blocks.AffinityName("n2", lost)))
	w.edit(blocks.Handles, seeding.Handle("default", miscont), func(spec map[string]any) { spec["block"] = map[string]any{inUse.String(): int64(3)} })
	for name, deleted := range map[string]bool{orphan: false, doomed: true} {
		must(t, c.Create(ctx, w.group.Resource("ipamhandles"), map[string]any{
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"handleID": name, "block": map[string]any{inUse.String(): int64(1)}, "deleted": deleted},
		}))
	}
	must(t, c.Backdate(ctx, time.Hour))
	if group == testcluster.NativeV3 {
		native := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{group}})
		must(t, testcluster.CopyToNative(ctx, c, native))
		w.bench = &bench{t, native, group}
	}
	if group == testcluster.EtcdV3 {
		w.bench = toEtcd(t, c)
	}
	w.take()
	return w
}

// in returns the world for use in a subtest.
func (w *world) in(t *testing.T) *world {
	out := *w
	out.bench, out.live = &bench{t, w.Cluster, w.group}, maps.Clone(w.live)
	return &out
}

// take saves the world's state; restore restores it.
func (w *world) take() {
	w.Helper()
	var err error
	w.image, err = storm.TakeImage(w.Context(), w.Cluster)
	must(w.T, err)
}

func (w *world) restore() {
	w.Helper()
	must(w.T, w.image.Restore(w.Context(), w.Cluster))
}

// pod starts a pod with a certain address.
func (w *world) pod(name, node, addr string) {
	w.Helper()
	addrs, err := w.seeder.Pod(w.Context(), seeding.Pod{
		Namespace: "default", Name: name, Node: node, Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + addr + `"]`},
	})
	must(w.T, err)
	w.live[addrs[0]] = seeding.Handle("default", name)
}

// unharmed fails the test if a live pod's address was freed or assigned twice.
func (w *world) unharmed(when string) {
	w.Helper()
	if w.inEtcd() {
		w.unharmedInEtcd(when)
		return
	}
	harm, err := storm.Harm(context.WithoutCancel(w.Context()), w.Cluster, w.group, w.live)
	must(w.T, err)
	for _, h := range harm {
		w.Errorf("%s: %s", when, h)
	}
}

// step is one step in the world.
type step struct {
	name string
	kind repair.Kind
	do   func(w *world, k *datastore.Writer) error
	// again completes the step after its writer died, as a repeated repair does.
	again func(w *world, k *datastore.Writer) error
	// lacks returns an object that must not exist, if any.
	lacks func(w *world) (blocks.Resource, string)
}

// restoreFor restores the world for a step.
func (w *world) restoreFor(s step) {
	w.Helper()
	w.restore()
	if s.lacks != nil {
		r, name := s.lacks(w)
		must(w.T, w.Delete(w.Context(), w.group.Resource(string(r)), "", name))
	}
}

// twoCalls is a step that calls the writer twice: for the block and for its owner's
// affinity.
const twoCalls = "finish deleting a block"

var steps = []step{
	{"release an empty block", repair.ReleaseBlock,
		func(w *world, k *datastore.Writer) error { return w.release(k, empty, "n1") },
		func(w *world, k *datastore.Writer) error { return w.releaseAgain(k, empty, "n1") }, nil},
	{"release a block whose affinity is missing", repair.ReleaseBlock,
		func(w *world, k *datastore.Writer) error {
			return k.ReleaseBlock(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(empty)), nil, w.keptBlock())
		},
		func(w *world, k *datastore.Writer) error { return w.releaseAgain(k, empty, "n1") },
		func(*world) (blocks.Resource, string) { return blocks.Affinities, blocks.AffinityName("n1", empty) }},
	{"delete an affinity without a block", repair.DeleteAffinity,
		func(w *world, k *datastore.Writer) error { return w.drop(k, "n3", noBlock) },
		func(w *world, k *datastore.Writer) error { return w.dropAgain(k, "n3", noBlock) }, nil},
	{"delete an affinity to another's block", repair.DeleteAffinity,
		func(w *world, k *datastore.Writer) error { return w.drop(k, "n3", contested) },
		func(w *world, k *datastore.Writer) error { return w.dropAgain(k, "n3", contested) }, nil},
	{"restore an affinity", repair.RestoreAffinity,
		func(w *world, k *datastore.Writer) error {
			return k.RestoreAffinity(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(lost)))
		},
		func(w *world, k *datastore.Writer) error {
			name := blocks.AffinityName("n2", lost)
			if w.has(blocks.Affinities, name) {
				return k.PutAffinityState(w.ctx(), w.ref(blocks.Affinities, name), blocks.Confirmed)
			}
			return k.RestoreAffinity(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(lost)))
		}, nil},
	{"release an address", repair.ReleaseIP,
		func(w *world, k *datastore.Writer) error { return w.free(k, inUse, leaked, "gone") },
		func(w *world, k *datastore.Writer) error { return w.freeAgain(k, inUse, leaked, "gone") }, nil},
	{"release an address of nobody's block", repair.ReleaseIP,
		func(w *world, k *datastore.Writer) error { return w.free(k, nobodys, 1, "gone-too") },
		func(w *world, k *datastore.Writer) error { return w.freeAgain(k, nobodys, 1, "gone-too") }, nil},
	{"delete a handle", repair.DeleteHandle,
		func(w *world, k *datastore.Writer) error { return w.forget(k, orphan) },
		func(w *world, k *datastore.Writer) error { return w.forget(k, orphan) }, nil},
	{"correct a handle's count", repair.FixHandleCount, correct, correct, nil},
	{twoCalls, repair.FinishDelete, finishBlock, finishBlock, nil},
	{"finish deleting an affinity", repair.FinishDelete,
		finish(blocks.Affinities, blocks.AffinityName("n3", forgotten)), finish(blocks.Affinities, blocks.AffinityName("n3", forgotten)), nil},
	{"finish deleting a handle", repair.FinishDelete, finish(blocks.Handles, doomed), finish(blocks.Handles, doomed), nil},
	{"set strict affinity", repair.SetStrictAffinity, strict, strict, nil},
	{"set strict affinity without a configuration", repair.SetStrictAffinity,
		func(w *world, k *datastore.Writer) error { return k.SetStrictAffinity(w.ctx(), nil, true) },
		func(w *world, k *datastore.Writer) error {
			if !w.has(blocks.IPAMConfigs, "default") {
				return k.SetStrictAffinity(w.ctx(), nil, true)
			}
			return strict(w, k)
		},
		func(*world) (blocks.Resource, string) { return blocks.IPAMConfigs, "default" }},
	{"claim a block", repair.ClaimBlock, claimFree, claimFree, nil},
	{"record an address", repair.RecordIP, record, record, nil},
	{"record an address of a missing block", repair.RecordIP, recordClaimed, recordClaimed, nil},
	{"record an address for another pod", repair.RecordIP, replace, replaceAgain, nil},
	{"create a handle", repair.CreateHandle, createHandle, createHandle,
		func(*world) (blocks.Resource, string) { return blocks.Handles, seeding.Handle("default", "b") }},
	{"disown a block", repair.DisownBlock, disown, disownAgain, nil},
	{"disown a block whose affinity is missing", repair.DisownBlock, disown, disownAgain,
		func(*world) (blocks.Resource, string) {
			return blocks.Affinities, blocks.AffinityName("off", orphaned)
		}},
}

// restored is the handle of an address that no block records; restoredAt is its ordinal.
const (
	restored   = "k8s-pod-network.restored"
	restoredAt = 20
)

func recordation(claim netip.Prefix, host string) repair.Allocation {
	return repair.Allocation{Handle: restored, Attributes: map[string]string{"pod": "r", "namespace": "default", "node": "n1", "timestamp": "2026-01-02 12:00:00 +0000 UTC"}, Claim: claim, Host: host}
}

// replacement is the recordation of an address that is recorded under another handle.
func replacement(handle string, sequence uint64) repair.Allocation {
	a := recordation(netip.Prefix{}, "")
	a.Replaces = &repair.ReleaseOptions{Handle: handle, Sequence: sequence}
	return a
}

func replace(w *world, k *datastore.Writer) error {
	name := blocks.BlockName(inUse)
	sequence, _, _ := unstructured.NestedInt64(w.spec(blocks.Blocks, name), "sequenceNumberForAllocation", fmt.Sprint(leaked))
	return k.RecordIP(w.ctx(), w.ref(blocks.Blocks, name), leaked, replacement(seeding.Handle("default", "gone"), uint64(sequence)))
}

func replaceAgain(w *world, k *datastore.Writer) error {
	spec := w.spec(blocks.Blocks, blocks.BlockName(inUse))
	attributes := spec["attributes"].([]any)[spec["allocations"].([]any)[leaked].(int64)].(map[string]any)
	if attributes["handle_id"] != restored {
		return replace(w, k)
	}
	return w.forget(k, seeding.Handle("default", "gone"))
}

func record(w *world, k *datastore.Writer) error {
	if w.spec(blocks.Blocks, blocks.BlockName(inUse))["allocations"].([]any)[restoredAt] != nil {
		return nil
	}
	return k.RecordIP(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(inUse)), restoredAt, recordation(netip.Prefix{}, ""))
}

func recordClaimed(w *world, k *datastore.Writer) error {
	name := blocks.BlockName(noBlock)
	if !w.has(blocks.Blocks, name) || w.spec(blocks.Affinities, blocks.AffinityName("n3", noBlock))["state"] != "confirmed" {
		return k.RecordIP(w.ctx(), repair.ObjectRef{Resource: blocks.Blocks, Name: name}, restoredAt, recordation(noBlock, "n3"))
	}
	if w.spec(blocks.Blocks, name)["allocations"].([]any)[restoredAt] != nil {
		return nil
	}
	return k.RecordIP(w.ctx(), w.ref(blocks.Blocks, name), restoredAt, recordation(netip.Prefix{}, ""))
}

func createHandle(w *world, k *datastore.Writer) error {
	if id := seeding.Handle("default", "b"); !w.has(blocks.Handles, id) {
		return k.CreateHandle(w.ctx(), id, []blocks.HandleCount{{CIDR: inUse, Count: 1}})
	}
	return nil
}

func disown(w *world, k *datastore.Writer) error {
	var affinity *repair.ObjectRef
	if name := blocks.AffinityName("off", orphaned); w.has(blocks.Affinities, name) {
		ref := w.ref(blocks.Affinities, name)
		affinity = &ref
	}
	return k.DisownBlock(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(orphaned)), affinity)
}

func disownAgain(w *world, k *datastore.Writer) error {
	if w.spec(blocks.Blocks, blocks.BlockName(orphaned))["affinity"] != nil {
		return disown(w, k)
	}
	return w.dropAgain(k, "off", orphaned)
}

// claimFree claims the missing block for the node that already has an affinity to it, as
// an interrupted claim leaves it.
func claimFree(w *world, k *datastore.Writer) error { return k.ClaimBlock(w.ctx(), noBlock, "n3") }

func (w *world) release(k *datastore.Writer, cidr netip.Prefix, host string) error {
	w.Helper()
	a := w.ref(blocks.Affinities, blocks.AffinityName(host, cidr))
	return k.ReleaseBlock(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(cidr)), &a, w.keptBlock())
}

// keptBlock returns the block that n1 keeps when its empty block is released.
func (w *world) keptBlock() *repair.ObjectRef {
	w.Helper()
	ref := w.ref(blocks.Blocks, blocks.BlockName(inUse))
	return &ref
}

func (w *world) releaseAgain(k *datastore.Writer, cidr netip.Prefix, host string) error {
	w.Helper()
	name := blocks.BlockName(cidr)
	switch {
	case !w.has(blocks.Blocks, name):
	case w.spec(blocks.Blocks, name)["deleted"] == true:
		if err := k.FinishDelete(w.ctx(), w.ref(blocks.Blocks, name)); err != nil {
			return err
		}
	case w.has(blocks.Affinities, blocks.AffinityName(host, cidr)):
		return w.release(k, cidr, host)
	default:
		return k.ReleaseBlock(w.ctx(), w.ref(blocks.Blocks, name), nil, w.keptBlock())
	}
	return w.dropAgain(k, host, cidr)
}

func (w *world) drop(k *datastore.Writer, host string, cidr netip.Prefix) error {
	w.Helper()
	return k.DeleteAffinity(w.ctx(), w.ref(blocks.Affinities, blocks.AffinityName(host, cidr)))
}

func (w *world) dropAgain(k *datastore.Writer, host string, cidr netip.Prefix) error {
	w.Helper()
	name := blocks.AffinityName(host, cidr)
	if !w.has(blocks.Affinities, name) {
		return nil
	}
	if fmt.Sprint(w.spec(blocks.Affinities, name)["deleted"]) == "true" {
		return k.FinishDelete(w.ctx(), w.ref(blocks.Affinities, name))
	}
	return w.drop(k, host, cidr)
}

func (w *world) free(k *datastore.Writer, cidr netip.Prefix, ordinal int, pod string) error {
	w.Helper()
	name := blocks.BlockName(cidr)
	sequence, _, _ := unstructured.NestedInt64(w.spec(blocks.Blocks, name), "sequenceNumberForAllocation", fmt.Sprint(ordinal))
	return releaseOne(k, w.ctx(), w.ref(blocks.Blocks, name), ordinal, seeding.Handle("default", pod), uint64(sequence))
}

func (w *world) freeAgain(k *datastore.Writer, cidr netip.Prefix, ordinal int, pod string) error {
	w.Helper()
	if name := blocks.BlockName(cidr); w.has(blocks.Blocks, name) {
		spec := w.spec(blocks.Blocks, name)
		switch {
		case spec["deleted"] == true:
			if err := k.FinishDelete(w.ctx(), w.ref(blocks.Blocks, name)); err != nil {
				return err
			}
		case spec["allocations"].([]any)[ordinal] != nil:
			return w.free(k, cidr, ordinal, pod)
		}
	}
	return w.forget(k, seeding.Handle("default", pod))
}

func (w *world) forget(k *datastore.Writer, handle string) error {
	w.Helper()
	switch {
	case !w.has(blocks.Handles, handle):
		return nil
	case w.spec(blocks.Handles, handle)["deleted"] == true:
		return k.FinishDelete(w.ctx(), w.ref(blocks.Handles, handle))
	}
	return k.DeleteHandle(w.ctx(), w.ref(blocks.Handles, handle))
}

func correct(w *world, k *datastore.Writer) error {
	return k.SetHandleCounts(w.ctx(), w.ref(blocks.Handles, seeding.Handle("default", miscont)), []blocks.HandleCount{{CIDR: inUse, Count: 1}})
}

func finish(r blocks.Resource, name string) func(*world, *datastore.Writer) error {
	return func(w *world, k *datastore.Writer) error {
		if !w.has(r, name) {
			return nil
		}
		return k.FinishDelete(w.ctx(), w.ref(r, name))
	}
}

func finishBlock(w *world, k *datastore.Writer) error {
	if err := finish(blocks.Blocks, blocks.BlockName(marked))(w, k); err != nil {
		return err
	}
	return w.dropAgain(k, "n2", marked)
}

func strict(w *world, k *datastore.Writer) error {
	ref := w.ref(blocks.IPAMConfigs, "default")
	return k.SetStrictAffinity(w.Context(), &ref, true)
}

// inBothGroups runs a test on a world in each API group, or in one of them by sample.
func inBothGroups(t *testing.T, test func(*testing.T, *world)) {
	for _, g := range testenv.Sample(t, 1, []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3}) {
		name, _, _ := strings.Cut(string(g), "/")
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, g)) })
	}
}

// fromTheFuture adds fields of a newer Calico, labels and annotations to every IPAM
// object.
func (w *world) fromTheFuture() {
	w.Helper()
	for _, r := range []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs} {
		if !w.inEtcd() {
			w.LoosenCRD(w.T, w.group.Resource(string(r)))
		}
		all, err := w.List(w.Context(), w.group.Resource(string(r)))
		must(w.T, err)
		for i := range all {
			must(w.T, w.Edit(w.Context(), w.group.Resource(string(r)), "", all[i].GetName(), func(o map[string]any) {
				u := &unstructured.Unstructured{Object: o}
				u.SetLabels(merged(u.GetLabels(), "example.com/team", "a-b"))
				u.SetAnnotations(merged(u.GetAnnotations(), "example.com/note", "a<b & \"c\" \u2028 é"))
				spec := o["spec"].(map[string]any)
				spec["unheardOf"] = map[string]any{"deep": []any{int64(1), "two", nil, map[string]any{"n": int64(9007199254740993)}}}
				if attributes, ok := spec["attributes"].([]any); ok {
					for _, a := range attributes {
						a.(map[string]any)["unheardOf"] = fmt.Sprint("of <", a.(map[string]any)["handle_id"], "> & \u2028 é")
					}
				}
			}))
		}
	}
	w.take()
}

func merged(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	maps.Copy(out, m)
	return out
}

// unknown returns the content of IPAM objects that no step changes, by name and UID.
func (w *world) unknown() map[string]any {
	w.Helper()
	out := map[string]any{}
	for _, r := range []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs} {
		all, err := w.List(context.WithoutCancel(w.Context()), w.group.Resource(string(r)))
		must(w.T, err)
		for i := range all {
			spec := all[i].Object["spec"].(map[string]any)
			kept := map[string]any{"labels": all[i].GetLabels(), "annotations": all[i].GetAnnotations(), "unheardOf": spec["unheardOf"]}
			id := fmt.Sprint(r, "/", all[i].GetName(), "/", all[i].GetUID())
			out[id] = kept
			attributes, _ := spec["attributes"].([]any)
			for _, a := range attributes {
				m := a.(map[string]any)
				out[fmt.Sprint(id, "/", m["handle_id"])] = m
			}
		}
	}
	return out
}

// kept fails the test if content that no step changes has changed in an existing object.
func (w *world) kept(when string, before map[string]any) {
	w.Helper()
	for id, now := range w.unknown() {
		if was, ok := before[id]; ok {
			if d := cmp.Diff(was, now); d != "" {
				w.Errorf("%s: %s (-before +after):\n%s", when, id, d)
			}
		}
	}
}

func kindsOf(all []step) (out []*repair.StepKind) {
	for _, s := range all {
		out = append(out, planner.KindOf(s.kind))
	}
	return out
}

// releaseOne frees one address.
func releaseOne(k *datastore.Writer, ctx context.Context, block repair.ObjectRef, ordinal int, handle string, sequence uint64) error {
	return k.ReleaseIPs(ctx, block, []repair.ReleaseOptions{{Ordinal: ordinal, Handle: handle, Sequence: sequence}})[0]
}
