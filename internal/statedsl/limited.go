package statedsl

import (
	"math/rand/v2"
	"net/netip"
	"strings"
)

// Limited returns a random state of a small pool, often a second one, whose nodes are at or near
// their block limit. Many affinities have no block, and many pods borrow.
func Limited(rnd *rand.Rand) string {
	r := &tight{Rand: rnd}
	r.say("version %s", r.pick("v3.30.1", "v3.32.1"))
	r.say("config %s max=%d %s", r.maybe(.6, "strict"), 1+r.IntN(2), r.maybe(.2, "cooldown=60s"))
	r.say("budget none")
	r.say("namespace shop")
	r.say("namespace red label=team=red")
	// v3.30 chooses the slots that a node claims by the hash of its name.
	for _, name := range []string{"a", "n2", "z", r.pick("b", "m", "worker-1", "worker-4", "worker-8"), "k"}[:2+r.IntN(4)] {
		r.hosts = append(r.hosts, name)
		r.say("node %s %s", name, r.maybe(.3, "label=zone=b", "pods=4"))
	}
	n := 1 + r.IntN(3)
	r.say("pool first 10.0.0.0/%d size=30", 30-n)
	r.slots("10.0.0.0", 1<<n, "shop")
	if r.IntN(3) == 0 {
		r.say("pool second 10.0.1.0/%d size=30 %s", 28+r.IntN(3), r.maybe(.5, "nodes=zone!='b'", "namespaces=team=='red'"))
		r.slots("10.0.1.0", 2, "red")
	}
	r.say("affinity 10.0.9.0/30 gone")
	return strings.Join(r.lines, "\n") + "\n"
}

// slots makes n slots of four addresses: each is free, or has a block, an affinity, or both.
func (r *tight) slots(first string, n int, namespace string) {
	addr := netip.MustParseAddr(first)
	for range n {
		cidr, owner := netip.PrefixFrom(addr, 30), r.pick(r.hosts...)
		kind := r.pick("full", "full", "affinity", "affinity", "block", "used", "unlinked", "free")
		if kind == "unlinked" && r.IntN(2) == 0 {
			owner = "gone"
		}
		if kind != "free" && kind != "affinity" {
			r.say("block %s %s %s", cidr, owner, r.maybe(.05, "deleted"))
		}
		if kind != "free" && kind != "unlinked" {
			r.say("affinity %s %s %s", cidr, owner, r.maybe(.1, "deleted", "state=pending"))
		}
		if kind == "full" {
			r.say("fill %s 4 %s", cidr, owner)
		}
		uses := 0
		if kind == "used" || kind == "unlinked" {
			uses = 1 + r.IntN(3)
		}
		for i := range 4 {
			if i < uses {
				r.pods++
				node, of := r.pick(r.hosts...), "of=ReplicaSet/"+r.pick("web", "api", "db")
				switch r.IntN(12) {
				case 0: // not recorded
					r.say("pod %s/p%d %s %s cid=c%d %s ready", namespace, r.pods, node, addr, r.pods, of)
				case 1: // leaked
					r.say("alloc %s pod=%s/p%d node=%s handle=k8s-pod-network.c%d", addr, namespace, r.pods, node, r.pods)
				default:
					r.say("use %s %s/p%d %s %s ready", addr, namespace, r.pods, node, of)
				}
			}
			addr = addr.Next()
		}
	}
}
