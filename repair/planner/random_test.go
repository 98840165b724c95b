package planner

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/repair"
)

// randomStates is the number of random states.
const randomStates = 800

// TestRandomPlans plans for random states, intact or damaged in every way that the state DSL
// supports, and checks the properties of all plans. The test's name contains the seed of a failing
// state.
func TestRandomPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	steps, refused := map[repair.Kind]int{}, map[repair.RefusalCode]int{}
	for seed := range uint64(randomStates) {
		text, req := randomState(rand.New(rand.NewPCG(seed, 1)))
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			st := parseState(t, text, 0)
			p := Build(st, req)
			checkPlan(t, st, req, p)
			for _, s := range p.Steps {
				steps[s.Kind]++
			}
			for _, r := range p.Refused {
				refused[r.Code]++
			}
		})
		if !ok {
			t.Logf("state %d, request %+v:\n%s", seed, req, text)
		}
	}
	for _, k := range kinds {
		if steps[k.Kind] == 0 && !t.Failed() && (everything.Asks(k.Kind) || k == setStrictAffinity) {
			t.Errorf("no random state gives a step %s: the states are not random enough", k.Kind)
		}
	}
	for _, code := range []repair.RefusalCode{
		repair.RefusedLastBlock, repair.RefusedYoung, repair.RefusedUnknownAge, repair.RefusedInUse, repair.RefusedHostView, repair.RefusedCorrupt, repair.RefusedSpecial,
		repair.RefusedNotRead, repair.RefusedConflict, repair.RefusedHeals, repair.RefusedLimit, repair.RefusedUnpinned, repair.RefusedMarked, repair.RefusedMachineMayRun, repair.RefusedNoEvidence, repair.RefusedRejected,
	} {
		if refused[code] == 0 && !t.Failed() {
			t.Errorf("no random state gives a refusal %s: the states are not random enough", code)
		}
	}
}

// TestRandomConsolidations plans for random shortages, with and without a consolidation under way,
// and checks the properties of all plans. Each kind of step occurs.
func TestRandomConsolidations(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	steps := map[repair.Kind]int{}
	for seed := range uint64(300) {
		text, req := shortState(rand.New(rand.NewPCG(seed, 8)))
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			st := parseState(t, text, 0)
			p := Build(st, req)
			checkPlan(t, st, req, p)
			for _, s := range p.Steps {
				steps[s.Kind]++
			}
		})
		if !ok {
			t.Logf("state %d, request %+v:\n%s", seed, req, text)
			break
		}
	}
	for _, k := range kinds {
		if steps[k.Kind] < 10 && !everything.Asks(k.Kind) && k != setStrictAffinity && !t.Failed() {
			t.Errorf("%s is planned %d times only", k.Kind, steps[k.Kind])
		}
	}
}

// shortState is a pool with two nodes that own all its blocks and one or two nodes without a block.
func shortState(rnd *rand.Rand) (string, repair.Request) {
	r := &random{Rand: rnd, free: map[string]int{}}
	r.say("version v3.31.0")
	r.say("pool pods 10.0.0.0/26 size=28")
	r.say("budget %s", []string{"none", "shop/all allows=1", "shop/web match=app=web allows=1"}[r.IntN(3)])
	begun := r.IntN(3)
	r.say("node a %s", r.maybe(.1, "cordoned"))
	r.say("node b")
	mine := ""
	if begun > 0 {
		mine = r.maybe(.5, "mine=10.0.0.16/28,a,new")
	}
	r.say("node new %s", mine)
	if r.IntN(3) == 0 {
		r.say("node new-2")
	}
	if begun > 0 {
		r.say("reserve 10.0.0.16/28 mine=a,new age=%dm", 1+r.IntN(5))
	}
	for i := range 4 {
		owner := []string{"a", "a", "b", "b"}[i]
		if begun == 2 && i == 1 {
			if owner = []string{"", "new", "a"}[r.IntN(3)]; owner == "" {
				continue
			}
		}
		r.say("block 10.0.0.%d/28 %s", 16*i, owner)
		r.say("affinity 10.0.0.%d/28 %s %s", 16*i, owner, r.maybe(.1, "state=pending"))
		for j := range 1 + r.IntN(5) {
			if owner == "new" {
				break
			}
			r.pods++
			node := owner
			if j == 0 && r.IntN(4) == 0 {
				node = "new"
			}
			r.say("use 10.0.0.%d shop/p%d %s ready %s %s %s", 16*i+1+j, r.pods, node, r.maybe(.95, "of=ReplicaSet/web", "of=ReplicaSet/api", "of=DaemonSet/log"),
				r.maybe(.5, "label=app=web"), r.maybe(.05, "vmi=db", "claim", "noevict", "static"))
		}
	}
	return strings.Join(r.lines, "\n"), repair.Request{
		Consolidate: r.IntN(8) > 0, Rehome: r.IntN(3) == 0, CordonFull: r.IntN(4) > 0, EvictSingletons: r.IntN(2) == 0, EmptyBlocks: r.IntN(4) == 0,
	}
}

