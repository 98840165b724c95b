package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

var (
	nodesKind      = testcluster.Core[1]
	podsKind       = testcluster.Core[2]
	blocksKind     = testcluster.CRDv1.Resource("ipamblocks")
	affinitiesKind = testcluster.CRDv1.Resource("blockaffinities")
	handlesKind    = testcluster.CRDv1.Resource("ipamhandles")
)

// A damage is a kind of damage to a healthy node. It affects only the node, its block and
// its pods.
type damage struct {
	name string
	do   func(d *damager, node string) error
}

// damages lists the kinds of damage. Nodes are assigned to them in this order.
var damages = []damage{
	{"a handle that no block refers to", (*damager).leakHandle},
	{"a handle that is missing", (*damager).loseHandle},
	{"a handle that counts one address too many", (*damager).miscountHandle},
	{"an address whose pod is gone", (*damager).leakAddress},
	{"an address that a live pod uses and its block calls free", (*damager).freeAddress},
	{"an address that names another node than its pod's", (*damager).misnameNode},
	{"an address that two pods use", (*damager).shareAddress},
	{"an address without an owner that can be looked up", (*damager).anonymousAddress},
	{"an address that a pod of another node uses", (*damager).borrowAddress},
	{"an affinity without its block", (*damager).orphanAffinity},
	{"an affinity to the block of another node", (*damager).rivalAffinity},
	{"an affinity that stays pending", (*damager).stickAffinity},
	{"a block without its affinity", (*damager).loseAffinity},
	{"a block of which no address is used", (*damager).emptyBlock},
	{"a block that contradicts itself", (*damager).corruptBlock},
	{"a block in use without an owner", (*damager).disownBlock},
	{"a block in use outside all pools", (*damager).blockOutsidePools},
	{"a block of another size than its pool's", (*damager).smallBlock},
	{"a block that overlaps another", (*damager).overlapBlock},
	{"a second block of a pool", (*damager).secondBlock},
	{"a handle that stays marked deleted", (*damager).softDeleteHandle},
	{"a node without a block", (*damager).blocklessNode},
	{"a node that has vanished", (*damager).vanishNode},
}

// wide lists the kinds of damage that a cluster can have at most once or a few times.
var wide = []struct {
	name string
	do   func(d *damager) error
}{
	{"a disabled pool in use", (*damager).disabledPool},
	{"a pool that overlaps another", (*damager).overlapPool},
	{"a collector of Calico's that collects nothing", (*damager).disableCollector},
	{"a block with a setting that Calico ignores", (*damager).ignoredSetting},
}

// A damager plants damage into a cluster.
type damager struct {
	*cluster
	ctx    context.Context
	blocks map[string]netip.Prefix // by node
	sound  []string                // nodes without damage
	made   int                     // blocks outside podPool
	rivals int                     // affinities to blocks of other nodes
	want   expected
}

// soundNodes is the minimum number of nodes without damage of their own. Some of them
// take part in another node's damage.
const soundNodes = 6

// plant damages a share of the nodes, at least one node for each kind. The seed selects
// the nodes. plant returns the findings that the damage must cause.
func plant(ctx context.Context, c *cluster, share float64, seed uint64) (expected, error) {
	each := max(1, int(float64(c.bulk.Nodes)*share))
	if least := each*len(damages) + soundNodes; c.bulk.Nodes < least {
		return nil, fmt.Errorf("%d nodes are too few: damage needs %d", c.bulk.Nodes, least)
	}
	byNode, err := c.blocksByNode(ctx)
	if err != nil {
		return nil, err
	}
	// The first node is the template of the others, and younger.
	order := rand.New(rand.NewPCG(seed, seed)).Perm(c.bulk.Nodes - 1)
	var nodes []string
	for _, n := range order {
		nodes = append(nodes, c.node(n+1))
	}
	d := &damager{cluster: c, ctx: ctx, blocks: byNode, want: expected{}, sound: nodes[each*len(damages):]}
	for _, kind := range damages {
		for _, node := range nodes[:each] {
			if err := kind.do(d, node); err != nil {
				return nil, fmt.Errorf("planting %s on %s: %w", kind.name, node, err)
			}
		}
		nodes = nodes[each:]
	}
	for _, kind := range wide {
		if err := kind.do(d); err != nil {
			return nil, fmt.Errorf("planting %s: %w", kind.name, err)
		}
	}
	return d.want, nil
}

