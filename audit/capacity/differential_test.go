package capacity_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// envScripts is the environment variable with the number of scripts of the differential
// test.
const envScripts = "CALICO_AUDIT_CAPACITY_SCRIPTS"

// TestAllocatorAgrees plays random scripts on a real API server with Calico's own IPAM
// client, and on an Allocator read from there. Each assignment or refusal must be the same,
// and at the end every block and affinity.
func TestAllocatorAgrees(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	scripts, most, first := 2, 40, testenv.Seed(t) // until every case was covered
	if os.Getenv(testenv.EnvSeed) != "" {
		scripts, most = 1, 1
	}
	if text := os.Getenv(envScripts); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		scripts, most = n, n
	}
	total := &tally{}
	for i := 0; i < scripts || i < most && !total.whole(); i++ {
		seed := first + uint64(i)
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newScript(t, c, seed, total).play() }) {
			t.Logf("%s=%d plays it again", testenv.EnvSeed, seed)
		}
	}
	t.Logf("%+v", *total)
	if most > 1 && !total.whole() {
		t.Errorf("the scripts do not try everything: %+v", *total)
	}
}

// tally counts the covered cases.
type tally struct{ Own, Claimed, Borrowed, Refused, Limited, Requested, V6, Released, Damage int }

// whole reports whether the scripts covered every case.
func (t *tally) whole() bool {
	return t.Own > 0 && t.Borrowed > 0 && t.Refused > 0 && t.Limited > 0 && t.Requested > 0 && t.V6 > 0
}

// script is one random script.
type script struct {
	*testing.T
	ctx   context.Context
	c     *testcluster.Cluster
	s     *seeding.Seeder
	r     *rand.Rand
	tally *tally

	pools      []poolSpec
	nodes      []string
	namespaces []*corev1.Namespace
	pods       int
	used       []use

	state *state.State
	alloc *capacity.Allocator
}

type poolSpec struct {
	name string
	cidr netip.Prefix
	bits int
}

type use struct{ addr, block netip.Prefix }

func newScript(t *testing.T, c *testcluster.Cluster, seed uint64, total *tally) *script {
	s := &script{T: t, ctx: t.Context(), c: c, r: rand.New(rand.NewPCG(seed, 16)), tally: total}
	s.must(c.Reset(s.ctx))
	seeder, err := seeding.New(c)
	s.must(err)
	s.s = seeder
	s.must(seeder.Init(s.ctx))
	return s
}

func (s *script) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *script) one(of int) bool { return s.r.IntN(of) == 0 }

func pick[T any](s *script, from []T) T { return from[s.r.IntN(len(from))] }

var zones = []string{"a", "b"}

// world creates settings, namespaces, nodes, reservations and pools.
func (s *script) world() {
	s.settings()
	families := []blocks.Family{blocks.IPv4}
	if s.one(2) {
		families = append(families, blocks.IPv6)
	}
	for _, f := range families {
		for i := range 1 + s.r.IntN(3) {
			s.pool(f, i)
		}
	}
	for i := range s.r.IntN(3) {
		p := pick(s, s.pools)
		bits := min(p.bits+s.r.IntN(4)-1, p.cidr.Addr().BitLen())
		reserved, err := s.addrOf(p).Prefix(bits)
		s.must(err)
		s.must(s.s.Reservation(s.ctx, fmt.Sprintf("reservation-%d", i), reserved))
	}
	for i, labels := range []map[string]string{{"team": "red"}, {"team": "blue"}} {
		name := fmt.Sprintf("space-%d", i)
		s.must(s.s.Namespace(s.ctx, name, labels, nil))
		ns, err := s.c.Kube.CoreV1().Namespaces().Get(s.ctx, name, metav1.GetOptions{})
		s.must(err)
		s.namespaces = append(s.namespaces, ns)
	}
	for range 2 + s.r.IntN(3) {
		s.node()
	}
}

func (s *script) addrOf(p poolSpec) netip.Addr {
	addr := p.cidr.Addr()
	for range s.r.IntN(1 << min(p.cidr.Addr().BitLen()-p.cidr.Bits(), 8)) {
		addr = addr.Next()
	}
	return addr
}

func (s *script) pool(f blocks.Family, i int) {
	p := poolSpec{name: fmt.Sprintf("pool-%s-%d", []string{"c", "a", "b"}[i], f), bits: 26 + s.r.IntN(5)}
	p.cidr = netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/%d", i, max(p.bits-s.r.IntN(4), 20)))
	if f == blocks.IPv6 {
		p.bits = 122 + s.r.IntN(5)
		p.cidr = netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/%d", i, p.bits-s.r.IntN(4)))
		if s.one(4) {
			p.cidr = netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/48", i))
		}
	}
	spec := apiv3.IPPoolSpec{CIDR: p.cidr.String(), BlockSize: p.bits, VXLANMode: apiv3.VXLANModeNever, IPIPMode: apiv3.IPIPModeNever}
	switch {
	case i == 0:
	case s.one(6):
		spec.Disabled = true
	case s.one(5):
		manual := apiv3.Manual
		spec.AssignmentMode = &manual
	case s.one(5): //nolint:gocritic // each asks for another random number
		spec.AllowedUses = []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseTunnel}
	}
	if s.one(3) {
		spec.NodeSelector = "zone == '" + pick(s, zones) + "'"
	}
	if s.one(4) && spec.AllowedUses == nil { // tunnels have no namespace
		spec.NamespaceSelector, spec.AllowedUses = "team == 'red'", []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseWorkload}
	}
	s.must(s.s.Pool(s.ctx, p.name, spec))
	s.pools = append(s.pools, p)
}

