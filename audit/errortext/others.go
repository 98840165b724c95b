package errortext

// whereabouts are the errors of Whereabouts (v0.9), an IPAM plugin for secondary networks.
var whereabouts = []Message{
	{
		ID: "whereabouts-full", By: "Whereabouts", Common: true,
		Texts:  []string{"Could not allocate IP in range: ip: {any} / - {any} / range: {any} / excludeRanges", "Could not allocate IP in range"},
		Means:  "The range of the secondary network has no address left, excluded and reserved ones counted as used.",
		Checks: []string{"whereabouts/exhausted", "whereabouts/stranded", "whereabouts/stale", "whereabouts/reservation-only", "whereabouts/low-addresses"},
		Do:     "Release the addresses of deleted pods (calico-audit repair --whereabouts-stranded), or enlarge the range in the NetworkAttachmentDefinition.",
	},
	{
		ID: "whereabouts-slice", By: "Whereabouts",
		Texts:  []string{"no allocated node slice for node", "error getting node slice {any}", "error finding node within node slice allocations"},
		Means:  "The node has no slice of the range: all slices belong to nodes, some of which may no longer exist.",
		Checks: []string{"whereabouts/dead-slice", "whereabouts/exhausted"},
		Do:     "Restart Whereabouts' node slice controller, which frees slices of deleted nodes, or enlarge the range.",
	},
	{
		ID: "whereabouts-reservation", By: "Whereabouts",
		Texts:  []string{"k8s get OverlappingRangeIPReservation error", "Error performing UpdateOverlappingRangeAllocation", "Error getting cluster wide IP allocation"},
		Means:  "Whereabouts could not read or write the reservation that keeps an address unique across overlapping ranges.",
		Checks: []string{"whereabouts/allocation-only", "whereabouts/reservation-only"},
		Do:     "Check the rights of Whereabouts' ClusterRole on overlappingrangeipreservations.",
	},
	{
		ID: "whereabouts-busy", By: "Whereabouts",
		Texts: []string{"time limit exceeded while waiting to become leader", "k8s pool initialized", "IPAM error updating pool (attempt: {n})"},
		Means: "Many pods ask the range for addresses at the same time; the kubelet tries again.",
		Do:    "If it persists, check that the API server answers quickly, and delete an abandoned Lease of Whereabouts.",
	},
	{
		ID: "whereabouts-range", By: "Whereabouts",
		Texts: []string{"net mask is too short, subnet {any} has no usable IP addresses", "could not parse exclude range", "netCIDR is not a valid network address", "subnetMaskSize must be greater or equal than netMaskSize"},
		Means: "The range, an excluded range or the slice size in the NetworkAttachmentDefinition is invalid.",
		Do:    "Correct the NetworkAttachmentDefinition.",
	},
	{
		ID: "whereabouts-other", By: "Whereabouts", Wraps: true,
		Texts:  []string{"error at storage engine", "IPAM connectivity error", "failed to create Kubernetes IPAM manager", "IPAM client initialization error", "k8s get error: {any}", "k8s create error: {any}"},
		Means:  "Whereabouts could not read or write its records; the reason follows in the text.",
		Checks: []string{"whereabouts/exhausted"},
		Do:     "Check that the node reaches the API server, and the rights of Whereabouts' ClusterRole.",
	},
}

