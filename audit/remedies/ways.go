package remedies

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// DisablePool ends a pool's assignments.
const DisablePool = "set disabled: true on this pool (with Tigera's operator disableNewAllocations: true in the Installation, calicoNetwork.ipPools)"

// Risks that several remedies share.
const (
	evictionRisk   = "pods restart one at a time, within their PodDisruptionBudgets"
	newCIDRRisk    = "the network must route and admit its CIDR"
	restartRisk    = "pods restart: check first that controllers own them and other replicas serve meanwhile"
	unprovenRisk   = "a container that outlived its pod, if there is one, shares its address with a new pod"
	terminatedRisk = "you confirm that the machine is off: if it runs, its pods and new ones share addresses"
	EverywhereRisk = "it affects the whole cluster immediately"
)

// The general remedies: the documentation of checks and alerts lists them, and the remedies for a
// state are built from them.
var (
	// DeleteAffinity is for an affinity whose block no longer exists or has another owner.
	DeleteAffinity = Repair("delete the affinity", "--orphan-affinities", "its node no longer drops or attracts the block's traffic",
		"none: it is deleted only if it is seen twice, a grace period apart, and its block still does not name its node")
	// RestoreAffinity is for a block without its owner's affinity.
	RestoreAffinity = Repair("restore the affinity of the block's owner", "--missing-affinities", "its node routes the whole block again", "none")
	// ReleaseBlock is for an empty block that no node has to keep.
	ReleaseBlock = Repair("release the empty block", "--empty-blocks", "another node can claim it", "none: each node keeps one block, and only blocks that are still empty are released")
	// ReleaseLastBlock is for an empty block that its node does not need.
	ReleaseLastBlock = Repair("release the last empty block of a node that is cordoned or runs no pods", "--empty-blocks --last-blocks",
		"a node that cannot allocate can claim it", "the node that gives it up needs another one for its next pod")
	// AddPool is manual: no program knows which addresses are free in the networks around the
	// cluster.
	AddPool = ByHand("add a pool for the same nodes, with a CIDR that nothing else uses", "nodes without a block claim one with their next pod",
		newCIDRRisk, "kubectl get ippools -o yaml")
	// Consolidate empties a block for a node that cannot allocate.
	Consolidate = Repair("empty the block that the fewest pods use, for a node that cannot allocate", "--consolidate", "that node gets a block", evictionRisk)
	// Rehome is for pods that borrow although their node can have a block.
	Rehome = Repair("restart the pods that borrow, so that they get addresses of their own nodes' blocks", "--rehome", "the borrowed addresses are released; repair lists the pods that stay, and why", evictionRisk)
	// RenewTunnel is for a tunnel address in another node's block.
	RenewTunnel = ByHand("once the node has a block, take the tunnel's address off the Node (kubectl annotate), and restart its calico-node pod if no new one appears within a minute",
		"the tunnel takes an address of its own node's block", "traffic through the node's tunnel stops until every node has learned the new address")
	// RaiseLimit is for a node at its block limit.
	RaiseLimit = ByHand("raise maxBlocksPerHost, or run fewer pods on the node; check first that its blocks hold no leaked addresses",
		"the node claims another block with its next pod", EverywhereRisk, "calicoctl ipam show --show-configuration")
	// FewerPods is for a node at its block limit while strict affinity is off, when Calico rejects
	// maxBlocksPerHost. LargerBlocks is for blocks that hold few addresses.
	FewerPods = ByHand("run fewer pods on the node, or move its pods to a pool with larger blocks; Calico rejects maxBlocksPerHost while strict affinity is off",
		"the node's blocks have addresses for its pods", restartRisk, "kubectl get ippools -o yaml")
	LargerBlocks = Restart("add a pool with larger blocks (blockSize 26) and another CIDR, then "+DisablePool+" and restart its pods, one controller at a time",
		"a node may hold the same number of blocks, each with 64 addresses", "kubectl get ippools -o yaml")
	// LeaksFirst is for a node whose blocks are full of leaked addresses.
	LeaksFirst = ByHand("release the leaked addresses of the node, as described under ip/leaked", "its blocks have room for pods again", "none: each address needs evidence that nothing uses it",
		"calico-audit report --check ip/leaked")
	// DeleteFinished is for pods that have ended and still hold addresses.
	DeleteFinished = ByHand("delete the finished pods, and let Jobs delete theirs (ttlSecondsAfterFinished)",
		"Calico's collector frees their addresses after its grace period, or --leaked-ips releases them", "the logs and exit codes of these pods are lost",
		"kubectl get pods --all-namespaces --field-selector=spec.nodeName=NODE,status.phase=Succeeded")
	// FixNodeName is for machines on which calico-node uses another node's name.
	FixNodeName = ByHand("correct the name in /var/lib/calico/nodename on the node, in the CNI configuration there (nodename), or in NODENAME of its calico-node; then restart calico-node there, and then the pods",
		"the node records its own address, and new pods' addresses are recorded for it", restartRisk,
		"kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide")
	// SelectNode is for a node that no pool selects.
	SelectNode = ByHand("let an enabled pool for workloads select the node, or add one that does", "the node claims a block with its next pod",
		"a pool's selector applies to all nodes: nodes that it no longer matches get no new addresses from the pool")
	// SetStrict and UnsetStrict decide whether nodes may borrow.
	SetStrict = Repair("turn strict affinity on", "--strict-affinity=true", "nodes no longer borrow: a node without a free address in a block of its own claims one, or its pods wait",
		EverywhereRisk+"; borrowed addresses stay borrowed until their pods restart")
	UnsetStrict = Repair("turn strict affinity off, where no owner of a block drops the traffic to borrowed addresses", "--strict-affinity=false",
		"pods that wait borrow addresses of other nodes' blocks", EverywhereRisk+"; each borrowed address needs its own route")
	// ReleaseLeaks is for addresses without an owner.
	ReleaseLeaks = Repair("release the leaked addresses", "--leaked-ips", "the addresses can be assigned again",
		"none: each is released only with proof that nothing uses it, such as a host view of its node (--host-views)")
	// CleanUpNode is for objects left by a node that no longer exists.
	CleanUpNode = Repair("clean up after the node that no longer exists", "--dead-nodes",
		"its empty blocks and its affinities are deleted; a block that other nodes borrow from stays, without owner, until it is empty",
		"none while the node stays away")
	// RecordAddresses is for addresses that live pods use and no block records.
	RecordAddresses = Repair("record the addresses for the pods that use them", "--unrecorded-ips",
		"the addresses are no longer handed out a second time", "none: an address is recorded only if a live pod has it and no other object claims it")
	// MendHandles is for handles that no block refers to, or that have a wrong count.
	MendHandles = Repair("delete handles that no block refers to, and correct the counts of others", "--leaked-handles", "handles agree with the blocks", "none")
	// CreateHandle is for a missing handle that blocks refer to.
	CreateHandle = Repair("create the missing handle", "--missing-handles", "the addresses are released when their pod ends", "none")
	// Unlock is for a locked datastore.
	Unlock = ByHand("unlock the datastore, if no migration is in progress: calicoctl datastore migrate unlock", "new pods get addresses again, and repairs may write",
		"a migration in progress loses changes made meanwhile", "kubectl get clusterinformations default -o yaml")
	// EndMigration is for a datastore locked by a migration: unlocking it by hand would let two
	// datastores be written.
	EndMigration = ByHand("let Calico's migration finish: its status shows the reason if it waits", "the migration unlocks the datastore itself, and repairs may write",
		"none", "kubectl get datastoremigrations -o yaml")
	// EndUpgrade is for a datastore locked by calico-node's init container upgrade-ipam, which unlocks
	// it when it ends (cni-plugin pkg/upgrade, Migrate).
	EndUpgrade = ByHand("read the log of the init container upgrade-ipam; if it fails on records that an earlier installation left, delete /var/lib/cni/networks/k8s-pod-network on that node, then restart its calico-node pod", "calico-node starts and unlocks the datastore",
		"host-local's records are lost, so delete them only if no running pod of the node has an address of host-local's", "kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide")
	// CleanUpIPAM is for objects of Calico's IPAM in a cluster that uses another IPAM.
	CleanUpIPAM = ByHand("release the objects that Calico's IPAM left behind, with the repairs that their findings name", "stale addresses, handles and blocks are released",
		"none: each node keeps its last block, which is harmless", "calico-audit report --check ip/leaked --check handle/leaked --check block/empty")
	// FinishDelete is for objects that stay marked deleted.
	FinishDelete = Repair("finish the deletion", "--soft-deleted", "the object is gone", "none: objects in use stay")
)