func (d *damager) leakHandle(node string) error {
	name := "k8s-pod-network.leaked-" + node
	d.want.add("handle/leaked", name)
	return d.newHandle(node, name, d.blocks[node])
}

func (d *damager) loseHandle(node string) error {
	name := d.handle(node, 1)
	d.want.add("handle/missing", name)
	return d.Unstore(d.ctx, handlesKind, "", name)
}

func (d *damager) miscountHandle(node string) error {
	name := d.handle(node, 1)
	d.want.add("handle/count", name)
	return d.editSpec(handlesKind, name, func(spec map[string]any) error {
		spec["block"] = map[string]any{d.blocks[node].String(): int64(2)}
		return nil
	})
}

func (d *damager) leakAddress(node string) error {
	pod, err := d.pod(node, 1)
	if err != nil {
		return err
	}
	d.want.add("ip/leaked", pod.Status.PodIP)
	return d.Unstore(d.ctx, podsKind, pod.Namespace, pod.Name)
}

func (d *damager) freeAddress(node string) error {
	pod, err := d.pod(node, 1)
	if err != nil {
		return err
	}
	d.want.add("ip/unallocated", pod.Status.PodIP)
	if err := d.Unstore(d.ctx, handlesKind, "", d.handle(node, 1)); err != nil {
		return err
	}
	return d.editBlock(node, func(b *block) error {
		ordinal := b.ordinal(pod.Status.PodIP)
		b.allocations()[ordinal] = nil
		b.spec["unallocated"] = append(b.unallocated(), int64(ordinal))
		delete(b.spec["sequenceNumberForAllocation"].(map[string]any), fmt.Sprint(ordinal))
		return b.dropUnusedAttributes()
	})
}

func (d *damager) misnameNode(node string) error {
	pod, err := d.pod(node, 1)
	if err != nil {
		return err
	}
	d.want.add("ip/wrong-node", pod.Status.PodIP)
	return d.editBlock(node, func(b *block) error {
		b.owner(pod.Status.PodIP)["node"] = d.sound[0]
		return nil
	})
}

func (d *damager) shareAddress(node string) error {
	pod, err := d.pod(node, 1)
	if err != nil {
		return err
	}
	d.want.add("ip/duplicate", pod.Status.PodIP)
	return d.store(podsKind, pod, pod.Name+"-second")
}

func (d *damager) anonymousAddress(node string) error {
	handle := "podman." + node
	if err := d.newHandle(node, handle, d.blocks[node]); err != nil {
		return err
	}
	return d.editBlock(node, func(b *block) error {
		ip, err := b.use(map[string]any{"handle_id": handle, "secondary": map[string]any{}})
		d.want.add("ip/unknown-owner", ip)
		return err
	})
}

func (d *damager) borrowAddress(node string) error {
	pod, err := d.pod(node, 1)
	if err != nil {
		return err
	}
	borrower := d.sound[1]
	pod.Spec.NodeName = borrower
	if err := d.Store(d.ctx, podsKind, pod); err != nil {
		return err
	}
	d.want.add("ip/borrowed", pod.Status.PodIP)
	return d.editBlock(node, func(b *block) error {
		b.owner(pod.Status.PodIP)["node"] = borrower
		return nil
	})
}

func (d *damager) orphanAffinity(node string) error {
	cidr := d.spare()
	d.want.add("affinity/no-block", node+" "+cidr.String())
	return d.newAffinity(node, cidr)
}

func (d *damager) rivalAffinity(node string) error {
	cidr := d.blocks[node]
	rival := d.sound[len(d.sound)-1-d.rivals/10] // spread the affinities so that no node reaches its limit of blocks
	d.rivals++
	d.want.add("affinity/not-owner", rival+" "+cidr.String())
	return d.newAffinity(rival, cidr)
}

func (d *damager) stickAffinity(node string) error {
	d.want.add("affinity/stuck", node+" "+d.blocks[node].String())
	return d.editSpec(affinitiesKind, affinityName(node, d.blocks[node]), func(spec map[string]any) error {
		spec["state"] = "pending"
		return nil
	})
}

func (d *damager) loseAffinity(node string) error {
	d.want.add("block/no-affinity", d.blocks[node].String())
	return d.Unstore(d.ctx, affinitiesKind, "", affinityName(node, d.blocks[node]))
}

func (d *damager) emptyBlock(node string) error {
	cidr := d.spare()
	d.want.add("block/empty", cidr.String())
	return errors.Join(d.newBlock(node, cidr, nil), d.newAffinity(node, cidr))
}

