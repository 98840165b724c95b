package statedsl

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
)

// Tight returns a random state of small pools with blocks of four addresses. Most blocks are full
// or empty.
func Tight(rnd *rand.Rand) string {
	r := &tight{Rand: rnd}
	r.say("version %s", []string{"v3.30.1", "v3.31.0", "v3.31.0", "v3.32.1"}[r.IntN(4)])
	r.say("config %s", r.maybe(.6, "strict", "strict", "strict noauto", "strict max=1", "strict max=2"))
	r.say("budget none")
	namespaces := []string{"shop", "red", "bare"}
	r.say("namespace shop")
	r.say("namespace bare")
	r.say("namespace red label=team=red %s", r.maybe(.3, "pools=second"))
	for i := range 1 + r.IntN(4) {
		name := fmt.Sprintf("n%d", i)
		r.hosts = append(r.hosts, name)
		r.say("node %s label=zone=%s %s", name, []string{"a", "b"}[r.IntN(2)], r.maybe(.15, "cordoned", "taint=dedicated", "notready"))
	}
	pools := map[string]int{} // the number of blocks by first address
	pool := func(name, base, options string, bits int) {
		n := r.IntN(4)
		r.say("pool %s %s/%d size=%d %s", name, base, bits-n, bits, options)
		pools[base] = 1 << n
	}
	pool("first", "10.0.0.0", r.maybe(.15, "nodes=zone=='a'", "namespaces=team=='red'"), 30)
	if r.IntN(2) == 0 {
		pool("second", "10.0.1.0", r.maybe(.6, "nodes=zone=='a'", "namespaces=team=='red'", "manual", "disabled"), 30)
	}
	if r.IntN(3) == 0 {
		pool("six", "fd00::", "", 126)
	}
	if r.IntN(3) == 0 {
		r.say("reserve %s/%d", []string{"10.0.0.4", "10.0.0.8", "10.0.1.0"}[r.IntN(3)], 29+r.IntN(3))
	}
	owners := append(slices.Clone(r.hosts), "gone")
	for _, first := range slices.Sorted(maps.Keys(pools)) {
		base := netip.MustParseAddr(first)
		bits := base.BitLen() - 2
		for range pools[first] {
			if cidr := netip.PrefixFrom(base, bits); r.IntN(5) > 0 {
				r.block(cidr, owners, namespaces)
			}
			for range 4 {
				base = base.Next()
			}
		}
	}
	return strings.Join(r.lines, "\n")
}

// block makes a block that is empty, full or in between.
func (r *tight) block(cidr netip.Prefix, owners, namespaces []string) {
	owner := owners[r.IntN(len(owners))]
	exists := r.IntN(12) > 0
	if exists {
		r.say("block %s %s %s", cidr, owner, r.maybe(.1, "age=1m", "deleted"))
	}
	if r.IntN(10) > 0 {
		r.say("affinity %s %s %s", cidr, owner, r.maybe(.15, "state=pending", "state=pendingDeletion", "deleted", "unlabelled"))
	}
	if r.IntN(12) == 0 {
		if other := owners[r.IntN(len(owners))]; other != owner {
			r.say("affinity %s %s %s", cidr, other, r.maybe(.3, "state=pending"))
		}
	}
	addr, used := cidr.Addr(), []int{0, 0, 4, 4, r.IntN(5)}[r.IntN(5)]
	for range used {
		r.pods++
		pod := fmt.Sprintf("%s/p%d", namespaces[r.IntN(len(namespaces))], r.pods)
		node := r.hosts[r.IntN(len(r.hosts))]
		if slices.Contains(r.hosts, owner) && r.IntN(6) > 0 {
			node = owner
		}
		like := r.maybe(.95, "of=ReplicaSet/web", "of=ReplicaSet/api", "of=DaemonSet/log") + " ready"
		switch n := r.IntN(20); {
		case n == 0 || !exists: // not recorded
			r.say("pod %s %s %s cid=c%d %s", pod, node, addr, r.pods, like)
		case n == 1: // leaked
			r.say("alloc %s pod=%s node=%s handle=k8s-pod-network.c%d", addr, pod, node, r.pods)
		default:
			r.say("use %s %s %s %s", addr, pod, node, like)
		}
		addr = addr.Next()
	}
	if r.IntN(10) == 0 {
		r.pods++
		r.say("pod %s/p%d %s phase=Pending %s", namespaces[r.IntN(len(namespaces))], r.pods, r.hosts[r.IntN(len(r.hosts))], r.maybe(.2, "pools=second", "pools=first"))
	}
}

// tight makes one such state.
type tight struct {
	*rand.Rand
	lines, hosts []string
	// pods counts them, for their names.
	pods int
	// free holds IPv4 addresses that no one uses, for pods of both families.
	free []netip.Addr
	// drawn holds the blocks and addresses of a Rare state.
	drawn map[any]bool
}

func (r *tight) say(format string, args ...any) {
	r.lines = append(r.lines, strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
}

// maybe returns one of the words with a probability of share, else nothing.
func (r *tight) maybe(share float64, words ...string) string {
	if r.Float64() < share {
		return words[r.IntN(len(words))]
	}
	return ""
}
