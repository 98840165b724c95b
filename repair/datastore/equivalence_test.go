package datastore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/storm"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// deed is an operation that both Calico's own client and a step can do.
type deed struct {
	name   string
	calico func(b *bench, c ipam.Interface) error
	ours   func(b *bench, k *datastore.Writer) error
}

// TestEquivalence creates random states and performs operations on copies of them, once
// with Calico's own client and once with this writer, in each API group. Then it compares
// all IPAM objects field by field.
func TestEquivalence(t *testing.T) {
	seeds := []uint64{testenv.Seed(t)}
	if testenv.EveryCase() {
		for range 9 {
			seeds = append(seeds, rand.Uint64()%1e6)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { equivalence(t, seed) })
	}
}

func equivalence(t *testing.T, seed uint64) {
	t.Logf("%s=%d", testenv.EnvSeed, seed)
	ctx := t.Context()
	old := &bench{t, testcluster.Shared(t, testcluster.Options{}), testcluster.CRDv1}
	native := &bench{t, testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.NativeV3}}), testcluster.NativeV3}
	must(t, seeding.Random(ctx, old.Cluster, seed))
	s, err := seeding.New(old.Cluster)
	must(t, err)
	r := rand.New(rand.NewPCG(seed, 7))
	state := enrich(old, s, r)
	image, err := storm.TakeImage(ctx, old.Cluster)
	must(t, err)
	must(t, testcluster.CopyToNative(ctx, old.Cluster, native.Cluster))
	nativeImage, err := storm.TakeImage(ctx, native.Cluster)
	must(t, err)

	done := map[string]int{}
	for _, d := range deeds(state, r) {
		must(t, image.Restore(ctx, old.Cluster))
		if err := d.calico(old, s.Calico.IPAM()); err != nil {
			t.Errorf("%s: Calico: %v", d.name, err)
			continue
		}
		want := old.contents()
		must(t, storm.Image{}.Restore(ctx, native.Cluster))
		must(t, testcluster.CopyToNative(ctx, old.Cluster, native.Cluster))
		wantNative := native.contents()

		must(t, image.Restore(ctx, old.Cluster))
		if err := d.ours(old, old.writer(nil, nil)); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
		same(t, d.name, want, old.contents())

		must(t, nativeImage.Restore(ctx, native.Cluster))
		if err := d.ours(native, native.writer(nil, nil)); err != nil {
			t.Errorf("%s in the newer group: %v", d.name, err)
		}
		same(t, d.name+" in the newer group", wantNative, native.contents())
		kind, _, _ := strings.Cut(d.name, " ")
		done[kind]++
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%v", done)
	for _, kind := range kindsOfDeeds {
		if done[kind] == 0 {
			t.Errorf("nothing to do for %s", kind)
		}
	}
}

// kindsOfDeeds are the kinds of which each state must have one.
var kindsOfDeeds = []string{"release-block", "claim-block", "release-ip", "restore-affinity", "disown-block", "record-ip", "create-handle", "delete-affinity", "set-strict-affinity"}

func read(b *bench) *blocks.Snapshot {
	b.Helper()
	k, err := cluster.NewKubernetes(b.Config, cluster.KubernetesOptions{CalicoElsewhere: b.inEtcd()})
	must(b.T, err)
	s, err := k.Read(b.Context())
	must(b.T, err)
	if b.inEtcd() {
		s = b.joined(s)
	}
	return s
}

// enrich adds objects that a random state may lack: empty blocks, and blocks without an
// owner.
func enrich(b *bench, s *seeding.Seeder, r *rand.Rand) *blocks.Snapshot {
	b.Helper()
	st := read(b)
	for _, n := range st.Nodes {
		for _, p := range st.Pools {
			if cidr, ok := unclaimed(st, p, r); ok {
				_ = s.ClaimBlocks(b.Context(), n.Name, cidr)
				st = read(b)
			}
		}
	}
	orphaned := 0
	for i := range st.Blocks {
		if owned := &st.Blocks[i]; owned.InUse() > 0 && owned.Owner.Node() != "" && orphaned < 2 {
			must(b.T, s.ReleaseBlocks(b.Context(), owned.Owner.Node(), owned.CIDR, false))
			orphaned++
		}
	}
	must(b.T, b.Backdate(b.Context(), time.Hour))
	return read(b)
}

// unclaimed returns a random CIDR of a pool without a block.
func unclaimed(st *blocks.Snapshot, p blocks.Pool, r *rand.Rand) (netip.Prefix, bool) {
	var free []netip.Prefix
	slot := netip.PrefixFrom(p.CIDR.Addr(), p.BlockSize)
	for ; p.CIDR.Contains(slot.Addr()); slot = next(slot) {
		if !slices.ContainsFunc(st.Blocks, func(b blocks.Block) bool { return b.CIDR.Overlaps(slot) }) {
			free = append(free, slot)
		}
	}
	if len(free) == 0 {
		return slot, false
	}
	return free[r.IntN(len(free))], true
}

