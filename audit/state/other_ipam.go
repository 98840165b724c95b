package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/calico-audit/calico-audit/blocks"
)

// OtherIPAM lists the live pods with addresses from another source than Calico's IPAM: host-local
// (Canal, flannel), a cloud's CNI, or the pod itself. Blocks never record them.
type OtherIPAM struct {
	// Cluster is true if no live pod has its address from Calico's IPAM.
	Cluster bool
	// Mixed is true if blocks record some live pods: the init container upgrade-ipam of
	// calico-node moved their addresses from host-local into blocks (cni-plugin pkg/upgrade).
	Mixed bool
	// Reason explains why Cluster is true.
	Reason string
	// Unknown explains why it is not known whether Cluster is true; empty if it is known.
	Unknown string
	// Pods lists single pods if Cluster is false: pods outside all pools, pods that bypass IPAM
	// by annotation, and those of nodes that are migrating from flannel.
	Pods []*blocks.Workload

	// reasons holds, for each of Pods, why it is listed.
	reasons map[*blocks.Workload]string
}

// OtherIPAMReads are the reads that the verdict on the whole cluster needs.
var OtherIPAMReads = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods}

// OtherIPAM returns the pods whose addresses Calico's IPAM does not assign.
func (st *State) OtherIPAM() OtherIPAM { return st.otherIPAM }

// OtherIPAMOf explains why Calico's IPAM does not assign a pod's addresses; empty if it
// does, or if that is not known.
func (st *State) OtherIPAMOf(w *blocks.Workload) string {
	switch {
	case !w.Live():
		return ""
	case w.Extras().NoIPAM:
		return fmt.Sprintf("pod %s brings its own addresses (cni.projectcalico.org/ipAddrsNoIpam), which bypasses IPAM", w.FullName())
	case st.otherIPAM.Cluster:
		return st.otherIPAM.Reason
	}
	return st.otherIPAM.reasons[w]
}

// Assigned reports whether a pod is live and, as far as known, Calico's IPAM assigns its addresses.
func (st *State) Assigned(w *blocks.Workload) bool { return w.Live() && st.OtherIPAMOf(w) == "" }

// OtherIPAMAt explains why Calico's IPAM did not assign an address to any of its live users;
// empty if it did, or if the address has none.
func (st *State) OtherIPAMAt(a netip.Addr) string {
	return st.usedOutside(a, st.LiveUses(a, st.NamedBy(a)))
}

// usedOutside is [State.OtherIPAMAt] for known users. host-local's tunnels have an address of their
// node's podCIDR (libcalico-go lib/backend/k8s/resources, getIPIPTunnelAddress).
func (st *State) usedOutside(a netip.Addr, users []LiveUse) (reason string) {
	for _, u := range users {
		why := ""
		if h := st.nodeStates[u.Node]; u.Pod != nil {
			why = st.OtherIPAMOf(u.Pod)
		} else if h != nil && h.Node != nil && h.Node.AssignsPods(a) {
			why = st.otherIPAM.Reason
		}
		if why == "" {
			return ""
		}
		reason = why
	}
	return reason
}