func (d *damager) corruptBlock(node string) error {
	d.want.add("block/corrupt", d.blocks[node].String())
	d.want.add("node/no-block", node) // the node cannot allocate from it
	pod, err := d.pod(node, 1)
	if err != nil {
		return err
	}
	return d.editBlock(node, func(b *block) error {
		b.spec["unallocated"] = append(b.unallocated(), int64(b.ordinal(pod.Status.PodIP)))
		return nil
	})
}

func (d *damager) disownBlock(node string) error {
	cidr := d.blocks[node]
	d.want.add("block/unaffine", cidr.String())
	d.want.add("node/no-block", node)
	if err := d.Unstore(d.ctx, affinitiesKind, "", affinityName(node, cidr)); err != nil {
		return err
	}
	return d.editBlock(node, func(b *block) error {
		delete(b.spec, "affinity")
		return nil
	})
}

func (d *damager) blockOutsidePools(node string) error {
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(d.made >> 2), byte(d.made << 6)}), blockSize)
	d.made++
	d.want.add("block/no-pool", cidr.String())
	return errors.Join(d.usedBlock(node, cidr), d.newAffinity(node, cidr))
}

func (d *damager) smallBlock(node string) error {
	cidr := netip.PrefixFrom(d.spare().Addr(), blockSize+1)
	d.want.add("block/size-mismatch", cidr.String())
	return errors.Join(d.usedBlock(node, cidr), d.newAffinity(node, cidr))
}

// overlapBlock creates a block over the half of the node's own block that no pod uses.
func (d *damager) overlapBlock(node string) error {
	a := d.blocks[node].Addr().As4()
	a[3] += 1 << (31 - blockSize)
	cidr := netip.PrefixFrom(netip.AddrFrom4(a), blockSize+1)
	d.want.add("block/overlap", cidr.String())
	d.want.add("block/size-mismatch", cidr.String())
	d.want.add("node/many-blocks", node)
	return errors.Join(d.usedBlock(node, cidr), d.newAffinity(node, cidr))
}

// secondBlock creates a block for the first unused CIDR of podPool.
func (d *damager) secondBlock(node string) error {
	taken := map[netip.Prefix]bool{}
	for _, cidr := range d.blocks {
		taken[cidr] = true
	}
	a := netip.MustParsePrefix(podPool).Addr().As4()
	for i := range 1 << 17 {
		a[1], a[2], a[3] = byte(i>>10), byte(i>>2), byte(i<<6)
		cidr := netip.PrefixFrom(netip.AddrFrom4(a), blockSize)
		if taken[cidr] {
			continue
		}
		d.blocks["the second of "+node] = cidr
		d.want.add("node/many-blocks", node)
		return errors.Join(d.usedBlock(node, cidr), d.newAffinity(node, cidr))
	}
	return errors.New("no block is left")
}

func (d *damager) disabledPool() error {
	const cidr = "172.29.0.0/26"
	d.want.add("pool/disabled-in-use", "disabled")
	node := d.sound[3]
	return errors.Join(
		d.seeder.Pool(d.ctx, "disabled", apiv3.IPPoolSpec{CIDR: cidr, BlockSize: blockSize, Disabled: true}),
		d.usedBlock(node, netip.MustParsePrefix(cidr)), d.newAffinity(node, netip.MustParsePrefix(cidr)))
}

func (d *damager) overlapPool() error {
	d.want.add("pool/overlap", "twice")
	return d.seeder.RawPool(d.ctx, "twice", map[string]any{"cidr": "10.192.0.0/10", "blockSize": int64(blockSize), "nodeSelector": "all()"})
}

func (d *damager) disableCollector() error {
	d.want.add("config/gc-disabled", seeding.ClusterGUID)
	return d.Edit(d.ctx, testcluster.CRDv1.Resource("kubecontrollersconfigurations"), "", "default", func(object map[string]any) {
		controllers := object["spec"].(map[string]any)["controllers"].(map[string]any)
		delete(controllers["node"].(map[string]any), "leakGracePeriod")
	})
}

func (d *damager) ignoredSetting() error {
	d.want.add("config/block-strict-affinity", "default")
	return d.editBlock(d.sound[4], func(b *block) error {
		b.spec["strictAffinity"] = true
		return nil
	})
}

