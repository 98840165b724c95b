package audit

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

var ipUnallocated = Check{
	ID:       "ip/unallocated",
	Title:    "a pod or tunnel uses an address of an enabled pool that no block records",
	Severity: "critical",
	Why: "Calico may hand the address to another pod at any moment: two pods then share it. " +
		"It comes about when an address is released under a live pod, or its block is deleted by hand.",
	Confirm: "calicoctl ipam show --ip=ADDRESS says that it is not assigned, while kubectl get pod shows a pod that has it.",
	Fix:     "Restart the pod, so that it gets an address that is its own. Until then an IPReservation of the single address keeps others from it.",
	Never:   "Never write the allocation into the block by hand.",
	Needs:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods},
	Run: func(st *State, f *Findings) {
		st.eachLiveUse(func(a netip.Addr, users []liveUse) {
			pool := st.enabledPool(a)
			if pool == nil || st.recorded(a) {
				return
			}
			if st.BlockMayCover(netip.PrefixFrom(a, a.BitLen())) {
				f.Withhold("not judged for %s: a block that cannot be read may record it", a)
				return
			}
			if !st.Cluster.Live && !slices.ContainsFunc(users, func(u liveUse) bool { return u.pod == nil || st.PastGrace(u.pod.Created) }) {
				f.Withhold("not judged for %s: its pod is younger than the grace, and files hold one reading only", a)
				return
			}
			block := "does not exist"
			if b := st.coveringBlock(a); b != nil {
				block = fmt.Sprintf("%s of %s calls it free", b.CIDR, OwnerText(b.Owner))
			}
			u := users[0]
			fix := Fix{"manual", fmt.Sprintf("restart calico-node on %s, so that its tunnel gets an address of its own", u.node)}
			if w := u.pod; w != nil {
				fix = restartFix(w, "so that it gets an address of its own")
			}
			f.Add(Finding{
				Severity: Critical, Subject: IPSubject(a, u.node), Pools: poolsOf(pool), Absence: true,
				Message:  fmt.Sprintf("%s is used by %s on %s, and no block records it", a, u, u.node),
				Evidence: Evidences("used by", u.String(), "by evidence of", u.source, "pool", pool.Name, "block", block),
				Fix:      fix,
			})
		})
	},
}

// restartFix is to restart a pod, for a reason. A virtual machine's pod is never
// restarted on our word: that stops the machine, and does not change its address.
func restartFix(w *blocks.Workload, why string) Fix {
	if w.VM != "" {
		return Fix{"look", "kubectl get virtualmachineinstance --namespace " + Arg(w.Namespace) + " " + Arg(w.VM)}
	}
	return Fix{"manual", fmt.Sprintf("kubectl delete pod --namespace %s %s, %s", Arg(w.Namespace), Arg(w.Name), why)}
}

// liveUse is a live claim to an address.
type liveUse struct {
	pod    *blocks.Workload
	tunnel string
	node   string
	// source says where the claim stands; certain is false for one that only
	// Calico's annotation makes.
	source  string
	certain bool
}

func (u liveUse) String() string {
	if u.pod != nil {
		return "pod " + u.pod.FullName()
	}
	return "the tunnel of " + u.node
}

// eachLiveUse calls fn for each address that live pods or tunnels use, in
// order, with all of them.
func (st *State) eachLiveUse(fn func(netip.Addr, []liveUse)) {
	emit := func(a netip.Addr, pods []use) {
		if users := st.liveUses(a, pods); len(users) > 0 {
			fn(a, users)
		}
	}
	for i := 0; i < len(st.uses); {
		j := i
		for j < len(st.uses) && st.uses[j].addr == st.uses[i].addr {
			j++
		}
		emit(st.uses[i].addr, st.uses[i:j])
		i = j
	}
	for i := range st.Nodes {
		for _, t := range st.Nodes[i].Tunnels {
			if len(st.Users(t.Addr)) == 0 && st.TunnelsAt(t.Addr)[0].Node == &st.Nodes[i] && st.TunnelsAt(t.Addr)[0].Type == t.Type {
				emit(t.Addr, nil)
			}
		}
	}
}

// liveUses returns the live claims to an address; pods are those that name it.
func (st *State) liveUses(a netip.Addr, pods []use) (users []liveUse) {
	for _, u := range pods {
		if !u.workload.Live() || u.elsewhere {
			continue
		}
		l := liveUse{pod: u.workload, node: u.workload.Node, source: "Calico's annotation"}
		for _, s := range u.workload.StatusIPs {
			if s == a {
				l.source, l.certain = "the pod's status", true
			}
		}
		users = append(users, l)
	}
	for i, t := range st.TunnelsAt(a) {
		if slices.ContainsFunc(st.TunnelsAt(a)[:i], func(other TunnelUse) bool { return other.Node == t.Node }) {
			continue // one node, two of its annotations
		}
		users = append(users, liveUse{tunnel: t.Type, node: t.Node.Name, source: "the node's " + t.Type, certain: true})
	}
	return users
}

// certain returns the uses that more than Calico's annotation proves.
func certain(all []liveUse) (users []liveUse) {
	for _, u := range all {
		if u.certain {
			users = append(users, u)
		}
	}
	return users
}

// enabledPool returns the most specific enabled pool that contains an address.
func (st *State) enabledPool(a netip.Addr) *Pool {
	var best *Pool
	for _, p := range st.Pools {
		if !p.Disabled && p.CIDR.Contains(a) && (best == nil || p.CIDR.Bits() > best.CIDR.Bits()) {
			best = p
		}
	}
	return best
}

// recorded tells whether a block records an address as in use; one that cools
// down is nobody's.
func (st *State) recorded(a netip.Addr) bool {
	r, ok := st.Allocation(a)
	return ok && (r.Attributes() == nil || !r.Attributes().Cooling())
}

// coveringBlock returns the most specific block that contains an address.
func (st *State) coveringBlock(a netip.Addr) *Block {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := a.Prefix(bits); err == nil && st.BlockOf(p) != nil {
			return st.BlockOf(p)
		}
	}
	return nil
}