// kubernetes are the messages of the kubelet, container runtimes, the scheduler and
// kube-controller-manager.
var kubernetes = []Message{
	{
		ID: "node-cidr", By: "kube-controller-manager",
		Texts:  []string{"CIDRNotAvailable", "there are no remaining CIDRs left to allocate in the accepted range", "CIDR allocation failed", "cidrset is full"},
		Means:  "Kubernetes' node IPAM has no podCIDR left for the node; Calico's IPAM does not use podCIDRs.",
		Checks: []string{"config/other-ipam"},
		Do:     "With Calico's IPAM, ignore it or turn --allocate-node-cidrs off; with host-local, enlarge --cluster-cidr or use smaller node masks.",
	},
	{
		ID: "service-range", By: "kube-apiserver",
		Texts: []string{"failed to allocate a serviceIP", "failed to allocate IP: range is full", "provided IP is already allocated", "provided IP is not in the valid range"},
		Means: "The API server, not Calico, assigns the address of a Service, from --service-cluster-ip-range.",
		Do:    "Delete unused Services, or add a ServiceCIDR.",
	},
	{
		ID: "too-many-pods", By: "the scheduler",
		Texts:  []string{"Too many pods", "Insufficient pods"},
		Means:  "The nodes run as many pods as the kubelet allows (maxPods); addresses are not the reason.",
		Checks: []string{"pool/undersized"},
		Do:     "Add nodes, or raise maxPods where the nodes' pools have addresses for more pods.",
	},
	{
		ID: "network-not-ready", By: "the kubelet",
		Texts: []string{"NetworkPluginNotReady", "cni plugin not initialized", "cni config uninitialized", "network is not ready: container runtime network not ready", "No networks found in /etc/cni/net.d"},
		Means: "The node has no CNI configuration yet, which calico-node writes when it starts.",
		Do:    "Look at the pod calico-node on this node, its init container install-cni, and their logs.",
	},
	{
		ID: "api-unreachable", By: "the CNI plugin",
		Texts: []string{
			"dial tcp {any}: i/o timeout", "dial tcp {any}: connect: connection refused", "dial tcp {any}: connect: no route to host", "dial tcp {any}: connect: network is unreachable",
			"x509: certificate signed by unknown authority", "net/http: TLS handshake timeout",
		},
		Means:  "The node could not reach the API server, so nothing could be assigned; this is not a shortage of addresses.",
		Checks: []string{"pool/covers-nodes", "node/duplicate-address", "ip/duplicate", "route/blackhole"},
		Do:     "Test the connection from the node (curl -k https://ADDRESS/healthz), kube-proxy's rules, and the CA in /etc/cni/net.d/calico-kubeconfig.",
	},
	{
		ID: "sandbox-not-deleted", By: "the kubelet", Wraps: true,
		Texts:  []string{"failed to destroy network for sandbox", "FailedKillPod", "error killing pod: failed to"},
		Means:  "The network of a deleted pod could not be removed; its address stays allocated until the kubelet's next attempt succeeds.",
		Checks: []string{"ip/leaked", "config/datastore-locked"},
		Do:     "Explain the rest of the message; Calico's collector frees the address if the pod is gone.",
	},
	{
		ID: "sandbox", By: "the kubelet", Wraps: true,
		Texts: []string{
			"FailedCreatePodSandBox", "Failed to create pod sandbox", "failed to setup network for sandbox", "networkPlugin cni failed to set up pod", "failed to create pod network sandbox",
			"CreatePodSandbox for pod {any} failed", `plugin type="calico" failed (add)`, `plugin type="calico" name="{any}" failed (add)`, "error adding pod {any} to CNI network",
			"FailedCreatePodContainer",
		},
		Means:  "The CNI plugin could not connect the pod to the network; the reason follows in the text, usually after the last colon.",
		Checks: []string{"node/no-block", "pool/exhausted", "pool/no-free-blocks", "node/block-limit", "config/datastore-locked", "pod/waiting"},
		Do:     "Look into the CNI plugin's log on the node (/var/log/calico/cni/cni.log).",
	},
}

// otherAllocators are the messages of other IPAM plugins, which look like Calico's.
var otherAllocators = []Message{
	{
		ID: "host-local-full", By: "host-local",
		Texts: []string{
			"no IP addresses available in range set", "failed to allocate for range {n}", "requested IP address {ip} is not available in range set",
			"duplicate allocation is not allowed",
		},
		Means:  "host-local, which Canal, flannel and GKE use, has no address left in the node's podCIDR; Calico's IPAM is not involved.",
		Checks: []string{"config/other-ipam"},
		Do:     "Delete files of dead containers in /var/lib/cni/networks on the node, or use a larger podCIDR; another cause is more pods than the podCIDR has addresses.",
	},
	{
		ID: "aws-vpc-cni", By: "AWS's VPC CNI plugin",
		Texts:  []string{"add cmd: failed to assign an IP address to container", "failed to assign an IP address to container"},
		Means:  "The node's network interfaces have no address left or the subnet is full; Calico's IPAM is not involved.",
		Checks: []string{"config/other-ipam"},
		Do:     "Enable prefix delegation, or add a subnet; see the log of aws-node.",
	},
	{
		ID: "azure-cni", By: "Azure's CNI plugin",
		Texts:  []string{"Failed to allocate pool: Failed to delegate", "No available addresses", "IP assignment via CNS failed", "AllocateIPConfig failed", "SubnetFull", "InsufficientSubnetSize"},
		Means:  "The node's addresses or the subnet are used up; Calico's IPAM is not involved.",
		Checks: []string{"config/other-ipam"},
		Do:     "Enlarge the subnet, or use a pod subnet or an overlay network.",
	},
	{
		ID: "gke", By: "Google Kubernetes Engine",
		Texts:  []string{"IP_SPACE_EXHAUSTED"},
		Means:  "The secondary range of the subnet has no podCIDR left for another node; Calico's IPAM is not involved.",
		Checks: []string{"config/other-ipam"},
		Do:     "Add a secondary range for pods, or lower the maximum number of pods a node.",
	},
	{
		ID: "cilium", By: "Cilium",
		Texts:  []string{"IPAM pool exhausted", "Unable to allocate IP via IPAM", "all addresses are in use or reserved", "No more IPs available"},
		Means:  "The node's podCIDR of Cilium is used up; Calico's IPAM is not involved.",
		Checks: []string{"config/other-ipam"},
		Do:     "Enlarge Cilium's cluster-pool, or use smaller node masks.",
	},
}
