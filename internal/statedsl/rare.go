package statedsl

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
)

// Rare returns the text of a random state like those of [Tight], with more features that are rare
// in clusters: limits of blocks, further namespaces, pool uses, taints, Windows nodes, virtual
// machines, host views, and owners of addresses other than pods.
func Rare(rnd *rand.Rand) string {
	r := &tight{Rand: rnd}
	r.say("version %s", r.pick("v3.29.0", "v3.30.1", "v3.31.0", "v3.31.0", "v3.32.1", "v3.32.1"))
	r.say("config %s", r.maybe(.7, "strict", "strict", "strict noauto", "strict max=1", "strict max=2", "strict max=3", "max=2", "strict noauto max=2", "cooldown=60s"))
	r.say("%s", r.maybe(.12, "config name=other strict"))
	r.say("budget none")
	namespaces := []string{"shop", "red", "bare", "blue"}
	r.say("namespace shop %s", r.maybe(.3, "label=team=blue"))
	r.say("namespace bare")
	r.say("namespace blue label=team=blue %s", r.maybe(.3, "pools=third", "pools=first,third"))
	r.say("namespace red label=team=red %s", r.maybe(.4, "pools=second", "pools=second,first"))
	windows := r.IntN(6) == 0
	r.nodes(windows)
	pools := r.pools(windows)
	for range r.IntN(2) {
		r.say("reserve %s/%d", r.pick("10.0.0.4", "10.0.0.8", "10.0.1.0", "10.0.0.0", "10.0.2.0"), 29+r.IntN(4))
	}
	owners := append(slices.Clone(r.hosts), "gone")
	if r.IntN(5) == 0 {
		owners = append(owners, "-")
	}
	for _, p := range pools {
		base := p.first
		for range p.blocks {
			if r.IntN(5) > 0 {
				bits := p.bits
				if r.IntN(25) == 0 { // the pool had another block size before
					bits = min(bits+r.IntN(3)-1, base.BitLen())
				}
				r.rareBlock(netip.PrefixFrom(base, bits).Masked(), owners, namespaces, p.services)
			}
			for range 1 << (base.BitLen() - p.bits) {
				base = base.Next()
			}
		}
	}
	for range r.IntN(3) {
		r.pods++
		r.say("pod %s/p%d %s phase=Pending %s", r.pick(namespaces...), r.pods, r.pick(r.hosts...), r.maybe(.4, "pools=second", "pools=first", "pools4=third", "pools6=six", "asks=10.0.0.1", "of=ReplicaSet/web"))
	}
	if r.IntN(3) == 0 {
		r.say("vm shop/vm1")
		r.say("vmi shop/vm1 ofvm")
	} else {
		r.say("%s", r.maybe(.12, "vm none"))
	}
	r.say("%s", r.maybe(.08, "controllers none", "controllers grace=0s", "controllers lb=on"))
	r.say("%s", r.maybe(.1, "view "+r.hosts[0]+" agent complete age=1m"))
	r.say("%s", r.maybe(.06, "locked"))
	return strings.Join(slices.DeleteFunc(r.lines, func(line string) bool { return line == "" }), "\n")
}

// nodes draws the nodes.
func (r *tight) nodes(windows bool) {
	for i := range 1 + r.IntN(5) {
		name := fmt.Sprintf("n%d", i)
		r.hosts = append(r.hosts, name)
		unusual := []string{"cordoned", "taint=dedicated", "notready", "outofservice notready", "taint=node-role.kubernetes.io/control-plane"}
		if windows {
			unusual = append(unusual, "windows", "windows", "windows")
		}
		r.say("node %s pods=%d label=zone=%s %s %s", name, 4+r.IntN(8), r.pick("a", "b", "c"), r.maybe(.3, unusual...), r.maybe(.1, "podcidr=10.0.0.0/30")+" "+r.maybe(.15, fmt.Sprintf("tunnel=vxlan@10.0.0.%d", r.IntN(16)), fmt.Sprintf("tunnel=ipip@10.0.1.%d", r.IntN(16)), "key=wireguard"))
	}
}

// rarePool is a pool of a Rare state. It has the given number of blocks, and bits is their prefix
// length.
type rarePool struct {
	first        netip.Addr
	bits, blocks int
	services     bool
}

// pools draws the pools. On Windows, blocks of four addresses have none for pods, and all are IPv4.
func (r *tight) pools(windows bool) (out []rarePool) {
	add := func(name, first string, options string) {
		p := rarePool{first: netip.MustParseAddr(first), services: strings.Contains(options, "LoadBalancer")}
		more := r.IntN(4)
		p.blocks = 1 << more
		hostBits := []int{2, 2, 1, 0, 3}[r.IntN(5)]
		if windows {
			hostBits = 3
		}
		p.bits = p.first.BitLen() - hostBits
		r.say("pool %s %s/%d size=%d %s", name, first, p.bits-more, p.bits, options)
		out = append(out, p)
	}
	overlay := func() string { return r.maybe(.4, "vxlan=Always", "ipip=Always", "vxlan=CrossSubnet") }
	special := func() string {
		return r.maybe(.5, "nodes=zone=='a'", "nodes=zone!='b'", "namespaces=team=='red'", "namespaces=!has(team)", "manual", "disabled",
			"uses=Workload", "uses=Tunnel", "notAllocatable=CIDROverlap", "terminating", "nodes=zone=='a' namespaces=team=='red'")
	}
	add("first", "10.0.0.0", r.maybe(.25, "nodes=zone=='a'", "namespaces=team=='red'", "nodes=zone!='b'")+" "+overlay())
	if r.IntN(3) > 0 {
		add("second", "10.0.1.0", special()+" "+overlay())
	}
	if r.IntN(3) == 0 {
		add("third", "10.0.2.0", special())
	}
	if r.IntN(12) == 0 {
		add("within", r.pick("10.0.0.0", "10.0.0.8", "10.0.1.0"), special())
	}
	if r.IntN(4) == 0 {
		add("services", "10.0.3.0", "uses=LoadBalancer"+r.maybe(.3, ",Workload"))
	}
	if !windows && r.IntN(3) == 0 {
		add("six", "fd00::", special())
	}
	if !windows && r.IntN(6) == 0 {
		add("seven", "fd01::", special())
	}
	return out
}

