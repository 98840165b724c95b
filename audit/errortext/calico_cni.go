package errortext

// calicoCNI are the errors of Calico's CNI plugin and of its IPAM plugin, calico-ipam.
var calicoCNI = []Message{
	{
		ID: "partly-assigned", By: "calico-ipam", Wraps: true,
		Texts:  []string{"Assigned {n} out of {n} requested IPv{n} addresses", "failed to request IPv{n} addresses"},
		Means:  "Calico's IPAM assigned fewer addresses than the pod needs; the reason follows in the text.",
		Checks: []string{"node/no-block", "pool/exhausted", "pool/no-free-blocks", "node/block-limit", "pod/waiting"},
		Do:     "Explain the rest of the message, or look into the CNI plugin's log (/var/log/calico/cni/cni.log).",
	},
	{
		ID: "not-ready", By: "Calico's CNI plugin", Common: true,
		Texts:  []string{"Calico is currently not ready to process requests"},
		Means:  "The datastore is locked (ClusterInformation datastoreReady: false), so no new pod gets an address.",
		Checks: []string{"config/datastore-locked", "config/migration"},
		Do:     "Unlock it (calicoctl datastore migrate unlock) once no migration needs the lock.",
	},
	{
		ID: "unknown-pool", By: "calico-ipam", Common: true,
		Texts:  []string{`error parsing pool "{pool}"`, "failed to parse IP pool cidr"},
		Means:  "The pod, its namespace or the node's CNI configuration asks for a pool by a name that no pool has, or by text that is not a CIDR.",
		Checks: []string{"pod/waiting", "pool/selector"},
		Do:     "Correct cni.projectcalico.org/ipv4pools (ipv6pools) of pod or namespace, or ipv4_pools in the CNI configuration.",
	},
	{
		ID: "cluster-information", By: "Calico's CNI plugin", Wraps: true,
		Texts:  []string{"error getting ClusterInformation"},
		Means:  "The plugin could not read ClusterInformation, the first object that it reads; the reason follows in the text.",
		Checks: []string{"config/datastore-locked"},
		Do:     "Check that the node reaches the API server, and restart calico-node on it, which renews the plugin's token.",
	},
	{
		ID: "other-datastore", By: "Calico's CNI plugin, calico-node",
		Texts: []string{"resource does not exist: ClusterInformation({any})", "could not initialize etcdv3 client"},
		Means: "No calico-node has started in this cluster yet, or this node's CNI configuration or calico-node reads a datastore without Calico's objects: usually etcd, while the other nodes use the Kubernetes API.",
		Do:    "If calico-node is Ready on no node, read in its log why (such as no interface that fits IP_AUTODETECTION_METHOD); otherwise compare datastore_type in /etc/cni/net.d/10-calico.conflist and DATASTORE_TYPE of calico-node with those of a node that works, correct them, and restart calico-node.",
	},
	{
		ID: "node-name", By: "Calico's CNI plugin", Common: true,
		Texts:  []string{"check that the calico/node container is running and has mounted /var/lib/calico/"},
		Means:  "calico-node has not started on this node: it writes /var/lib/calico/nodename, which the plugin needs.",
		Checks: []string{"node/no-calico-address"},
		Do:     "Look at the pod calico-node on this node and its log.",
	},
	{
		ID: "ipam-returned-nothing", By: "Calico's CNI plugin",
		Texts:  []string{"IPAM plugin returned no IP addresses in result", "IPAM plugin returned missing IP config", "IPAM plugin did not return any IP addresses", "failed to build result"},
		Means:  "The IPAM plugin that the CNI configuration names ended without an address.",
		Checks: []string{"config/other-ipam"},
		Do:     "Check ipam.type and assign_ipv4 (assign_ipv6) in the node's CNI configuration.",
	},
	{
		ID: "migration-without-persistence", By: "calico-ipam",
		Texts:  []string{"live migration target pod is not allowed when KubeVirtVMAddressPersistence is disabled"},
		Means:  "A virtual machine migrates, and Calico keeps no addresses for virtual machines.",
		Checks: []string{"pod/waiting"},
		Do:     "Let virtual machines keep their addresses (calicoctl ipam configure --kubevirt-ip-persistence=Enabled), or cancel the migration.",
	},
	{
		ID: "address-by-name", By: "Calico's CNI plugin", Wraps: true,
		Texts:  []string{"error getting IP from IPAM", "failed to release ipAddrs"},
		Means:  "The address that the pod asks for by name (cni.projectcalico.org/ipAddrs) could not be assigned; the reason follows in the text.",
		Checks: []string{"pod/waiting", "ip/leaked", "ip/unknown-owner", "ip/duplicate"},
		Do:     "Explain the rest of the message.",
	},
	{
		ID: "address-annotation", By: "Calico's CNI plugin",
		Texts: []string{
			`failed to parse IPs {any} for annotation "{any}"`, `annotation "{any}" specified but empty`, "failed to parse '{any}' as JSON",
			`cannot have more than one IPv4 address for "{any}" annotation`, `cannot have more than one IPv6 address for "{any}" annotation`,
			"can't have both annotations: 'ipAddrs' and 'ipAddrsNoIpam' in use at the same time",
		},
		Means: "An annotation of the pod that names addresses or pools is not a JSON list of at most one address a family.",
		Do:    `Correct the annotation, such as cni.projectcalico.org/ipAddrs: '["10.0.0.5"]', in the pod's template.`,
	},
	{
		ID: "feature-off", By: "Calico's CNI plugin",
		Texts: []string{
			"requested feature is not enabled: ip_addrs_no_ipam", "requested feature is not supported for this runtime: ip_addrs_no_ipam",
			"requested feature is not enabled: floating_ips", "ipAddrsNoIpam is not compatible with configured IPAM", "ipAddrs is not compatible with configured IPAM",
		},
		Means:  "An annotation of the pod asks for a feature that the node's CNI configuration does not enable, or that needs calico-ipam.",
		Checks: []string{"config/other-ipam"},
		Do:     "Enable it under feature_control in the CNI configuration, or remove the annotation.",
	},
	{
		ID: "namespace-unreadable", By: "calico-ipam",
		Texts:  []string{"failed to get namespace {namespace}: {any}"},
		Means:  "The plugin could not read the labels of the pod's namespace, which decide which pools the pod may use.",
		Checks: []string{"pool/selector"},
		Do:     "Let the ClusterRole calico-cni-plugin get namespaces, as the release's manifest does.",
	},
	{
		ID: "no-pod-cidr", By: "Calico's CNI plugin",
		Texts: []string{
			"no podCidr for node {node}", "ClusterCIDR contains two ranges of the same type",
			"usePodCidr found but there is no IPv4 CIDR configured", "usePodCidrIPv6 found but there is no IPv6 CIDR configured",
		},
		Means:  "The CNI configuration takes addresses from the node's podCIDR (host-local with usePodCidr), and the Node has none; Calico's IPAM is not involved.",
		Checks: []string{"config/other-ipam"},
		Do:     "Let kube-controller-manager assign podCIDRs (--allocate-node-cidrs), or use calico-ipam.",
	},
	{
		ID: "mask", By: "Calico's CNI plugin",
		Texts: []string{"PodIP {any} is not a valid IPv4: Mask size is {n}, not 32", "PodIP {any} is not a valid IPv6: Mask size is {n}, not 128"},
		Means: "Floating IPs need single addresses, and the IPAM plugin returned a subnet.",
		Do:    "Use calico-ipam in the node's CNI configuration.",
	},
	{
		ID: "route-exists", By: "Calico's CNI plugin",
		Texts:  []string{"route (Ifindex: {n}, Dst: {cidr}, Scope: {any}) already exists for an interface other than '{any}'"},
		Means:  "The node already routes this address to another interface: an old container still has it, or it was assigned twice.",
		Checks: []string{"ip/duplicate", "ip/host-in-use", "ip/unallocated", "ip/wrong-pod", "pool/covers-nodes"},
		Do:     "Find the container that has the address on this node (ip route, crictl pods) before anything is released.",
	},
	{
		ID: "address-on-interface", By: "Calico's CNI plugin",
		Texts: []string{"failed to add IP addr to {any}", "failed to get IPv6 addresses for host side of the veth pair"},
		Means: "The address was assigned and the kernel refused it on the interface, usually because IPv6 is disabled in the pod's namespace.",
		Do:    "Enable IPv6 on the node (net.ipv6.conf.all.disable_ipv6=0), or do not assign IPv6 addresses.",
	},
	{
		ID: "migration-from-host-local", By: "Calico's CNI plugin",
		Texts: []string{
			"failed to assign IP to calico backend", "failed to get add IPIP tunnel addr {any}", "cannot pick an IPv4 tunnel address from the given CIDR",
			"PodCIDR {any} did not parse successfully", "failed to initialize host-local IPAM", "failed to acquire lock on host-local IPAM",
			"failed to open host-local IPAM data dir", "failed to read host-local IPAM data dir names", "failed to close host-local IPAM data dir directory",
		},
		Means:  "The addresses of host-local could not be moved to Calico's IPAM on this node.",
		Checks: []string{"ip/unallocated", "config/other-ipam"},
		Do:     "The reason follows in the text; do not delete /var/lib/cni/networks before all addresses are moved.",
	},
}