// next returns the following prefix of the same size.
func next(p netip.Prefix) netip.Prefix {
	a := p.Addr()
	for range 1 << (a.BitLen() - p.Bits()) {
		a = a.Next()
	}
	return netip.PrefixFrom(a, p.Bits())
}

// deeds returns operations for a state.
func deeds(st *blocks.Snapshot, r *rand.Rand) []deed {
	most := 1 // operations of a kind in one state
	if testenv.EveryCase() {
		most = 3
	}
	var empty, claimed, used, disowned, recorded, handles, addresses, stale []deed
	read := state.New(st, state.Options{})
	for i := range st.Handles {
		if wrong, right := read.Miscounts(st.Handles[i]); len(wrong) == 0 && len(right) > 0 {
			handles = append(handles, createHandleDeed(st.Handles[i]))
		}
	}
	for i := range st.Blocks {
		b := &st.Blocks[i]
		host := b.Owner.Node()
		switch {
		case host != "" && b.InUse() == 0:
			recorded = append(recorded, recordIP(b, true))
			empty, claimed = append(empty, releaseBlock(b)), append(claimed, claimBlock(b, st.Nodes[0].Name))
			stale = append(stale, staleAffinity(b, "somebody-else"))
		case host != "":
			if slices.Contains(b.Ordinals, blocks.Free) {
				recorded = append(recorded, recordIP(b, false))
			}
			used, disowned = append(used, restoreAffinity(b)), append(disowned, disownBlock(b))
			stale = append(stale, staleAffinity(b, "somebody-else"))
		}
		for o := range b.Ordinals {
			if a := b.At(o); a != nil && a.HasHandle {
				addresses = append(addresses, releaseIP(b, o))
			}
		}
	}
	out := []deed{setStrict(st)}
	for _, of := range [][]deed{empty, claimed, used, disowned, recorded, handles, stale} {
		r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		out = append(out, of[:min(most, len(of))]...)
	}
	// Addresses of blocks without an owner come first.
	r.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	slices.SortStableFunc(addresses, func(a, b deed) int {
		return cmp.Compare(strings.Index(b.name, "nobody"), strings.Index(a.name, "nobody"))
	})
	return append(out, slices.Concat(addresses[:min(most, len(addresses))], addresses[max(0, len(addresses)-2*most):])...)
}

func releaseBlock(b *blocks.Block) deed {
	owner, cidr, name := b.Owner, b.CIDR, b.Name
	return deed{"release-block " + cidr.String(),
		func(x *bench, c ipam.Interface) error {
			affinity := owner.Affinity()
			return c.ReleaseBlockAffinity(x.Context(), &model.AllocationBlock{CIDR: calicoNet(cidr), Affinity: &affinity}, true)
		},
		func(x *bench, k *datastore.Writer) error {
			a := x.ref(blocks.Affinities, blocks.AffinityName(owner.Name, cidr))
			return k.ReleaseBlock(x.Context(), x.ref(blocks.Blocks, name), &a, nil)
		}}
}

// disownBlock removes the owner of a block. All its addresses are changed to be another
// node's first.
func disownBlock(b *blocks.Block) deed {
	owner, cidr, name := b.Owner, b.CIDR, b.Name
	lend := func(x *bench) {
		x.edit(blocks.Blocks, name, func(spec map[string]any) {
			for _, a := range spec["attributes"].([]any) {
				if secondary, ok := a.(map[string]any)["secondary"].(map[string]any); ok {
					secondary["node"] = "elsewhere"
				}
			}
		})
	}
	return deed{"disown-block " + cidr.String(),
		func(x *bench, c ipam.Interface) error {
			lend(x)
			affinity := owner.Affinity()
			return c.ReleaseBlockAffinity(x.Context(), &model.AllocationBlock{CIDR: calicoNet(cidr), Affinity: &affinity}, false)
		},
		func(x *bench, k *datastore.Writer) error {
			lend(x)
			a := x.ref(blocks.Affinities, blocks.AffinityName(owner.Name, cidr))
			return k.DisownBlock(x.Context(), x.ref(blocks.Blocks, name), &a)
		}}
}

// recordIP records a free address of a block. If missing is set, the block is deleted
// first and then claimed for the address.
func recordIP(b *blocks.Block, missing bool) deed {
	owner, cidr, name := b.Owner, b.CIDR, b.Name
	ordinal := slices.Index(b.Ordinals, blocks.Free)
	handle, attributes := restored, map[string]string{"pod": "p", "namespace": "n", "node": owner.Name, "timestamp": "T"}
	lose := func(x *bench) {
		if missing {
			must(x.T, x.Delete(x.Context(), x.group.Resource("ipamblocks"), "", name))
		}
	}
	return deed{"record-ip " + b.Address(ordinal).String(),
		func(x *bench, c ipam.Interface) error {
			lose(x)
			return c.AssignIP(x.Context(), ipam.AssignIPArgs{
				IP: cnet.MustParseIP(b.Address(ordinal).String()), HandleID: &handle, Hostname: owner.Name, Attrs: attributes,
			})
		},
		func(x *bench, k *datastore.Writer) error {
			lose(x)
			a := repair.Allocation{Handle: handle, Attributes: attributes}
			if missing {
				a.Claim, a.Host = cidr, owner.Name
				return k.RecordIP(x.Context(), repair.ObjectRef{Resource: blocks.Blocks, Name: name}, ordinal, a)
			}
			return k.RecordIP(x.Context(), x.ref(blocks.Blocks, name), ordinal, a)
		}}
}