// rareBlock draws a block that is empty, full or in between, its affinities and who uses its
// addresses.
func (r *tight) rareBlock(cidr netip.Prefix, owners, namespaces []string, services bool) {
	owner := r.pick(owners...)
	if services {
		owner = "virtual:load-balancer"
	}
	exists := r.IntN(12) > 0 && r.first(cidr)
	if exists {
		r.say("block %s %s %s", cidr, owner, r.maybe(.2, "age=1m", "deleted", "noage", "claimed=30s", "claimed=10m", "strict"))
	}
	if owner != "-" && r.IntN(10) > 0 && r.first(owner+cidr.String()) {
		r.say("affinity %s %s %s", cidr, owner, r.maybe(.2, "state=pending", "state=pendingDeletion", "deleted", "unlabelled"))
	}
	if other := r.pick(r.hosts...); r.IntN(12) == 0 && other != owner && r.first(other+cidr.String()) {
		r.say("affinity %s %s %s", cidr, other, r.maybe(.4, "state=pending", "state=pendingDeletion", "deleted"))
	}
	size := 1 << (cidr.Addr().BitLen() - cidr.Bits())
	addr := cidr.Addr()
	for range []int{0, 0, size, size, r.IntN(size + 1), size - 1}[r.IntN(6)] {
		r.pods++
		node := r.pick(r.hosts...)
		if slices.Contains(r.hosts, owner) && r.IntN(6) > 0 {
			node = owner
		}
		switch {
		case !r.first(addr): // in use already
		case services && exists:
			r.say("alloc %s handle=lb-%d service=shop/s%d", addr, r.pods, r.pods)
		case !services:
			r.user(addr, fmt.Sprintf("%s/p%d", r.pick(namespaces...), r.pods), node, exists)
		}
		addr = addr.Next()
	}
	if exists && !services && cidr.Contains(addr) && addr.Is4() && r.first(addr) {
		r.free = append(r.free, addr)
	}
}

// user draws who uses an address; its block may not exist.
func (r *tight) user(addr netip.Addr, pod, node string, exists bool) {
	like := r.maybe(.95, "of=ReplicaSet/web", "of=ReplicaSet/api", "of=DaemonSet/log", "of=StatefulSet/db", "of=Job/j once") + " ready" +
		r.maybe(.15, " tolerates=all", " tolerates=dedicated", " on=zone=a", " on=zone=b") +
		r.maybe(.06, " noevict", " static", " scratch", " claim") + r.maybe(.12, " pools=first", " pools=second", " pools4=third")
	switch n := r.IntN(26); {
	case n == 0 || !exists: // not recorded
		r.say("pod %s %s %s cid=c%d %s", pod, node, addr, r.pods, like)
	case n == 1: // leaked
		r.say("alloc %s pod=%s node=%s handle=k8s-pod-network.c%d", addr, pod, node, r.pods)
	case n == 2:
		kind := r.pick("ipip", "vxlan")
		r.say("alloc %s node=%s handle=%s-tunnel-addr-%s type=%sTunnelAddress", addr, node, kind, node, kind)
	case n == 3:
		r.say("alloc %s cooling", addr)
	case n == 4:
		r.say("use %s %s %s vmi=vm1", addr, pod, node)
	case n == 5:
		r.say("use %s %s %s terminating", addr, pod, node)
	case n == 6:
		r.say("alloc %s handle=hand-%d", addr, r.pods)
	case n == 7:
		r.say("use %s %s %s phase=Succeeded of=Job/j", addr, pod, node)
	case n == 8:
		r.say("use %s %s %s asks=%s %s", addr, pod, node, addr, like)
	default:
		if n := len(r.free); addr.Is6() && n > 0 && r.IntN(2) == 0 { // of both families
			v4 := r.free[n-1]
			r.free = r.free[:n-1]
			for _, a := range []netip.Addr{v4, addr} {
				r.say("alloc %s pod=%s node=%s handle=k8s-pod-network.c%d", a, pod, node, r.pods)
			}
			r.say("pod %s %s %s,%s cid=c%d %s", pod, node, v4, addr, r.pods, like)
			return
		}
		r.say("use %s %s %s %s", addr, pod, node, like)
	}
}

// first reports whether a block's CIDR, an affinity or an address is drawn for the first time. Pools
// and blocks may overlap.
func (r *tight) first(p any) bool {
	if r.drawn == nil {
		r.drawn = map[any]bool{}
	}
	was := r.drawn[p]
	r.drawn[p] = true
	return !was
}

func (r *tight) pick(words ...string) string { return words[r.IntN(len(words))] }