func (s *script) settings() {
	cfg := ipam.IPAMConfig{AutoAllocateBlocks: true, StrictAffinity: s.one(2)}
	if cfg.StrictAffinity && !s.one(3) {
		cfg.MaxBlocksPerHost = 1
	}
	if cfg.StrictAffinity && s.one(6) {
		cfg.AutoAllocateBlocks = false
	}
	s.must(s.s.SetIPAMConfig(s.ctx, cfg))
	if s.alloc != nil {
		s.read()
	}
}

func (s *script) node() {
	name := fmt.Sprintf("node-%d", len(s.nodes))
	s.must(s.s.Node(s.ctx, seeding.Node{Name: name, Labels: map[string]string{"zone": pick(s, zones)}}))
	s.nodes = append(s.nodes, name)
	if s.alloc != nil {
		n, err := s.c.Kube.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
		s.must(err)
		s.alloc.AddNode(&blocks.Node{Meta: blocks.Meta{Name: name}, Labels: n.Labels})
	}
}

// read builds the Allocator from the API server's objects.
func (s *script) read() {
	k, err := cluster.NewKubernetes(s.c.Config, cluster.KubernetesOptions{})
	s.must(err)
	snapshot, err := k.Read(s.ctx)
	s.must(err)
	s.state = state.New(snapshot, state.Options{})
	s.alloc = capacity.NewAllocator(s.state)
}

// assign asks both for an address; until the Allocator exists, only Calico.
func (s *script) assign() {
	s.pods++
	family := blocks.IPv4
	if slices.ContainsFunc(s.pools, func(p poolSpec) bool { return p.cidr.Addr().Is6() }) && s.one(2) {
		family = blocks.IPv6
	}
	handle, node, ns := fmt.Sprintf("k8s-pod-network.pod-%d", s.pods), pick(s, s.nodes), pick(s, s.namespaces)
	args := ipam.AutoAssignArgs{
		HandleID: &handle, Hostname: node, IntendedUse: apiv3.IPPoolAllowedUseWorkload, Namespace: ns,
		Attrs: map[string]string{ipam.AttributeNode: node, ipam.AttributePod: fmt.Sprintf("pod-%d", s.pods), ipam.AttributeNamespace: ns.Name},
	}
	request := capacity.Request{Node: node, Family: family, Use: blocks.UseWorkload}
	if s.one(8) {
		args.IntendedUse, request.Use, args.Namespace = apiv3.IPPoolAllowedUseTunnel, blocks.UseTunnel, nil
	}
	var pools []cnet.IPNet
	for range s.r.IntN(3) * s.r.IntN(2) {
		if p := pick(s, s.pools); blocks.FamilyOf(p.cidr.Addr()) == family && !slices.Contains(request.Pools, p.cidr) {
			request.Pools = append(request.Pools, p.cidr)
			pools = append(pools, cnet.MustParseCIDR(p.cidr.String()))
		}
	}
	if family == blocks.IPv4 {
		args.Num4, args.IPv4Pools = 1, pools
	} else {
		args.Num6, args.IPv6Pools = 1, pools
	}
	v4, v6, err := s.s.Calico.IPAM().AutoAssign(s.ctx, args)
	var got netip.Prefix
	for _, assigned := range []*ipam.IPAMAssignments{v4, v6} {
		if assigned != nil && len(assigned.IPs) > 0 {
			got = netip.MustParsePrefix(assigned.IPs[0].String())
		}
	}
	if got.IsValid() {
		s.used = append(s.used, use{netip.PrefixFrom(got.Addr(), got.Addr().BitLen()), got.Masked()})
	}
	if s.alloc == nil {
		return
	}
	if args.Namespace != nil {
		request.Namespace = s.state.Namespace(ns.Name)
	}
	beforehand := s.alloc.Holdings()
	want := s.alloc.Assign(request)
	if want.Addr != got.Addr() || want.Addr.IsValid() && want.Block != got.Masked() {
		s.Fatalf("pod %d: %+v\nthe Allocator says %+v\nCalico assigned %v, and says: %v", s.pods, request, want, got, err)
	}
	if limit := errors.Is(err, ipam.ErrBlockLimit); limit != (want.Limit == capacity.LimitBlocksOfNode) {
		s.Fatalf("pod %d: %+v\nthe Allocator says %+v, Calico %v\nbefore it had\n%s", s.pods, request, want, err, beforehand)
	}
	count := func(n *int, if_ bool) {
		if if_ {
			*n++
		}
	}
	count(&s.tally.Own, want.Own(node))
	count(&s.tally.Claimed, want.Claimed)
	count(&s.tally.Borrowed, want.Addr.IsValid() && !want.Own(node))
	count(&s.tally.Refused, !want.Addr.IsValid())
	count(&s.tally.Limited, want.Limit == capacity.LimitBlocksOfNode)
	count(&s.tally.Requested, len(request.Pools) > 0 && want.Addr.IsValid())
	count(&s.tally.V6, want.Addr.Is6())
}