func (d *damager) softDeleteHandle(node string) error {
	name := "k8s-pod-network.deleted-" + node
	d.want.add("block/soft-deleted", name)
	if err := d.newHandle(node, name, d.blocks[node]); err != nil {
		return err
	}
	return d.editSpec(handlesKind, name, func(spec map[string]any) error {
		spec["deleted"] = true
		return nil
	})
}

func (d *damager) blocklessNode(node string) error {
	stored, err := d.Stored(d.ctx, nodesKind, "", node)
	if err != nil {
		return err
	}
	d.made++
	fresh := stored.(*corev1.Node)
	address := fmt.Sprintf("172.31.%d.%d", d.made>>8, d.made&255)
	fresh.Annotations["projectcalico.org/IPv4Address"] = address + "/16"
	fresh.Status.Addresses[0].Address = address
	fresh.Labels[corev1.LabelHostname] = node + "-fresh"
	d.want.add("node/no-block", node+"-fresh")
	return d.store(nodesKind, fresh, node+"-fresh")
}

func (d *damager) vanishNode(node string) error {
	cidr := d.blocks[node]
	d.want.add("block/dead-node", cidr.String())
	d.want.add("affinity/dead-node", node+" "+cidr.String())
	for p := range d.bulk.PodsPerNode {
		pod, err := d.pod(node, p)
		if err != nil {
			return err
		}
		d.want.add("ip/leaked", pod.Status.PodIP)
		if err := d.Unstore(d.ctx, podsKind, pod.Namespace, pod.Name); err != nil {
			return err
		}
	}
	return d.Unstore(d.ctx, nodesKind, "", node)
}

// spare returns the next CIDR for a block in sparePool.
func (d *damager) spare() netip.Prefix {
	d.made++
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 | byte(d.made>>10), byte(d.made >> 2), byte(d.made << 6)}), blockSize)
}

// pod returns one of a node's pods.
func (d *damager) pod(node string, p int) (*corev1.Pod, error) {
	var n int
	if _, err := fmt.Sscanf(node, d.bulk.Prefix+"-%d", &n); err != nil {
		return nil, err
	}
	at := d.bulk.PodAt(n, p)
	stored, err := d.Stored(d.ctx, podsKind, at.Namespace, at.Name)
	if err != nil {
		return nil, err
	}
	return stored.(*corev1.Pod), nil
}

// handle returns the name of the handle of one of a node's pods.
func (d *damager) handle(node string, p int) string {
	var n int
	_, _ = fmt.Sscanf(node, d.bulk.Prefix+"-%d", &n)
	at := d.bulk.PodAt(n, p)
	return strings.ToLower(seeding.Handle(at.Namespace, at.Name))
}

// store stores a copy of an object under another name and UID.
func (d *damager) store(r testcluster.Resource, object interface {
	runtime.Object
	metav1.Object
}, name string) error {
	object.SetName(name)
	object.SetUID(uuid.NewUUID())
	return d.Store(d.ctx, r, object)
}

// copySpec stores a copy of a custom resource under another name, with a changed spec.
func (d *damager) copySpec(r testcluster.Resource, from, name string, change func(spec map[string]any) error) error {
	stored, err := d.Stored(d.ctx, r, "", from)
	if err != nil {
		return err
	}
	u := stored.(*unstructured.Unstructured)
	if err := change(u.Object["spec"].(map[string]any)); err != nil {
		return err
	}
	if name == from {
		return d.Store(d.ctx, r, u)
	}
	return d.store(r, u, name)
}

func (d *damager) editSpec(r testcluster.Resource, name string, change func(spec map[string]any) error) error {
	return d.copySpec(r, name, name, change)
}

// newHandle creates a handle that counts one address of a block.
func (d *damager) newHandle(node, id string, cidr netip.Prefix) error {
	return d.copySpec(handlesKind, d.handle(node, 0), id, func(spec map[string]any) error {
		spec["handleID"], spec["block"] = id, map[string]any{cidr.String(): int64(1)}
		return nil
	})
}

// newAffinity creates a confirmed affinity of a node.
func (d *damager) newAffinity(node string, cidr netip.Prefix) error {
	return d.copySpec(affinitiesKind, affinityName(node, d.blocks[node]), affinityName(node, cidr), func(spec map[string]any) error {
		spec["cidr"] = cidr.String()
		return nil
	})
}

func affinityName(node string, cidr netip.Prefix) string { return node + "-" + blockName(cidr) }

func blockName(cidr netip.Prefix) string {
	return strings.NewReplacer(".", "-", "/", "-").Replace(cidr.String())
}

