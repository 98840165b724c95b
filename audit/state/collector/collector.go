// Package collector predicts how Calico's own garbage collector treats an address or a block. The
// collector is the node controller of calico-kube-controllers
// (kube-controllers/pkg/controllers/node/ipam.go). It identifies a pod by the recorded namespace
// and name and by the addresses in the pod's status, and never asks a node.
package collector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// EvidenceName is the name of a prediction among a finding's evidence.
const EvidenceName = "Calico's collector"

// Reads are the optional reads of a prediction, in addition to blocks, nodes and pods. Without one
// of them, the prediction states its assumption.
var Reads = []blocks.Resource{blocks.ControllerConfig, blocks.ClusterInfos, blocks.Affinities, blocks.VMs, blocks.VMInstances}

// defaultGrace is the collector's grace period if no object configures it.
const defaultGrace = 15 * time.Minute

// vmGrace is the minimum time before the collector frees the address of a deleted virtual machine
// (Calico v3.32, defaultVMRecreationGracePeriod).
const vmGrace = 5 * time.Minute

// maxShared is how many addresses of one handle are evaluated together.
const maxShared = 1024

// Off explains why the collector frees no leaked addresses, and no empty blocks of existing nodes.
// It is empty if the collector does, or if no object configures it, so that its defaults apply.
func Off(c *blocks.ControllersConfig) string {
	switch {
	case !c.Present:
		return ""
	case !c.NodeController:
		return "controllers.node is not configured, so that nothing collects leaked addresses and empty blocks"
	case !c.LeakGraceSet:
		return "leakGracePeriod is not set, which turns the collection of leaked addresses and empty blocks off"
	case c.LeakGrace == 0:
		return "leakGracePeriod is 0, which turns the collection of leaked addresses and empty blocks off"
	}
	return ""
}

// Prediction is what the collector does next. The zero value means that it is not known.
type Prediction struct {
	// Frees is true if the collector frees the address or the block, now or later.
	Frees bool
	// Why explains why the collector regards the address or block as unused, or why it never frees
	// it.
	Why string
	// Leaked is true if the collector regards the allocation itself as a leak, whether or not it
	// ever frees it.
	Leaked bool
	// when describes when the collector frees the object.
	when string
}

// Text describes what the collector does to an address or block. inUse names the object's user;
// empty if no user was seen. Text returns "" if the action is not known.
func (p Prediction) Text(inUse string) string {
	switch {
	case p.Why == "":
		return ""
	case !p.Frees:
		return "never frees it: " + p.Why
	case inUse != "":
		return fmt.Sprintf("frees it %s, although %s uses it: %s", p.when, inUse, p.Why)
	}
	return fmt.Sprintf("frees it %s: %s", p.when, p.Why)
}

// Evidence returns [Prediction.Text] as evidence; none if it is empty.
func (p Prediction) Evidence(inUse string) []state.Evidence {
	return state.Evidences(EvidenceName, p.Text(inUse))
}

func never(format string, args ...any) Prediction {
	return Prediction{Why: fmt.Sprintf(format, args...)}
}

// OfAddress predicts what the collector does to an allocation.
func OfAddress(st *state.State, r state.AllocationRef) Prediction {
	c := collector{st}
	attr := r.Attributes()
	v := c.verdict(r)
	if !v.known || !v.leaked {
		return Prediction{Why: v.why}
	}
	refs := st.HandleRefs(attr.Handle)
	if len(refs) > maxShared {
		return Prediction{}
	}
	for _, other := range refs {
		if other == r {
			continue
		}
		switch o := c.verdict(other); {
		case !o.known:
			return Prediction{}
		case !o.leaked:
			return Prediction{Leaked: true, Why: fmt.Sprintf("its handle also holds %s: %s", other.Addr(), o.why)}
		}
	}
	minimum := time.Duration(0)
	if attr.Extras().VMI != "" && c.keepsVMs() {
		minimum = vmGrace
	}
	p := c.after(v.why, attr.Node, minimum)
	p.Leaked = true
	return p
}

// OfAddresses describes what the collector does to several allocations. It names one that the
// collector frees and one that it keeps; it returns "" if no prediction is known.
func OfAddresses(st *state.State, refs []state.AllocationRef) string {
	var counts [2]int
	var texts [2]string
	for _, r := range refs {
		p, i := OfAddress(st, r), 0
		if p.Why == "" {
			continue
		}
		if p.Frees {
			i = 1
		}
		if counts[i]++; counts[i] == 1 {
			texts[i] = p.Text("")
		}
	}
	var out []string
	for i, n := range counts {
		switch {
		case n == len(refs):
			return texts[i]
		case n > 0:
			out = append(out, phrase.Plural(n, "address")+": "+texts[i])
		}
	}
	return strings.Join(out, "; ")
}