// release releases an address.
func (s *script) release() {
	if len(s.used) == 0 {
		return
	}
	i := s.r.IntN(len(s.used))
	u := s.used[i]
	s.used = slices.Delete(s.used, i, i+1)
	if _, _, err := s.s.Calico.IPAM().ReleaseIPs(s.ctx, ipam.ReleaseOptions{Address: u.addr.Addr().String()}); err != nil {
		s.Fatal(err)
	}
	if s.alloc != nil {
		s.alloc.Release(u.block, u.addr.Addr())
	}
	s.tally.Released++
}

// damage damages stored objects as happens in real clusters, and reads them again.
func (s *script) damage() {
	blocksThere, err := s.c.List(s.ctx, testcluster.CRDv1.Resource("ipamblocks"))
	s.must(err)
	affinities, err := s.c.List(s.ctx, testcluster.CRDv1.Resource("blockaffinities"))
	s.must(err)
	if len(blocksThere) == 0 || len(affinities) == 0 {
		return
	}
	b, f := blocksThere[s.r.IntN(len(blocksThere))].GetName(), affinities[s.r.IntN(len(affinities))].GetName()
	edit := func(plural, name string, change func(o, spec map[string]any)) {
		s.must(s.c.Edit(s.ctx, testcluster.CRDv1.Resource(plural), "", name, func(o map[string]any) { change(o, o["spec"].(map[string]any)) }))
	}
	what := s.r.IntN(9)
	switch what {
	case 0:
		s.must(s.c.Delete(s.ctx, testcluster.CRDv1.Resource("ipamblocks"), "", b))
	case 1:
		s.must(s.c.Delete(s.ctx, testcluster.CRDv1.Resource("blockaffinities"), "", f))
	case 2:
		edit("ipamblocks", b, func(_, spec map[string]any) { spec["deleted"] = true })
	case 3:
		edit("blockaffinities", f, func(_, spec map[string]any) { spec["deleted"] = "true" })
	case 4:
		edit("blockaffinities", f, func(_, spec map[string]any) {
			spec["state"] = pick(s, []string{"pending", "pendingDeletion", ""})
		})
	case 5:
		edit("blockaffinities", f, func(o, _ map[string]any) { delete(o["metadata"].(map[string]any), "labels") })
	case 6:
		edit("ipamblocks", b, func(_, spec map[string]any) { spec["affinity"] = "host:" + pick(s, s.nodes) })
	case 7:
		edit("ipamblocks", b, func(_, spec map[string]any) { delete(spec, "affinity") })
	case 8:
		p := pick(s, s.pools)
		s.must(s.s.EditPool(s.ctx, p.name, func(spec map[string]any) { spec["nodeSelector"] = "zone == '" + pick(s, zones) + "'" }))
	}
	s.tally.Damage++
	// Addresses of deleted blocks cannot be released.
	kept, err := s.c.ReadIPAM(s.ctx, testcluster.CRDv1)
	s.must(err)
	there := slices.Concat(slices.Collect(maps.Values(kept.Blocks))...)
	s.used = slices.DeleteFunc(s.used, func(u use) bool { return !slices.Contains(there, u.block) })
	s.read()
}

func (s *script) play() {
	s.world()
	for range 20 + s.r.IntN(30) {
		s.assign()
	}
	s.read()
	s.compare()
	for range 50 {
		switch n := s.r.IntN(40); {
		case n < 28:
			s.assign()
		case n < 33:
			s.release()
		case n < 35:
			s.node()
		case n < 37:
			s.settings()
		default:
			s.damage()
		}
	}
	s.compare()
}

// compare compares all blocks and affinities of the Allocator with the stored ones.
func (s *script) compare() {
	s.Helper()
	before := s.alloc.Holdings()
	s.read()
	if after := s.alloc.Holdings(); before != after {
		s.Errorf("the Allocator has\n%s\nand Calico\n%s", onlyIn(before, after), onlyIn(after, before))
	}
}

func onlyIn(a, b string) string {
	has := strings.Split(b, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(a, "\n"), func(l string) bool { return slices.Contains(has, l) }), "\n")
}