// findOtherIPAM decides which pods get their addresses from another IPAM.
//
// Calico's CNI plugin runs the IPAM plugin that its configuration names: calico-ipam, which
// records each address in a block and each pod's handle (NETWORK.containerID), or another
// such as host-local, which assigns from the node's podCIDRs and records nothing in the
// datastore. It writes the pod's annotations in both cases (cni-plugin pkg/k8s/k8s.go,
// CmdAddK8s), so annotations prove nothing. With ipAddrsNoIpam it calls no IPAM plugin.
func (st *State) findOtherIPAM() {
	o := &st.otherIPAM
	o.reasons = map[*blocks.Workload]string{}
	known := st.FirstMissing(OtherIPAMReads) == nil && len(st.Unreadable(blocks.Pools)) == 0 && len(st.Unreadable(blocks.Blocks)) == 0
	sandboxes := sync.OnceValue(st.sandboxesOfHandles)
	all, any := known, false
	last, now, lately := blocks.Time(0), known, map[string]bool{}
	for r := range st.allocated() {
		if attr := r.Attributes(); attr == nil || attr.Pod != "" && attr.Assigned.IsZero() {
			now = false
		} else if attr.Pod != "" {
			last = last.Later(attr.Assigned)
		}
	}
	if o.Unknown = st.otherIPAMUnknown(); o.Unknown != "" {
		all, now = false, false
	}
	for _, w := range st.Workloads {
		if !w.Live() || st.UnreadableNode(w.Node) {
			continue
		}
		if w.Extras().NoIPAM {
			o.Pods = append(o.Pods, w)
			continue
		}
		if !known || len(w.StatusIPs)+len(w.AnnotationIPs) == 0 {
			continue
		}
		any = true
		recorded, outside, elsewhere := st.placeOf(w)
		if now = now && elsewhere; elsewhere && !recorded && sandboxes()[w.ContainerID] {
			outside, elsewhere, now = false, false, false
		}
		if !recorded && !outside && w.Created.After(last) && st.PastGrace(w.Created) {
			lately[w.Node] = true
		}
		if outside = outside && !recorded; recorded {
			elsewhere = false
		}
		if all = all && elsewhere; outside {
			o.Pods = append(o.Pods, w)
			o.reasons[w] = fmt.Sprintf("pod %s has its address from another IPAM: it is outside all pools and in no block", w.FullName())
		} else if h := st.nodeStates[w.Node]; elsewhere && h != nil && h.Node != nil && h.Node.FromFlannel() {
			o.Pods = append(o.Pods, w)
			o.reasons[w] = fmt.Sprintf("node %s is migrating from flannel, which assigned the address of pod %s", w.Node, w.FullName())
		}
	}
	switch {
	case all && any:
		*o = OtherIPAM{Cluster: true, Reason: "the cluster uses another IPAM: no block records a live pod's address, and all are in their nodes' podCIDRs or outside all pools"}
	case now && !last.IsZero() && len(lately) > 1:
		*o = OtherIPAM{Cluster: true, Mixed: true, Reason: "the cluster uses another IPAM: all live pods' addresses are in their nodes' podCIDRs or outside all pools, and no block records those of pods created after " + last.String()}
	default:
		return
	}
	for _, p := range st.Pools {
		p.unused = true
	}
}

// otherIPAMUnknown explains why it is not known whether the cluster uses another IPAM: no block
// records a live pod's address, and an unread object may be the proof.
func (st *State) otherIPAMUnknown() string {
	gap := st.firstGap(false, OtherIPAMReads...)
	if gap == nil {
		return ""
	}
	live := false
	for _, w := range st.Workloads {
		if !w.MayBeLive() || len(w.StatusIPs)+len(w.AnnotationIPs) == 0 {
			continue
		}
		live = true
		h := st.nodeStates[w.Node]
		_, outside, elsewhere := st.placeOf(w)
		if h != nil && h.Node != nil && !st.UnreadableNode(w.Node) && w.Live() && !outside && !elsewhere {
			return "" // in a pool and not in its node's podCIDRs
		}
	}
	if _, unread := st.Missing(blocks.Pods); !live && !unread {
		return ""
	}
	if !live {
		for r := range st.allocated() {
			if r.Kind() == UsePod {
				return ""
			}
		}
	}
	return "whether the cluster uses another IPAM is not known: " + gap.String()
}

// placeOf reports whether a block records an address of a pod, whether all its addresses are
// outside all pools, and whether each is outside all pools or in its node's podCIDRs.
func (st *State) placeOf(w *blocks.Workload) (recorded, outside, elsewhere bool) {
	n := &blocks.Node{}
	if h := st.nodeStates[w.Node]; h != nil && h.Node != nil {
		n = h.Node
	}
	outside, elsewhere = true, true
	for a := range w.Addresses {
		if !slices.Contains(w.StatusIPs, a) && !slices.Contains(w.AnnotationIPs, a) {
			continue // the address of an additional interface
		}
		recorded = recorded || st.recorded(a, st.NamedBy(a)) && len(st.TunnelsAt(a)) == 0 // else for the tunnel
		if st.PoolOf(IPPrefix(a)) != nil {
			outside = false
			elsewhere = elsewhere && n.AssignsPods(a)
		}
	}
	return recorded, outside, elsewhere
}

// sandboxesOfHandles returns the sandboxes that handles name. Calico's IPAM has assigned
// addresses to their pods (cni-plugin internal/pkg/utils, GetHandleID).
func (st *State) sandboxesOfHandles() map[string]bool {
	out := make(map[string]bool, len(st.Handles))
	for _, h := range st.Handles {
		if i := strings.LastIndexByte(h.ID, '.'); i >= 0 {
			out[h.ID[i+1:]] = true
		}
	}
	delete(out, "")
	return out
}