// OfBlock predicts what the collector does to a block of a node that no longer exists, or to an
// empty block.
func OfBlock(st *state.State, b *state.Block) Prediction {
	c, host := collector{st}, b.Owner.Node()
	h := st.NodeState(host)
	switch {
	case host == "" || h == nil:
		return never("no node owns it")
	case len(b.Faults) > 0 || b.SoftDeleted || st.AffinityMayExist(b.CIDR, host):
		return Prediction{}
	case len(st.Affinities) > 0 && !st.ClaimedBy(b, host):
		return never("its owner has no BlockAffinity to it")
	case st.Vanished(host):
		return c.ofDeadNode(b, host)
	case len(h.Blocks) < 2:
		return never("it is the only block of %s", host)
	case h.Node != nil && h.Node.FromFlannel():
		return never("%s is migrating from Flannel", host)
	case c.before(3, 20):
		return never("Calico before v3.20 releases no empty blocks of nodes that exist")
	case c.before(3, 28) && freeBeside(h, b) < minFree:
		return never("the other blocks of %s have fewer than %d addresses left, and Calico before v3.28 then keeps it", host, minFree)
	}
	why := fmt.Sprintf("%s has %s", host, phrase.Plural(len(h.Blocks), "block"))
	if !slices.ContainsFunc(h.Blocks, func(o *state.Block) bool { return o.Used > 0 }) {
		why += ", all empty, and keeps one of them"
	}
	return c.after(why, host, 0)
}

// minFree is the number of free addresses that a node must have outside an empty block for the
// collector to release the block (checkEmptyBlocks, before v3.28).
const minFree = 3

func freeBeside(h *state.NodeState, b *state.Block) (free int) {
	for _, o := range h.Blocks {
		if o != b {
			free += len(o.Unallocated)
		}
	}
	return free
}

// collector makes predictions about one State.
type collector struct{ *state.State }

// kept holds, for each deleted node, the first allocation that keeps the collector from releasing
// the node's blocks. known is false if an unread object may be such an allocation.
type kept map[string]struct {
	why   string
	known bool
}

// keptOf finds the allocations of deleted nodes that the collector considers valid.
func keptOf(st *state.State) *kept {
	out := kept{}
	c := collector{st}
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		host := r.Attributes().Node
		if !st.Vanished(host) || r.Attributes().WindowsReserved() || out[host].why != "" && out[host].known {
			return
		}
		k := out[host]
		switch v := c.verdict(r); {
		case !v.known:
			k.why = r.Addr().String()
		case !v.leaked:
			k.why, k.known = fmt.Sprintf("%s names node %s, and %s", r.Addr(), host, v.why), true
		}
		out[host] = k
	})
	return &out
}

// ofDeadNode predicts what the collector does to a block of a deleted node. It releases the node's
// blocks once every allocation of the node is a leak, and each block once it is empty
// (checkAllocations, cleanupNode).
func (c collector) ofDeadNode(b *state.Block, host string) Prediction {
	switch k := (*state.Derived(c.State, keptOf))[host]; {
	case k.known:
		return never("%s", k.why)
	case k.why != "":
		return Prediction{}
	case !c.HasAffinityOrNone(b):
		return never("its BlockAffinity lacks the labels by which the collector finds affinities")
	}
	for i, o := range b.Ordinals {
		if attr := b.At(i); o != blocks.Free && attr != nil && attr.Node != host && !attr.WindowsReserved() {
			return never("%s of it is recorded for %s", b.Address(i), phrase.OrNone(attr.Node))
		}
	}
	return c.after("no allocation of "+host+" has a pod", host, 0)
}

// after returns the prediction for an unused object of a node. The object is freed immediately if the
// node no longer exists, else after the grace period. A minimum other than 0 applies even if the
// grace period turns the collection off.
func (c collector) after(why, node string, minimum time.Duration) Prediction {
	cfg := &c.Controllers
	grace, vanished := defaultGrace, c.Vanished(node)
	if cfg.Present {
		grace = cfg.LeakGrace
	}
	off := Off(cfg)
	when, unread := "after its grace period ("+phrase.Duration(max(grace, minimum))+")", ""
	g, missing := c.Missing(blocks.ControllerConfig)
	if missing {
		when, off, unread = "after its grace period", "", "; "+g.String()
	}
	if vanished {
		when = "at its next pass"
	}
	if missing {
		when += ", unless its configuration turns it off"
	}
	if off != "" && (!cfg.NodeController || !vanished && minimum == 0) {
		return never("%s (config/gc-disabled)", off)
	}
	if c.Info.Locked {
		when = "once the datastore is unlocked, " + when
	} else if Stopped(c.State) != "" {
		when = "once " + deployment + " runs again (config/gc-disabled), " + when
	}
	return Prediction{Frees: true, Why: why + unread, when: when}
}

