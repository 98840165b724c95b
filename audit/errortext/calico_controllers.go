package errortext

// calicoControllers are the messages of kube-controllers about addresses, most of them in its log.
var calicoControllers = []Message{
	{
		ID: "collector-paused", By: "kube-controllers",
		Texts:  []string{"datastore is locked, skipping ipam sync", "datastore is locked, skipping metrics sync"},
		Means:  "While the datastore is locked, Calico's garbage collector frees nothing, and no new pod gets an address.",
		Checks: []string{"config/datastore-locked", "config/migration"},
		Do:     "Unlock it (calicoctl datastore migrate unlock) once no migration needs the lock.",
	},
	{
		ID: "collector-leak", By: "kube-controllers", Common: true,
		Texts:  []string{"Confirmed IP leak"},
		Means:  "Calico's garbage collector considers the address leaked and will free it.",
		Checks: []string{"ip/leaked", "ip/wrong-pod", "ip/secondary-interface", "ip/duplicate", "ip/wrong-node"},
		Do:     "Nothing, unless a live pod uses the address: record it again before the collector frees it.",
	},
	{
		ID: "collector-failed", By: "kube-controllers",
		Texts: []string{
			"Leaked IP address was not successfully garbage collected", "Failed to garbage collect one or more leaked IP addresses",
			"BUG: unable to find allocation for release options",
		},
		Means:  "Calico's garbage collector could not free a leaked address, and tries again.",
		Checks: []string{"ip/leaked", "block/soft-deleted", "block/corrupt", "handle/missing"},
		Do:     "If it persists, free the address with a plan (calico-audit repair --leaked-ips).",
	},
	{
		ID: "collector-block", By: "kube-controllers",
		Texts:  []string{"unable or unwilling to release affinity for block", "Couldn't find empty block in cache, skipping affinity release", "Failed to check if node is being migrated from Flannel, skipping affinity release", "failed to check node for migration status"},
		Means:  "Calico's garbage collector left an empty block with its node, usually because the block came into use again.",
		Checks: []string{"block/empty", "affinity/stuck", "block/soft-deleted"},
		Do:     "If it persists, release the block with a plan (calico-audit repair --empty-blocks).",
	},
	{
		ID: "collector-node", By: "kube-controllers",
		Texts:  []string{"Error cleaning up node", "Failed to release block affinities for node"},
		Means:  "Calico's garbage collector could not release the blocks and affinities of a node that no longer exists.",
		Checks: []string{"affinity/dead-node", "block/dead-node", "affinity/no-block", "ip/leaked", "block/soft-deleted"},
		Do:     "Release the leftovers of the node with a plan (calico-audit repair --dead-nodes).",
	},
	{
		ID: "collector-keeps", By: "kube-controllers",
		Texts: []string{
			"Failed to query pod, assume it exists and allocation is valid", "Failed to parse pod into WEP, consider allocation valid", "Pod converted to nil WorkloadEndpoint",
			"Failed to parse WEP IP, assume allocation is valid", "Failed to parse IP, assume allocation is valid", "Failed to query node, assume it exists",
			"failed to query Calico Node referenced in IPAM data", "Failed to lookup corresponding node, skipping {node}", "calico node '{node}' is not a Kubernetes node",
		},
		Means:  "Calico's garbage collector could not decide about an address or a node, and keeps it.",
		Checks: []string{"ip/unknown-owner", "block/dead-node", "affinity/dead-node"},
		Do:     "Check that kube-controllers may read pods and nodes; nothing was freed.",
	},
	{
		ID: "collector-unreadable", By: "kube-controllers, calico-node",
		Texts: []string{
			"Unable to parse CIDR for IP Pool {pool}", "Failed to parse CIDR for IP Pool {pool}", "Unable to parse block {any} to determine if it matches pool {pool}",
			"Unable to parse block {any} for pool determination", "Failed to parse CIDR '{any}' for IPPool '{pool}'", "Failed to parse the CIDR '{any}'",
		},
		Means:  "A pool or a block has a CIDR that cannot be parsed, and is left out.",
		Checks: []string{"block/corrupt", "pool/non-canonical"},
		Do:     "Correct the object's CIDR.",
	},
	{
		ID: "collector-sync", By: "kube-controllers", Wraps: true,
		Texts:  []string{"Periodic IPAM sync failed", "error syncing IPAM data"},
		Means:  "A run of Calico's garbage collector failed; the reason is in the line's error field.",
		Checks: []string{"config/gc-disabled", "affinity/dead-node", "ip/leaked"},
		Do:     "Explain the error field of the line.",
	},
	{
		ID: "load-balancer", By: "kube-controllers",
		Texts: []string{
			"Failed to assign IP for {any}", "error on assigning IP address to service", "failed to assign ip to service", "Failed to release IP for {any}",
			"error on removing assigned IP", "Failed to upgrade load balancer's IPAM block affinities", "Error releasing previously assigned IPs for Service",
			"Failed to get namespace for LoadBalancer IP assignment",
		},
		Means:  "The address of a Service of type LoadBalancer could not be assigned or released; the reason is in the line's error field.",
		Checks: []string{"pool/exhausted", "pool/no-free-blocks", "ip/unknown-owner", "config/lb-controller"},
		Do:     "Check the pools with allowedUses: [LoadBalancer].",
	},
	{
		ID: "load-balancer-annotation", By: "kube-controllers",
		Texts: []string{
			"failed to resolve pools for IPv4 addresses from annotation", "failed to resolve pools for IPv6 addresses from annotation",
			"at max only one ipv4 and one ipv6 address can be specified", "calico LoadBalancer annotation set with spec.LoadBalancerClass != calico is not supported",
			"Failed to parse annotations for service {any}",
		},
		Means: "The annotations of a Service of type LoadBalancer ask for addresses or pools that Calico cannot give.",
		Do:    "Correct projectcalico.org/ipv4pools, ipv6pools or loadBalancerIPs of the Service.",
	},
}