// random generates one state.
type random struct {
	*rand.Rand
	lines []string
	hosts []string
	// pods counts the pods, for their names.
	pods int
	free map[string]int
}

func (r *random) say(format string, args ...any) {
	r.lines = append(r.lines, strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
}

// maybe returns one of the words with the given probability, otherwise "".
func (r *random) maybe(share float64, words ...string) string {
	if r.Float64() < share {
		return words[r.IntN(len(words))]
	}
	return ""
}

func (r *random) host() string { return r.hosts[r.IntN(len(r.hosts))] }

func randomState(rnd *rand.Rand) (string, repair.Request) {
	r := &random{Rand: rnd, free: map[string]int{}}
	r.say("version %s", []string{"v3.30.1", "v3.31.0", "v3.32.1"}[r.IntN(3)])
	for i := range 1 + r.IntN(4) {
		name := fmt.Sprintf("n%d", i)
		r.hosts = append(r.hosts, name)
		r.say("node %s pods=%d %s %s %s %s", name, r.IntN(120), r.maybe(.1, "cordoned"), r.maybe(.05, "notready"), r.maybe(.03, "windows"),
			r.maybe(.2, fmt.Sprintf("tunnel=vxlan@10.0.%d.%d", r.IntN(2), r.IntN(256))))
	}
	r.hosts = append(r.hosts, "gone")
	r.say("pool four 10.0.0.0/%d size=28 %s %s", 24+r.IntN(2), r.maybe(.05, "disabled"), r.maybe(.1, "nodes=all()"))
	r.say("pool other 10.0.1.0/26 size=28 %s", r.maybe(.2, "manual", "uses=LoadBalancer", "uses=Tunnel"))
	if r.IntN(2) == 0 {
		r.say("pool six fd00::/122 size=124")
	}
	for i := range 12 {
		if r.Float64() < .6 {
			r.block(fmt.Sprintf("10.0.0.%d/28", 16*i))
		}
	}
	for i := range 4 {
		if r.Float64() < .5 {
			r.block(fmt.Sprintf("10.0.1.%d/28", 16*i))
		}
		if r.Float64() < .4 {
			r.block(fmt.Sprintf("fd00::%x/124", 16*i))
		}
	}
	r.strangers()
	return strings.Join(r.lines, "\n"), r.request()
}

// block generates a block with its affinities and allocations, each possibly damaged.
func (r *random) block(cidr string) {
	owner := r.host()
	if x := r.maybe(.1, "-", "virtual:load-balancer", "odd:thing"); x != "" {
		owner = x
	}
	exists := r.Float64() < .9
	if exists {
		r.say("block %s %s %s %s", cidr, owner, r.age(), r.maybe(.08, "deleted", "unpinned"))
		if r.Float64() < .02 {
			r.say("block %s %s name=again", cidr, r.host())
		}
	}
	if r.Float64() < .9 && owner != "-" {
		r.say("affinity %s %s %s %s", cidr, owner, r.age(), r.maybe(.15, "state=pending", "state=pendingDeletion", "deleted", "unlabelled", "unpinned"))
	}
	if other := r.host(); r.Float64() < .12 && other != owner {
		r.say("affinity %s %s %s %s", cidr, other, r.age(), r.maybe(.4, "state=pending", "state=pendingDeletion", "deleted"))
	}
	if !exists {
		return
	}
	used := false
	for i := range 16 {
		if r.Float64() > .12 || r.Float64() < .4 && !used && i > 8 {
			continue
		}
		addr := netip.MustParsePrefix(cidr).Addr()
		for range i {
			addr = addr.Next()
		}
		r.allocation(addr.String(), cidr)
		used = true
	}
	if used && r.Float64() < .03 {
		r.say("corrupt %s", cidr)
	}
}

func (r *random) age() string {
	return r.maybe(.2, "age=1m", "age=20m", "noage", "future", "age=3h")
}

// allocation makes an allocation, with or without a matching pod and handle.
func (r *random) allocation(ip, cidr string) {
	r.pods++
	pod, node := fmt.Sprintf("shop/p%d", r.pods), r.host()
	handle := fmt.Sprintf("k8s-pod-network.c%d", r.pods)
	switch r.IntN(12) {
	case 0:
		r.say("alloc %s node=%s type=vxlanTunnelAddress handle=vxlan-tunnel-addr-%s", ip, node, node)
		return
	case 1:
		r.say("alloc %s %s", ip, []string{"cooling", "handle=windows-reserved-ipam-handle", "type=LoadBalancer service=a/b handle=lb-1"}[r.IntN(3)])
		return
	}
	r.say("alloc %s pod=%s node=%s %s %s %s", ip, pod, node, r.maybe(.95, "handle="+handle), r.maybe(.1, "vm", "noseq", "age=1m", "noage"), "")
	if r.Float64() < .9 {
		count := 1
		if r.Float64() < .08 {
			count = r.IntN(3)
		}
		r.say("handle %s %s=%d %s %s", handle, cidr, count, r.maybe(.1, "age=1m"), r.maybe(.06, "deleted", "unpinned"))
	}
	switch r.IntN(8) {
	case 0:
	case 1:
		r.say("pod %s %s phase=Pending cid=c%d", pod, node, r.pods)
	case 2:
		r.say("pod %s %s %s", pod, node, r.maybe(.8, "terminating", "phase=Succeeded", "removed terminating"))
	case 3:
		r.say("pod %s %s 10.0.0.%d cid=c%d", pod, r.host(), r.IntN(256), r.pods)
	default:
		r.say("pod %s %s %s cid=c%d", pod, node, ip, r.pods)
	}
}

// strangers adds unrelated objects: handles, pods, views, gaps, settings.
func (r *random) strangers() {
	for i := range r.IntN(4) {
		r.say("handle k8s-pod-network.x%d 10.0.0.0/28=1 %s %s", i, r.age(), r.maybe(.3, "deleted", "unpinned"))
	}
	for i := range r.IntN(3) {
		r.say("pod shop/free%d %s 10.0.%d.%d cid=x%d %s", i, r.host(), r.IntN(2), r.IntN(256), i, r.maybe(.3, "phase=Failed", "phase=Pending"))
	}
	for _, host := range r.hosts {
		if r.Float64() < .6 {
			r.say("view %s %s %s", host, r.maybe(.8, "complete"), r.maybe(.2, "age=3h", "unauth", "routes"))
		}
		if last := r.lines[len(r.lines)-1]; r.Float64() < .2 && strings.HasPrefix(last, "view "+host) {
			r.say("netns %s 42 10.0.0.%d", host, r.IntN(256))
		}
	}
	if r.Float64() < .08 {
		r.say("gap %s", []string{
			"ipamblocks name=odd cidr=10.0.0.16/28 it is broken", "ipamblocks name=odd it is broken", "blockaffinities name=odd owner=n0 it is broken",
			"pods name=shop/odd it is broken", "nodes name=gone it is broken", "pods no right to list pods", "ipamhandles no right to list ipamhandles",
		}[r.IntN(7)])
	}
	r.borrowed()
	r.secondary()
	r.say("config %s %s", r.maybe(.3, "strict", "strict max=2", "strict noauto"), "")
}

// borrowed generates a vanished node's block whose addresses are all or mostly used by pods of
// other nodes.
func (r *random) borrowed() {
	if r.Float64() < .6 {
		return
	}
	r.say("block 10.0.0.208/28 gone %s %s", r.age(), r.maybe(.05, "deleted", "unpinned"))
	if r.Float64() < .8 {
		r.say("affinity 10.0.0.208/28 gone %s %s", r.age(), r.maybe(.2, "state=pending", "state=pendingDeletion", "deleted", "unpinned"))
	}
	for i := range 1 + r.IntN(3) {
		r.say("use 10.0.0.%d shop/b%d %s", 209+i, i, r.hosts[r.IntN(len(r.hosts)-1)])
	}
	if x := r.maybe(.2, "use 10.0.0.215 shop/c gone", "alloc 10.0.0.215 pod=shop/c node=n0 handle=h", "pod shop/c n0 10.0.0.215"); x != "" {
		r.say("%s", x)
	}
}

// secondary generates a Whereabouts network with some stranded addresses and some contradictory
// records.
func (r *random) secondary() {
	r.say("nad shop/fast 10.9.0.0/24 %s", r.maybe(.2, "nooverlap"))
	r.say("wpool 10.9.0.0-24 10.9.0.0/24 %s %s", r.maybe(.8, "age=3h"), r.maybe(.05, "unpinned"))
	for i := range 10 {
		pod, addr := fmt.Sprintf("shop/w%d", i), fmt.Sprintf("10.9.0.%d", i)
		switch r.IntN(5) {
		case 0:
			r.say("pod %s %s %s", pod, r.host(), r.maybe(.5, "phase=Pending", "terminating netstatus", "netstatus"))
		case 1:
			r.say("pod %s %s nets=shop/fast@%s cid=w%d", pod, r.host(), addr, i)
		case 2:
			if r.IntN(2) == 0 {
				r.say("pod %s %s nets=shop/fast@10.9.0.%d cid=w%d", pod, r.host(), 100+i, i)
				r.say("walloc 10.9.0.0-24 10.9.0.%d %s id=w%d if=net1", 100+i, pod, i)
			}
		}
		if r.IntN(3) > 0 {
			r.say("walloc 10.9.0.0-24 %s %s %s if=net1", addr, r.maybe(.95, pod), r.maybe(.95, fmt.Sprintf("id=s%d", i)))
		}
		if r.IntN(3) > 0 {
			r.say("wres %s %s if=net1 %s %s", addr, r.maybe(.95, pod), r.maybe(.1, "id=other"), r.maybe(.5, "age=3h"))
		}
	}
}

func (r *random) request() repair.Request {
	is := func(share float64) bool { return r.Float64() < share }
	req := asking(func(q *repair.RequestKind) bool { return everything.Asks(q.Steps[0]) && is(.6) })
	req.ObserveTwice = is(.2)
	if is(.3) {
		req.Terminated = []string{"gone", r.host()}
	}
	req.LastBlocks = req.EmptyBlocks && is(.3)
	req.WithoutHostEvidence = is(.2)
	if is(.3) {
		on := is(.5)
		req.StrictAffinity = &on
	}
	if is(.1) {
		req.MaxSteps = 1 + r.IntN(5)
	}
	if is(.05) {
		req.Nodes = []string{r.host()}
	}
	if is(.05) {
		req.Pools = []string{"four"}
	}
	if is(.05) {
		req.Blocks = []netip.Prefix{netip.MustParsePrefix("10.0.0.16/28"), netip.MustParsePrefix("10.0.0.32/28")}
	}
	return req
}

// TestEmptyRequest: an empty request gives an empty plan.
func TestEmptyRequest(t *testing.T) {
	text, _ := randomState(rand.New(rand.NewPCG(7, 7)))
	p := Build(parseState(t, text, time.Minute), repair.Request{})
	if len(p.Steps)+len(p.Refused)+len(p.Manual) > 0 || p.Strict != nil {
		t.Errorf("nothing was asked for, and there are steps %v, refusals %v, manual steps %v", p.Steps, p.Refused, p.Manual)
	}
	if p.Grace.Duration != time.Minute || p.CreatedAt.IsZero() || len(p.Before) == 0 || len(p.Before) != len(p.After) {
		t.Errorf("grace %s, made at %s, pools %d and %d", p.Grace, p.CreatedAt, len(p.Before), len(p.After))
	}
}
