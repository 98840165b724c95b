// Package statedsl is a small language for cluster states in tests. A state is a
// few lines of text; [Parse] makes a snapshot of it:
//
//	pool pods 10.0.0.0/24 size=26
//	node n1 pods=110
//	block 10.0.0.0/26 n1 age=1h
//	use 10.0.0.5 shop/web n1
//
// One line is one object. After the kind come its positional words, then options,
// either flags ("disabled") or key=value. Times are ages, counted back from the
// text's clock ("at TIME", by default noon of 2 January 2026). Lines that start
// with # are comments.
//
//	at TIME
//	version v3.31.0
//	live                                         objects may change between reads
//	pool NAME CIDR [size=N] [disabled] [manual] [uses=A,B] [nodes=SELECTOR]
//	     [namespaces=SELECTOR] [vxlan=MODE] [ipip=MODE] [noexport] [notAllocatable=REASON]
//	node NAME [pods=N] [cordoned] [windows] [notready] [outofservice] [taint=KEY|KEY=VALUE] [label=K=V] [tunnel=TYPE@IP] [as=N]
//	     [podcidr=CIDR]                          its range of pod addresses, of which Calico's IPAM knows nothing
//	     [addr=IP/LEN] [rr=ID]                   its BGP addresses and cluster ID
//	     [mine=CIDR,HOLDER,NODE]                 cordoned by this program, to empty the block for the node
//	     [mine=rehome]                           cordoned by this program, while pods that borrow start again
//	namespace NAME [label=K=V] [pools=A,B]
//	block CIDR [OWNER] [age=D] [noage] [future] [deleted] [strict] [name=N] [records=N] [claimed=D]
//	     OWNER is a node's name, "virtual:…" or "-" for none; records is how many
//	     addresses it records, those beyond its CIDR as allocated; claimed its
//	     affinityClaimTime
//	alloc IP [pod=NS/NAME] [node=N] [handle=H] [type=T] [service=S] [vm] [cooling] [age=D] [noage] [seq=N] [noseq]
//	     [vmi=NAME] [alt=NS/NAME altnode=N]      KubeVirt's attributes, and alternateOwnerAttrs
//	pod NS/NAME NODE [IP,IP] [phase=P] [hostnet] [terminating] [removed] [ann=IP,IP] [pools=A,B] [age=D] [cid=ID]
//	     [nets=NAMESPACE/NETWORK@IP,…] [netstatus]  addresses on networks other than the cluster's own
//	     [net=IP,IP] [vmi=NAME] [unreadable=FIELD]  addresses in network-status, its virtual machine
//	     [of=KIND/NAME] [ready] [claim] [noevict] [static] [once] [scratch] [noipam] [label=K=V]  its controller, and what an eviction heeds
//	     [on=K=V] [tolerates=KEY|KEY=VALUE|all]     the nodes where it may run, by label, and taints that it tolerates
//	vm NS/NAME|none; vmi NS/NAME [ofvm]          KubeVirt's objects; either says that both kinds were read
//	use IP NS/NAME NODE                          alloc and pod in one; takes the options of pod
//	wpool NAME CIDR [ns=NS]; walloc POOL IP [NS/POD] [id=C] [if=I]  Whereabouts' pools
//	wres NAME [NS/POD] [ns=NS] [id=C] [if=I]     its reservations
//	wslices NAME [NODE]@CIDR… [ns=NS]            its slices of a range
//	nad NS/NAME [CIDR]… [network=N] [exclude=CIDR,CIDR] [from=FIRST,LAST] [sliced] [nooverlap] [otheripam]
//	                                             an attachment; without a CIDR one that does not say where its
//	                                             addresses come from, or from elsewhere if otheripam
//	budget NS/NAME [match=SELECTOR] [allows=N]|none  a PodDisruptionBudget; either says that they were read
//	fill CIDR COUNT NODE                         COUNT uses of the block's first free addresses
//	affinity CIDR OWNER [state=S] [age=D] [deleted] [unlabelled] [name=N]
//	handle ID [CIDR=COUNT]… [age=D] [deleted]
//	reserve CIDR [mine=HOLDER,NODE[,WAS]]        mine: by this program, to empty the block for the node; changed since if WAS is another CIDR
//	config [strict] [noauto] [max=N] [cooldown=D]
//	locked
//	migration PHASE                              a DatastoreMigration
//	bothgroups [locked]                          the newer API group serves blocks, too, and may be locked
//	controllers [none] [grace=D]
//	bgp [nomesh] [as=N]
//	felix [routes=WHO] [source=WHAT] [bpf]       programClusterRoutes, routeSource
//	peer NAME [ip=IP] [as=N] [node=NODE] [nodes=SELECTOR] [reflectors=SELECTOR] [localas=N]
//	     [ownas=N] [oneway] [workloads] [filters=A,B]
//	     localas is numAllowedLocalASNumbers, ownas localASNumber, oneway reversePeering: Manual
//	filter NAME [export=RULE]… [import=RULE]…    a BGPFilter
//	     RULE is ACTION[,OPERATOR,CIDR[,MIN-MAX]][,source=S][,if=NAME], such as
//	     export=Reject,In,10.0.0.0/8,32-; without a CIDR it is one for both families
//	view NODE [age=D] [agent|routes] [partial] [complete|lacks=WHY] [unauth] [boot=ID] [source=FILE]
//	                                             a host view; the next lines fill it
//	     routes makes it a listing of routes, partial one that was not understood whole
//	route NODE CIDR TYPE [proto=P] [table=T] [metric=N] [via=IP] [dev=D]
//	lookup NODE CIDR RESULT [match=CIDR] [table=T] [via=IP] [dev=D]
//	netns NODE ID IP[/LEN][,IP] [pids=N,N] [cmd=C,C] [state=S,S] [sandbox=ID] [uid=PODUID] [name=N] [host] [inner]
//	     inner is a namespace without a veth pair that ends on the host
//	hostgap NODE REASON…                         a host view that could not be had
//	gap RESOURCE [name=N] [owner=NODE] [cidr=C] REASON…
//	corrupt CIDR                                 queues an allocated ordinal of the block
//
// Every object was created and last written at its age, unless created=D tells
// when it was created, and age= then only when it was written.
//
// Every object has the UID "uid-NAME" and the resourceVersion "1" unless uid=,
// rv= or unpinned (neither) say otherwise, and was written last by this program if
// it is "ours".
package statedsl
