// Package statedsl parses a small language for cluster states in tests. A state is a few
// lines of text; [Parse] turns it into a snapshot:
//
//	pool pods 10.0.0.0/24 size=26
//	node n1 pods=110
//	block 10.0.0.0/26 n1 age=1h
//	use 10.0.0.5 shop/web n1
//
// Each line is one object: its kind, positional words, then options. An option is a flag
// ("disabled") or key=value. Times are ages before the state's clock ("at TIME", by
// default noon of 2 January 2026). Lines that start with # are comments.
//
//	at TIME
//	version v3.31.0
//	live                                         objects may change between reads
//	pool NAME CIDR [size=N] [disabled] [manual] [uses=A,B] [nodes=SELECTOR]
//	     [namespaces=SELECTOR] [vxlan=MODE] [ipip=MODE] [nat] [noexport] [notAllocatable=REASON] [ofoperator] [terminating]
//	node NAME [pods=N] [allocatable=RESOURCE=N] [cordoned] [windows] [notready] [outofservice] [taint=KEY|KEY=VALUE] [label=K=V] [tunnel=TYPE@IP] [as=N]
//	     [terminating] [podcidr=CIDR]            being deleted; the node's pod CIDR, which Calico's IPAM ignores
//	     [addr=IP/LEN] [internal=IP] [rr=ID]     its BGP addresses, InternalIPs and cluster ID
//	     [key=wireguard|wireguard6] [flannel] [flannel=IP]  a WireGuard public key; registered by flannel, with the address
//	     [mine=CIDR,HOLDER,NODE]                 cordoned by calico-audit, which empties the block for the node
//	     [mine=rehome]                           cordoned by calico-audit while it restarts borrowing pods
//	namespace NAME [label=K=V] [pools=A,B]
//	block CIDR [OWNER] [age=D] [noage] [future] [deleted] [strict] [name=N] [records=N] [claimed=D]
//	     OWNER is a node's name, "virtual:…" or "-" for none; records is the number
//	     of addresses that the block records (those beyond its CIDR count as
//	     allocated); claimed is its affinityClaimTime
//	alloc IP [pod=NS/NAME] [node=N] [handle=H] [type=T] [service=S] [vm] [cooling] [age=D] [noage] [seq=N] [noseq]
//	     [vmi=NAME] [alt=NS/NAME altnode=N]      KubeVirt's attributes, and alternateOwnerAttrs
//	pod NS/NAME NODE [IP,IP] [phase=P] [hostnet] [terminating] [removed] [ann=IP,IP] [pools=A,B] [age=D] [cid=ID]
//	     [pools4=A,B] [pools6=A,B] [asks=IP,IP]     requested pools by annotation, and addresses (ipAddrs)
//	     [floats=IP,IP]                          floating IPs (cni.projectcalico.org/floatingIPs)
//	     [rejected=ANNOTATION]                      a request that cannot be parsed, such as ipAddrs
//	     [nets=NAMESPACE/NETWORK@IP,…] [netstatus]  addresses on networks other than the cluster's own
//	     [wants=NAMESPACE/NETWORK,…]             networks that it asks for (k8s.v1.cni.cncf.io/networks)
//	     [net=IP,IP] [vmi=NAME] [unreadable=FIELD]  addresses in network-status; its virtual machine
//	     [of=KIND/NAME] [ready] [claim] [noevict] [static] [once] [scratch] [noipam] [label=K=V]  its controller; properties that decide about its eviction
//	     [nobird]                                its probes ask Felix alone, as calico-node's without BIRD
//	     [env=NAME=VALUE] [upgrades]             of calico-node: an environment variable; its init container upgrade-ipam has not ended
//	     [ended=D]                               when its last container ended
//	     [on=K=V] [tolerates=KEY|KEY=VALUE|all]     labels of nodes where it may run; taints that it tolerates
//	     [requests=RESOURCE=N] [hostport] [repels=SELECTOR] [undecided=RULE] [unread]  its other scheduling rules; unread: not kept
//	vm NS/NAME|none; vmi NS/NAME [ofvm]          KubeVirt's objects; either line marks both kinds as read
//	use IP NS/NAME NODE                          alloc and pod in one; takes the options of pod
//	wpool NAME CIDR [ns=NS]; walloc POOL IP [NS/POD] [id=C] [if=I]  Whereabouts' pools
//	wres NAME [NS/POD] [ns=NS] [id=C] [if=I]     its reservations
//	wslices NAME [NODE]@CIDR… [ns=NS]            its slices of a range
//	nad NS/NAME [CIDR]… [network=N] [exclude=CIDR,CIDR] [from=FIRST,LAST] [sliced] [nooverlap] [otheripam] [local=PLUGIN]
//	                                             an attachment; without a CIDR, one that names no source of
//	                                             addresses, or another IPAM plugin if otheripam, or
//	                                             host-local or static on a network that nodes share if local
//	budget NS/NAME [match=SELECTOR] [allows=N]|none  a PodDisruptionBudget; either form marks budgets as read
//	event NS/POD MESSAGE…                        the kubelet's FailedCreatePodSandBox of a pod
//	fill CIDR COUNT NODE                         COUNT uses of the block's first free addresses
//	affinity CIDR OWNER [state=S] [age=D] [deleted] [unlabelled] [name=N]
//	handle ID [CIDR=COUNT]… [age=D] [deleted]
//	reserve CIDR [mine=HOLDER,NODE[,WAS]]        mine: created by calico-audit to empty the block for the node; WAS is its original CIDR if edited since
//	config [strict] [noauto] [max=N] [cooldown=D] [name=N]  with a name, an object that Calico ignores
//	locked
//	service NS/NAME [IP,IP] [pending] [asks=IP] [local]  a Service and its cluster IPs; pending: a LoadBalancer without an address; asks: spec.loadBalancerIP
//	apiserver IP                                 the cluster IP of Service default/kubernetes, which the reader uses
//	migration PHASE                              a DatastoreMigration
//	bothgroups [locked]                          the newer API group serves blocks too, and may be locked
//	controllers [none] [grace=D] [lb=on|requested] [runs=lb|none]  lb: controllers.loadBalancer; runs: the same in status.runningConfig
//	bgp [nomesh] [as=N] [lb=CIDR,CIDR] [singly]  lb: serviceLoadBalancerIPs; singly: serviceLoadBalancerAggregation: Disabled
//	felix [routes=WHO] [source=WHAT] [bpf] [vxlan=on|off] [ipip=on|off] [floating=Enabled] [port=N] [vni=N]  programClusterRoutes, routeSource, vxlanEnabled, ipipEnabled
//	peer NAME [ip=IP] [as=N] [node=NODE] [nodes=SELECTOR] [reflectors=SELECTOR] [localas=N]
//	     [ownas=N] [oneway] [workloads] [filters=A,B]
//	     localas is numAllowedLocalASNumbers, ownas localASNumber, oneway reversePeering: Manual
//	filter NAME [export=RULE]… [import=RULE]…    a BGPFilter
//	     RULE is ACTION[,OPERATOR,CIDR[,MIN-MAX]][,source=S][,if=NAME], such as
//	     export=Reject,In,10.0.0.0/8,32-; without a CIDR it is one for both families
//	view NODE [age=D] [agent|routes] [partial] [complete|lacks=WHY] [unauth] [boot=ID] [source=FILE]
//	                                             a host view; the next lines fill it
//	     routes: only a listing of routes; partial: a listing that was not parsed completely
//	route NODE CIDR TYPE [proto=P] [table=T] [metric=N] [via=IP] [dev=D]
//	lookup NODE CIDR RESULT [match=CIDR] [table=T] [via=IP] [dev=D]
//	netns NODE ID IP[/LEN][,IP] [pids=N,N] [cmd=C,C] [state=S,S] [sandbox=ID] [uid=PODUID] [name=N] [host] [inner]
//	     inner is a namespace without a veth pair that ends on the host
//	hostgap NODE REASON…                         a host view that is missing
//	gap RESOURCE [name=N] [field=F] [owner=NODE] [cidr=C] REASON…
//	corrupt CIDR                                 puts an allocated ordinal of the block into its free queue
//
// Every object was created and last written at its age. With created=D, it was created at
// D and last written at age=.
//
// Every object has the UID "uid-NAME" and the resourceVersion "1". uid= and rv= set
// others, and "unpinned" removes both. With "ours", calico-audit wrote the object last.
package statedsl