// calicoNode are the messages of calico-node about tunnel addresses.
var calicoNode = []Message{
	{
		ID: "tunnel-address", By: "calico-node",
		Texts: []string{
			"Unable to autoassign an address", "Unable to autoassign an IPv4 address", "Unable to autoassign an IPv6 address",
			"unable to assign an address: no IP pools provided", "unable to assign an address: invalid IP version for IP pool {any}",
			"Failed to reconcile tunnel address", "Error correcting tunnel IP allocation", "Failed to parse node tunnel address '{any}'",
			"Failed to get assignment attributes for CIDR", "Failed to compare nodeSelector '{any}' for IPPool '{pool}', skipping", "Unable to query IP pool configuration",
		},
		Means:  "The node got no address for its tunnel (IPIP, VXLAN or WireGuard), so traffic of its pods to other nodes is lost.",
		Checks: []string{"pool/no-tunnel-address", "pool/exhausted", "node/no-block", "pool/no-free-blocks", "ip/borrowed"},
		Do:     "Let a pool with free addresses that selects the node allow the use Tunnel.",
	},
	{
		ID: "tunnel-address-reused", By: "calico-node",
		Texts: []string{
			"IP address has been reused by something else", "Failed to correct missing attributes, will assign a new address", "Failed to release old addresses",
			"Error releasing address from IPAM", "Error releasing address by handle", "Error releasing IP address on failure", "Error releasing address",
		},
		Means:  "The node's tunnel address is recorded for something else, or its old one could not be released; the node takes a new one.",
		Checks: []string{"ip/duplicate", "ip/leaked", "ip/unallocated", "node/duplicate-address"},
		Do:     "If the address is in use twice, restart the pod that has it, not the node.",
	},
	{
		ID: "node-address-in-use", By: "calico-node",
		Texts:  []string{"Calico node '{node}' is already using the IPv{n} address", "IPv{n} address conflict"},
		Means:  "Another Node records the address of this machine, often the Node of its former name, so calico-node does not start.",
		Checks: []string{"node/duplicate-address", "node/no-calico-address"},
		Do:     "Delete the Node whose machine no longer exists; if both machines exist, give one another address.",
	},
	{
		ID: "no-node-address", By: "calico-node",
		Texts: []string{
			"Unable to auto-detect an IPv{n} address", "Unable to auto-detect IPv{n} address by connecting to", "Couldn't autodetect an IPv{n} address", "Invalid IP autodetection method:",
		},
		Means:  "calico-node finds no address of the machine by its IP_AUTODETECTION_METHOD (IP6_AUTODETECTION_METHOD), so it does not start.",
		Checks: []string{"pod/waiting", "node/no-calico-address"},
		Do:     "Choose a method that fits each machine, such as kubernetes-internal-ip: can-reach= needs an address of the same family, interface= expressions for names of interfaces, and cidr= the machines' network.",
	},
}