// before reports whether the cluster runs an older release of Calico. Unknown releases do not count
// as older.
func (c collector) before(major, minor uint) bool {
	v := c.Cluster.CalicoVersion
	return blocks.CalicoAtLeast(v, 0, 0) && !blocks.CalicoAtLeast(v, major, minor)
}

// keepsVMs reports whether the collector looks up virtual machines (Calico v3.32,
// isVMAllocationValid).
func (c collector) keepsVMs() bool { return blocks.CalicoAtLeast(c.Cluster.CalicoVersion, 3, 32) }

// verdict reports whether the collector regards an allocation as a leak, and why.
type verdict struct {
	leaked, known bool
	why           string
}

func leak(format string, args ...any) verdict {
	return verdict{leaked: true, known: true, why: fmt.Sprintf(format, args...)}
}

func valid(format string, args ...any) verdict {
	return verdict{known: true, why: fmt.Sprintf(format, args...)}
}

// verdict follows checkAllocations and allocationIsValid of the collector.
func (c collector) verdict(r state.AllocationRef) verdict {
	attr := r.Attributes()
	switch {
	case attr == nil || len(r.Block.Faults) > 0 || r.Block.SoftDeleted || r.Kind() == state.UseCooling || c.UnreadableNode(attr.Node):
		return verdict{}
	case !attr.HasHandle:
		return valid("it has no handle")
	case attr.Node == "":
		return valid("it names no node")
	case attr.WindowsReserved():
		return valid("Windows reserves it")
	case attr.Tunnel() && attr.Extras().Type != "":
		return c.ofTunnel(attr.Node)
	case attr.Namespace == "" || attr.Pod == "":
		return valid("it names neither a pod nor a tunnel")
	case attr.Extras().VMI != "" && c.keepsVMs():
		return c.ofVM(attr)
	}
	return c.ofPod(r)
}

// ofTunnel: a tunnel's address is freed with the last allocation of its node.
func (c collector) ofTunnel(node string) verdict {
	if !c.Vanished(node) {
		return valid("node %s exists", node)
	}
	return leak("node %s no longer exists", node)
}

func (c collector) ofVM(attr *blocks.Attributes) verdict {
	full := attr.Namespace + "/" + attr.Extras().VMI
	switch {
	case !c.VMsKnown:
		return verdict{}
	case blocks.HasVM(c.VMs, attr.Namespace, attr.Extras().VMI):
		return valid("virtual machine %s exists", full)
	case blocks.HasVM(c.VMInstances, attr.Namespace, attr.Extras().VMI):
		return valid("virtual machine instance %s exists", full)
	}
	return leak("virtual machine %s no longer exists", full)
}

// ofPod follows the collector's look-up of a pod. A pod whose status has no address keeps its
// allocations, even an evicted pod. A finished pod does not, and only addresses of the first
// interface count (libcalico-go backend/k8s/conversion, PodToWorkloadEndpoints).
func (c collector) ofPod(r state.AllocationRef) verdict {
	attr := r.Attributes()
	w := c.Pod(attr.Namespace, attr.Pod)
	_, unread := c.UnreadPod()
	switch {
	case w == nil && unread:
		return verdict{}
	case w == nil:
		return leak("pod %s/%s does not exist", attr.Namespace, attr.Pod)
	case w.Extras().Unreadable != "" || w.Extras().Partial != "":
		return verdict{}
	case w.Node != "" && w.Node != attr.Node && !c.Vanished(attr.Node):
		return leak("pod %s is on node %s, and the allocation names %s", w.FullName(), w.Node, attr.Node)
	case len(w.StatusIPs) == 0:
		return valid("the status of pod %s has no address", w.FullName())
	case w.Finished():
		return leak("pod %s has finished", w.FullName())
	case slices.Contains(w.StatusIPs, r.Addr()):
		return valid("pod %s has it", w.FullName())
	}
	return leak("the status of pod %s has another address", w.FullName())
}