// Secondary lists the remedies for addresses of secondary interfaces that Calico's collector frees.
var Secondary = []Remedy{
	ByHand("set controllers.node.leakGracePeriod to 0 in the KubeControllersConfiguration", "Calico's collector frees no address of a node that exists",
		"leaked addresses and empty blocks accumulate, which config/gc-disabled reports", "kubectl get kubecontrollersconfigurations -o yaml"),
	ByHand("give the secondary network another IPAM, such as Whereabouts, with addresses outside Calico's pools, and restart its pods",
		"Calico's collector does not see the addresses", restartRisk, "kubectl get network-attachment-definitions --all-namespaces -o yaml"),
}

// Shortage lists the remedies for a lack of blocks, Borrowing those for borrowed addresses.
var (
	Shortage  = []Remedy{ReleaseBlock, ReleaseLastBlock, AddPool, Consolidate}
	Borrowing = append(slices.Clip(Shortage), Rehome)
)

// Restart is for problems that end only when pods restart.
func Restart(title, effect string, commands ...string) Remedy {
	return ByHand(title, effect, restartRisk, commands...)
}

// LeaveIt begins the title if nothing can be done yet, not even by hand.
const LeaveIt = "leave it as it is for now: "

// Unless postpones a remedy if b is set, because a plan would refuse it for that reason.
func (r Remedy) Unless(b state.Bar) Remedy {
	switch {
	case b.Code == "":
		return r
	case !b.Due.IsZero():
		r.Title = "wait until " + b.Due.String() + ", then " + r.Title
	case b.Code == state.RetainNotRead:
		r.Title, r.Commands = LeaveIt+"read the missing objects first, because a plan refuses to "+r.Title+": "+b.Reason, []string{}
	default:
		r.Title, r.Commands = LeaveIt+"a plan refuses to "+r.Title+": "+b.Reason, []string{}
	}
	if b.Due.IsZero() {
		r.Effect = "nothing changes meanwhile"
	}
	r.Manual, r.Yield = true, nil
	return r
}

// with returns a remedy with more flags in its command.
func (r Remedy) with(flags string) Remedy {
	r.Commands = slices.Clone(r.Commands)
	r.Commands[0] += flags
	return r
}

// namesOr returns names, or the general term if there are none.
func namesOr(names blocks.Names, general string) string {
	if len(names) == 0 {
		return general
	}
	return names.String()
}
