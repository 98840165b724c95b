// Package sketch is a small language for cluster states in tests. A sketch is a
// few lines of text; [Parse] makes a snapshot of it:
//
//	pool pods 10.0.0.0/24 size=26
//	node n1 pods=110
//	block 10.0.0.0/26 n1 age=1h
//	use 10.0.0.5 shop/web n1
//
// One line is one object. After the kind come its positional words, then options,
// either flags ("disabled") or key=value. Times are ages, counted back from the
// sketch's clock ("at TIME", by default noon of 2 January 2026). Lines that start
// with # are comments.
//
//	at TIME
//	version v3.31.0
//	live                                         objects may change between reads
//	pool NAME CIDR [size=N] [disabled] [manual] [uses=A,B] [nodes=SELECTOR]
//	     [namespaces=SELECTOR] [vxlan=MODE] [ipip=MODE] [noexport] [notAllocatable=REASON]
//	node NAME [pods=N] [cordoned] [windows] [taint=KEY] [label=K=V] [tunnel=TYPE@IP] [as=N]
//	namespace NAME [label=K=V] [pools=A,B]
//	block CIDR [OWNER] [age=D] [noage] [future] [deleted] [strict] [name=N]
//	     OWNER is a node's name, "virtual:…" or "-" for none
//	alloc IP [pod=NS/NAME] [node=N] [handle=H] [type=T] [service=S] [vm] [cooling] [age=D] [noage]
//	pod NS/NAME NODE [IP,IP] [phase=P] [hostnet] [terminating] [removed] [ann=IP,IP] [pools=A,B] [age=D]
//	use IP NS/NAME NODE                          alloc and pod in one
//	fill CIDR COUNT NODE                         COUNT uses of the block's first free addresses
//	affinity CIDR OWNER [state=S] [age=D] [deleted] [unlabelled]
//	handle ID [CIDR=COUNT]… [age=D] [deleted]
//	reserve CIDR
//	config [strict] [noauto] [max=N]
//	locked
//	controllers [none] [grace=D]
//	bgp [nomesh] [as=N]
//	peer NAME [ip=IP] [as=N] [nodes=SELECTOR] [reflectors=SELECTOR] [localas=N]
//	gap RESOURCE [name=N] [owner=NODE] [cidr=C] REASON…
//	corrupt CIDR                                 queues an allocated ordinal of the block
package sketch
