package remedies

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
)

// The general remedies for pods that wait although addresses are left.
var (
	// EndOwner is for a requested address of a pod that cannot end, because its node is not Ready.
	EndOwner = ByHand("once the machine of the other pod's node is known to be off, force-delete that pod", "the address is released, and the waiting pod gets it",
		"if the machine still runs, two pods share the address")
	// FreeAddress is for a requested address of another owner.
	FreeAddress = ByHand("let the pod ask for another address, or remove the owner of this one", "the pod gets an address", "none for the owner if the pod asks for another address")
	// EndOwn is for a requested address that is allocated to the pod's own name.
	EndOwn = Restart("end the pod (scale its controller down, or delete it if it has none) until Calico's collector or repair --leaked-ips has released the address, then start it again",
		"once no pod has the name, the address counts as leaked, and the next pod gets it", "calico-audit repair --leaked-ips")
	// CancelMigration is for a virtual machine that asks for an address and migrates.
	CancelMigration = ByHand("cancel the migration (virtctl migrate-cancel); from Calico v3.32 on, a virtual machine that does not ask for its address (ipAddrs) keeps it when it migrates (kubeVirtVMAddressPersistence)",
		"the virtual machine stays where it runs, with its address", "none")
	// CorrectRequest is for a request that Calico rejects.
	CorrectRequest = ByHand("correct the annotation (ipv4pools, ipv6pools, ipAddrs) where the pod's template or its namespace has it", "the next pod gets an address", "pods restart if their template changes")
	// AutomaticPool is for a family without an automatic pool.
	AutomaticPool = ByHand("let a pool of the family assign automatically (assignmentMode), or stop asking for the family in the CNI configuration (assign_ipv4, assign_ipv6)",
		"pods get addresses", EverywhereRisk, "kubectl get ippools -o yaml")
	// MendNode is for a node on which calico-node or the kubelet does not work.
	MendNode = ByHand("find out why calico-node does not run on the node: its pod's status and log name the reason, such as no interface that fits IP_AUTODETECTION_METHOD, or can-reach= with an address of the other family", "pods of the node get addresses", "none")
	// NameNode is for a Windows node without a Calico address.
	NameNode = ByHand("let Calico for Windows run on the node under the Node's name: outside a pod, set NODENAME in config.ps1 (on AWS often the private DNS name) and start its services again", "the node records its address, and its pods get addresses", "none",
		"kubectl get nodes -o wide")
	// KeepAgent is for a calico-node pod that took the place of another one while pods waited.
	KeepAgent = ByHand("find out why calico-node is not Ready: its pod's status and log name the reason; if its pod is replaced again and again, a Pending pod of a higher priority may preempt it: delete that pod, or give it a node", "pods of the node get addresses", "none",
		"kubectl get pods --all-namespaces -o wide --field-selector status.phase=Pending")
	// AdmitAgent is for a node whose taints or labels keep calico-node away.
	AdmitAgent = ByHand("let calico-node run on the node: let its DaemonSet tolerate all taints, or change the node's taints or labels", "pods of the node get addresses", "calico-node restarts on all nodes if its DaemonSet changes",
		"kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
	// LeaveFlannel is for a node whose migration from flannel has not ended.
	LeaveFlannel = ByHand("complete the migration from flannel: read the log of the flannel-migration controller, remove the obstacle, and run its Job again", "calico-node runs on the node, and its pods get addresses",
		"the controller drains the node", "kubectl get pods --all-namespaces -o wide --selector=k8s-app=flannel-migration-controller")
	// DeleteTwin is for a node with the address of another node.
	DeleteTwin = ByHand("delete the Node whose machine no longer exists, as described under node/duplicate-address, and restart calico-node on the other", "calico-node starts, and pods of the node get addresses",
		"deleting a Node deletes its pods: find out first which of the two Nodes still has a machine", "kubectl get nodes -o wide")
	// RecordFirst is for addresses that pods use and Calico may assign again.
	RecordFirst = ByHand("record the addresses that pods use and no block records, as described under ip/unallocated", "Calico assigns other addresses", "none",
		"calico-audit report --check ip/unallocated")
	// MaskPool is for a pool whose CIDR has host bits set.
	MaskPool = ByHand("write the network into the pool's spec.cidr (kubectl edit of the CRD's object)", "Calico finds the pool, and it can be changed again; no address changes, because Calico already uses that network",
		"none: if the pool should be smaller, add another pool and move the pods there first")
	// UnpinPool is for a CNI configuration that names a pool which assigns nothing.
	UnpinPool = ByHand("if ipv4_pools or ipv6_pools of the CNI configuration names such a pool, remove it there, or enable the pool", "pods of the node get addresses",
		"an enabled pool serves other pods, too", "kubectl get configmaps --all-namespaces --field-selector metadata.name=calico-config -o yaml")
	// FreeSecondary frees the last address of a secondary network, which another sandbox of the pod holds.
	FreeSecondary = Restart("end the pod (delete it, or scale its StatefulSet down to it) until Whereabouts has freed the address",
		"Whereabouts' reconciler or --whereabouts-stranded frees the address of a pod that no longer exists", "calico-audit repair --whereabouts-stranded")
	// CorrectNetwork is for a network that does not exist.
	CorrectNetwork = ByHand("create the NetworkAttachmentDefinition, or correct the annotation k8s.v1.cni.cncf.io/networks in the pod's template", "Multus attaches the next pod", "pods restart if their template changes",
		"kubectl get network-attachment-definitions --all-namespaces")
	// FreeRange is for a network without an address left.
	FreeRange = ByHand("release addresses that deleted or finished pods hold in the range, or enlarge it", "the kubelet's next attempt succeeds", "the network itself must have room for a larger range", "calico-audit report --check whereabouts")
	// ReadEvents is for pods that wait for no visible reason.
	ReadEvents = ByHand("read the kubelet's events of the pod, then the CNI plugin's log on its node (/var/log/calico/cni/cni.log)", "they name the error", "none")
)

// Waiting lists the general remedies for waiting pods.
var Waiting = []Remedy{EndOwner, FreeAddress, EndOwn, CancelMigration, CorrectRequest, AutomaticPool, MendNode, NameNode, KeepAgent, DetectAddress, AdmitAgent, LeaveFlannel, DeleteTwin, OwnAddress(nil), RecordFirst, UnpinPool, MaskPool, FreeSecondary, CorrectNetwork, FreeRange, ReadEvents}

// WaitingRoot is the root of the pods that wait for the same reason.
func WaitingRoot(c waiting.Cause) string {
	return strings.TrimSuffix(fmt.Sprintf("waiting/%s/%s", c.Kind, c.Object), "/")
}

// findWaiting makes a root for each reason why pods wait.
func (st *Remedies) findWaiting() {
	for _, p := range waiting.Of(st.State).All {
		if !p.Lasting || len(p.Causes) == 0 {
			continue
		}
		if c := p.Causes[0]; st.roots[WaitingRoot(c)] == nil {
			st.root(WaitingRoot(c), func(n int) string {
				return fmt.Sprintf("%s for an address: %s", phrase.PluralVerb(n, "pod", "waits", "wait"), c.Text)
			}, func() []Remedy { return st.WaitingRemedies(p) })
		}
	}
}

// WaitingRemedies returns the ways for a waiting pod to get an address.
func (st *Remedies) WaitingRemedies(p *waiting.Pod) (out []Remedy) {
	for _, c := range p.Causes {
		events := Shell("kubectl get events --namespace %s --field-selector involvedObject.name=%s", p.Namespace, p.Name)
		r := map[waiting.Kind]Remedy{
			waiting.Taken: FreeAddress, waiting.Own: EndOwn, waiting.Migration: CancelMigration, waiting.Request: CorrectRequest, waiting.NoPool: AutomaticPool, waiting.Node: MendNode, waiting.Unnamed: NameNode, waiting.Replaced: KeepAgent, waiting.Loopback: DetectAddress, waiting.Misfit: AdmitAgent, waiting.Unmigrated: LeaveFlannel, waiting.SameAddress: DeleteTwin, waiting.SharedAddress: OwnAddress(nil),
			waiting.Unrecorded: RecordFirst, waiting.Pinned: UnpinPool, waiting.Unknown: ReadEvents, waiting.Refused: AddPool, waiting.HostBits: MaskPool, waiting.Secondary: FreeSecondary, waiting.Network: CorrectNetwork, waiting.FullNetwork: FreeRange,
		}[c.Kind]
		switch {
		case c.Owner != nil:
			r = EndOwner
			r.Title = fmt.Sprintf("once the machine of %s is known to be off, force-delete pod %s", c.Owner.Node, c.Owner.FullName())
			r.Commands = []string{Shell("kubectl get pod --namespace %s %s -o wide", c.Owner.Namespace, c.Owner.Name)}
			r.Effect = "its address goes to a waiting pod, once Whereabouts' reconciler or --whereabouts-stranded has freed it"
			if c.Kind != waiting.FullNetwork {
				r.Effect = fmt.Sprintf("%s is released by Calico's collector or by repair --leaked-ips --terminated %s, and pod %s gets it", c.Object, c.Owner.Node, p.FullName())
			}
		case c.Leaked:
			r = ByHand(fmt.Sprintf("release %s as described under ip/leaked, if Calico's collector does not", c.Object), "the pod gets the address", "a container that outlived its pod may still use the address", "calico-audit explain "+c.Object)
		case c.Known != nil:
			r = ByHand(strings.ToLower(c.Known.Do[:1])+strings.TrimSuffix(c.Known.Do[1:], "."), "the kubelet's next attempt succeeds", "depends on the step", events)
			if len(c.Known.Checks) > 0 {
				r.Commands = []string{"calico-audit report --check " + strings.Join(c.Known.Checks, ",")}
			}
		case c.Kind == waiting.Windows:
			r = st.StrictRemedies()[0]
		case c.Kind == waiting.Taken:
			r.Commands = []string{"calico-audit explain " + c.Object}
		case c.Kind == waiting.Request:
			r.Commands = []string{Shell("calico-audit explain %s", p.FullName())}
		case c.Kind == waiting.Node:
			r.Commands = []string{Shell("kubectl get pods --all-namespaces -o wide --field-selector spec.nodeName=%s", c.Object)}
		case c.Kind == waiting.HostBits:
			r.Commands = []string{Shell("kubectl get ippools %s -o yaml", c.Object)}
		case c.Kind == waiting.Unknown:
			r.Commands = []string{events}
		}
		out = append(out, r)
	}
	return out
}