// tigeraOperator are the messages of Tigera's operator about pools, in its log and in TigeraStatus.
var tigeraOperator = []Message{
	{
		ID: "pool-outside-pod-network", By: "Tigera's operator",
		Texts: []string{"is not within the platform's configured pod network CIDR", "Could not resolve CalicoNetwork IPPool and kubeadm configuration"},
		Means: "A pool in the Installation (calicoNetwork.ipPools) lies outside the pod network that the cluster was set up with (kubeadm's podSubnet), so the operator changes nothing.",
		Do:    "Write a CIDR within that network into calicoNetwork.ipPools, or remove the entry there if the pool no longer exists or is managed outside the operator.",
	},
	{
		ID: "pool-of-others", By: "Tigera's operator",
		Texts: []string{"Cannot update an IP pool not owned by the operator"},
		Means: "The Installation (calicoNetwork.ipPools) contains a pool that exists with other fields and lacks the label app.kubernetes.io/managed-by: tigera-operator.",
		Do:    "Remove the entry from calicoNetwork.ipPools, or make its fields equal to those of the pool (kubectl get ippools -o yaml).",
	},
	{
		ID: "pool-replaced", By: "Tigera's operator",
		Texts: []string{"Pool needs to be deleted"},
		Means: "The operator deletes a pool that the Installation (calicoNetwork.ipPools) does not list, or lists in another notation, such as an IPv6 CIDR with leading zeros; then it creates and deletes the pool again and again.",
		Do:    "Write the CIDR into calicoNetwork.ipPools as the pool has it (kubectl get ippools).",
	},
	{
		ID: "operator-without-api", By: "Tigera's operator",
		Texts: []string{"Unable to modify IP pools while Calico API server is unavailable", "Unable to delete IP pools while Calico API server is unavailable"},
		Means: "The operator changes existing pools only through Calico's API server, which is not available.",
		Do:    "See why the API server's pods are not Ready (kubectl describe tigerastatus apiserver); pods without an address are among the reasons.",
	},
	{
		ID: "operator-without-pool", By: "Tigera's operator",
		Texts:  []string{"waiting for enabled IP pools to be created"},
		Means:  "No enabled IP pool exists, so no pod gets an address and the operator waits.",
		Checks: []string{"pod/waiting", "pool/disabled-in-use"},
		Do:     "List a pool in the Installation (calicoNetwork.ipPools), or enable one.",
	},
}