// createHandleDeed deletes a handle that Calico's client made, and creates it again.
func createHandleDeed(h *blocks.Handle) deed {
	id, name, counts := h.ID, h.Name, h.Blocks
	return deed{"create-handle " + id,
		func(*bench, ipam.Interface) error { return nil },
		func(x *bench, k *datastore.Writer) error {
			must(x.T, x.Delete(x.Context(), x.group.Resource("ipamhandles"), "", name))
			return k.CreateHandle(x.Context(), id, counts)
		}}
}

func releaseIP(b *blocks.Block, ordinal int) deed {
	handle, addr, name := b.At(ordinal).Handle, b.Address(ordinal), b.Name
	sequence, _ := b.SequenceAt(ordinal)
	of := "of " + b.Owner.Node()
	if b.Owner == (blocks.Owner{}) {
		of = "of nobody"
	}
	return deed{fmt.Sprintf("release-ip %s %s", addr, of),
		func(x *bench, c ipam.Interface) error {
			_, _, err := c.ReleaseIPs(x.Context(), ipam.ReleaseOptions{Address: addr.String(), Handle: handle, SequenceNumber: &sequence})
			return err
		},
		func(x *bench, k *datastore.Writer) error {
			return releaseOne(k, x.Context(), x.ref(blocks.Blocks, name), ordinal, handle, sequence)
		}}
}

func restoreAffinity(b *blocks.Block) deed {
	owner, cidr, name := b.Owner, b.CIDR, b.Name
	lose := func(x *bench) {
		must(x.T, x.Delete(x.Context(), x.group.Resource("blockaffinities"), "", blocks.AffinityName(owner.Name, cidr)))
	}
	return deed{"restore-affinity " + cidr.String(),
		func(x *bench, c ipam.Interface) error {
			lose(x)
			_, failed, err := c.ClaimAffinity(x.Context(), calicoNet(cidr), ipam.AffinityConfig{AffinityType: ipam.AffinityTypeHost, Host: owner.Name})
			if len(failed) > 0 {
				return fmt.Errorf("others own %v", failed)
			}
			return err
		},
		func(x *bench, k *datastore.Writer) error {
			lose(x)
			return k.RestoreAffinity(x.Context(), x.ref(blocks.Blocks, name))
		}}
}

// claimBlock claims a block for another node after it was released.
func claimBlock(b *blocks.Block, host string) deed {
	owner, cidr, name := b.Owner, b.CIDR, b.Name
	lose := func(x *bench) {
		must(x.T, x.Delete(x.Context(), x.group.Resource("blockaffinities"), "", blocks.AffinityName(owner.Name, cidr)))
		must(x.T, x.Delete(x.Context(), x.group.Resource("ipamblocks"), "", name))
	}
	return deed{"claim-block " + cidr.String(),
		func(x *bench, c ipam.Interface) error {
			lose(x)
			_, failed, err := c.ClaimAffinity(x.Context(), calicoNet(cidr), ipam.AffinityConfig{AffinityType: ipam.AffinityTypeHost, Host: host})
			if len(failed) > 0 {
				return fmt.Errorf("others own %v", failed)
			}
			return err
		},
		func(x *bench, k *datastore.Writer) error {
			lose(x)
			return k.ClaimBlock(x.Context(), cidr, host)
		}}
}

// staleAffinity deletes another host's affinity to a block.
func staleAffinity(b *blocks.Block, host string) deed {
	cidr := b.CIDR
	return deed{"delete-affinity " + host + " " + cidr.String(),
		func(x *bench, c ipam.Interface) error {
			x.claim(host, cidr, blocks.Confirmed)
			affinity := "host:" + host
			return c.ReleaseBlockAffinity(x.Context(), &model.AllocationBlock{CIDR: calicoNet(cidr), Affinity: &affinity}, true)
		},
		func(x *bench, k *datastore.Writer) error {
			x.claim(host, cidr, blocks.Confirmed)
			return k.DeleteAffinity(x.Context(), x.ref(blocks.Affinities, blocks.AffinityName(host, cidr)))
		}}
}

func setStrict(st *blocks.Snapshot) deed {
	strict := !st.IPAM.StrictAffinity
	return deed{"set-strict-affinity",
		func(x *bench, c ipam.Interface) error {
			return c.SetIPAMConfig(x.Context(), ipam.IPAMConfig{StrictAffinity: strict, AutoAllocateBlocks: true})
		},
		func(x *bench, k *datastore.Writer) error {
			ref := x.ref(blocks.IPAMConfigs, "default")
			return k.SetStrictAffinity(x.Context(), &ref, strict)
		}}
}