// newBlock creates an empty block of a node. fill may allocate addresses of it.
func (d *damager) newBlock(node string, cidr netip.Prefix, fill func(*block) error) error {
	return d.copySpec(blocksKind, blockName(d.blocks[node]), blockName(cidr), func(spec map[string]any) error {
		size := 1 << (32 - cidr.Bits())
		var free []any
		for i := range size {
			free = append(free, int64(i))
		}
		spec["cidr"], spec["allocations"], spec["unallocated"] = cidr.String(), make([]any, size), free
		spec["attributes"], spec["sequenceNumberForAllocation"] = []any{}, map[string]any{}
		if fill == nil {
			return nil
		}
		return fill(&block{spec, cidr})
	})
}

// usedBlock creates a block and a pod that uses an address of it.
func (d *damager) usedBlock(node string, cidr netip.Prefix) error {
	pod, err := d.pod(node, 0)
	if err != nil {
		return err
	}
	pod.Name += "-" + blockName(cidr)
	id := strings.ToLower(seeding.Handle(pod.Namespace, pod.Name))
	if err := d.newHandle(node, id, cidr); err != nil {
		return err
	}
	err = d.newBlock(node, cidr, func(b *block) error {
		ip, err := b.use(map[string]any{"handle_id": id, "secondary": map[string]any{
			"pod": pod.Name, "namespace": pod.Namespace, "node": node,
		}})
		setAddress(pod, ip)
		return err
	})
	return errors.Join(err, d.store(podsKind, pod, pod.Name))
}

// setAddress sets a pod's address and sandbox.
func setAddress(pod *corev1.Pod, ip string) {
	pod.Annotations[conversion.AnnotationPodIP], pod.Annotations[conversion.AnnotationPodIPs] = ip+"/32", ip+"/32"
	pod.Annotations[conversion.AnnotationContainerID] = seeding.ContainerID(pod.Namespace, pod.Name)
	pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
}

// A block is the spec of a stored IPAMBlock.
type block struct {
	spec map[string]any
	cidr netip.Prefix
}

// editBlock changes a node's block.
func (d *damager) editBlock(node string, change func(*block) error) error {
	cidr := d.blocks[node]
	return d.editSpec(blocksKind, blockName(cidr), func(spec map[string]any) error { return change(&block{spec, cidr}) })
}

func (b *block) allocations() []any { return b.spec["allocations"].([]any) }
func (b *block) attributes() []any  { return b.spec["attributes"].([]any) }
func (b *block) unallocated() []any { return b.spec["unallocated"].([]any) }

func (b *block) ordinal(ip string) int {
	from, at := b.cidr.Addr().As4(), netip.MustParseAddr(ip).As4()
	return int(at[3]) - int(from[3]) // blocks have at most 256 addresses
}

// owner returns the attributes that name the owner of an address.
func (b *block) owner(ip string) map[string]any {
	index := b.allocations()[b.ordinal(ip)].(int64)
	return b.attributes()[index].(map[string]any)["secondary"].(map[string]any)
}

// use allocates the block's next free address.
func (b *block) use(attributes map[string]any) (ip string, err error) {
	free := b.unallocated()
	if len(free) == 0 {
		return "", fmt.Errorf("block %s is full", b.cidr)
	}
	ordinal := free[0].(int64)
	b.spec["unallocated"] = free[1:]
	b.spec["attributes"] = append(b.attributes(), attributes)
	b.allocations()[ordinal] = int64(len(b.attributes()) - 1)
	b.spec["sequenceNumberForAllocation"].(map[string]any)[fmt.Sprint(ordinal)] = b.spec["sequenceNumber"]
	a := b.cidr.Addr().As4()
	a[3] += byte(ordinal)
	return netip.AddrFrom4(a).String(), nil
}

// dropUnusedAttributes removes attributes that no address refers to, as Calico does when
// it releases an address.
func (b *block) dropUnusedAttributes() error {
	used := map[int64]bool{}
	for _, a := range b.allocations() {
		if index, ok := a.(int64); ok {
			used[index] = true
		}
	}
	for index := int64(len(b.attributes())) - 1; index >= 0; index-- {
		if used[index] {
			continue
		}
		b.spec["attributes"] = slices.Delete(b.attributes(), int(index), int(index)+1)
		for i, a := range b.allocations() {
			if at, ok := a.(int64); ok && at > index {
				b.allocations()[i] = at - 1
			}
		}
	}
	return nil
}