// calicoctl are the messages of "calicoctl ipam".
var calicoctl = []Message{
	{
		ID: "check-leaked", By: "calicoctl ipam check",
		Texts:  []string{"{ip} leaked; attrs"},
		Means:  "calicoctl found no workload endpoint, node or Service that has the address; it reads only the IPv4 tunnel addresses of nodes, so some are in use.",
		Checks: []string{"ip/leaked", "ip/unknown-owner", "ip/duplicate", "ip/wrong-pod", "ip/secondary-interface"},
		Do:     "Release leaked addresses with a plan, which requires evidence (calico-audit repair --leaked-ips).",
	},
	{
		ID: "check-unallocated", By: "calicoctl ipam check",
		Texts:  []string{"{ip} in use by {any} and in active IPAM pool but has no IPAM allocation"},
		Means:  "A pod or a node uses the address and no block records it, so it may be assigned a second time.",
		Checks: []string{"ip/unallocated", "affinity/no-block", "config/other-ipam"},
		Do:     "Record it (calico-audit repair --unrecorded-ips).",
	},
	{
		ID: "check-no-pool", By: "calicoctl ipam check",
		Texts:  []string{"{ip} in use by {any} is not in any active IP pool"},
		Means:  "A pod or a node uses an address outside all enabled pools.",
		Checks: []string{"config/other-ipam", "block/no-pool", "pool/disabled-in-use"},
		Do:     "Nothing, if another IPAM or a disabled pool gave it.",
	},
	{
		ID: "check-owners", By: "calicoctl ipam check",
		Texts:  []string{"{ip} has multiple owners"},
		Means:  "Several pods or nodes name one address.",
		Checks: []string{"ip/duplicate"},
		Do:     "Restart the pod for which the address is not recorded.",
	},
	{
		ID: "check-handles", By: "calicoctl ipam check",
		Texts:  []string{"doesn't have any active IPs", "is in use in a block but doesn't exist"},
		Means:  "A handle and the blocks contradict each other.",
		Checks: []string{"handle/leaked", "handle/missing", "handle/count"},
		Do:     "Correct the handles with a plan (calico-audit repair --missing-handles, --leaked-handles).",
	},
	{
		ID: "release-refused", By: "calicoctl ipam release",
		Texts: []string{
			"mismatched cluster GUID. Refusing to release", "was produced using a different version ({any}) of calicoctl. Refusing to release",
			"the provided reports are all stale", "data store is not locked. Either lock the data store, or re-run with --force",
		},
		Means:  "calicoctl releases addresses only by a report of this cluster, of its own version, made while the datastore was locked.",
		Checks: []string{"ip/leaked", "config/datastore-locked"},
		Do:     "Release leaked addresses without a lock with a plan (calico-audit repair --leaked-ips).",
	},
	{
		ID: "split", By: "calicoctl ipam split",
		Texts: []string{
			"datastore is not locked. Run the `calicoctl datastore migrate lock` command", "number to split CIDR into is not a valid power of 2",
			"the CIDR {cidr} is not large enough to be split into {n} parts", "unable to find IP pool {any} covering the specified CIDR", "unable to find IP pool with name {pool}",
			"unable to list IP pools to find the pool", "error disabling IP pool {any}", "error splitting the CIDR {any} into {n} CIDRs", "error removing the IP pool that was split",
			"error copying metadata out from old IP pool", "error using unsafe create to make split pool", "error while checking if datastore was locked",
			"no name or CIDR provided. Provide a name or CIDR to denote the IP pool to split", "error reading number to split IP pools into", "error reading CIDR {any} before attempting to split it",
		},
		Means:  "The pool was not split, or only in part: calicoctl disables it, creates the parts and deletes it, in this order.",
		Checks: []string{"pool/overlap", "pool/disabled-in-use", "config/datastore-locked"},
		Do:     "Compare the pools with the wanted ones before you try again, and unlock the datastore afterwards.",
	},
	{
		ID: "calicoctl-read", By: "calicoctl ipam check", Wraps: true,
		Texts: []string{
			"failed to list IPAM blocks", "failed to load IP pools", "failed to list nodes", "failed to list workload endpoints", "failed to list handles",
			"failed to parse IP ({any}) of workload", "failed to parse IPv4VXLANTunnelAddr ({any}) of node {node}", "failed to parse Wireguard.InterfaceIPv4Address ({any}) of node {node}",
			"failed to parse IPv4IPIPTunnelAddr ({any}) of node {node}",
		},
		Means:  "calicoctl could not read an object and checked nothing; the reason follows in the text.",
		Checks: []string{"block/corrupt"},
		Do:     "Use the rights in examples/kubernetes/rbac, which are enough for calico-audit report.",
	},
}
