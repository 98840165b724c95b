package decode

import (
	"net/netip"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

func TestAffinity(t *testing.T) {
	for name, c := range map[string]struct {
		object string
		want   blocks.Affinity
	}{
		"older group": {
			`{"metadata": {"name": "n1-10-0-0-0-26", "labels": {"projectcalico.org/hostname-hash": "X"}},
			 "spec": {"cidr": "10.0.0.0/26", "node": "n1", "type": "host", "state": "confirmed", "deleted": "false"}}`,
			blocks.Affinity{CIDR: prefix("10.0.0.0/26"), Owner: blocks.Owner{Kind: "host", Name: "n1"}, State: blocks.Confirmed}},
		"newer group, being deleted": {
			`{"metadata": {"name": "n1-10-0-0-0-26", "labels": {"projectcalico.org/hostname-hash": "X"}},
			 "spec": {"cidr": "10.0.0.0/26", "node": "n1", "type": "host", "state": "pendingDeletion", "deleted": true}}`,
			blocks.Affinity{CIDR: prefix("10.0.0.0/26"), Owner: blocks.Owner{Kind: "host", Name: "n1"},
				State: blocks.PendingDeletion, SoftDeleted: true}},
		"older Calico: no label, no type, no state": {
			`{"metadata": {"name": "n1-10-0-0-0-26"}, "spec": {"cidr": "10.0.0.0/26", "node": "n1", "state": "", "deleted": "true"}}`,
			blocks.Affinity{CIDR: prefix("10.0.0.0/26"), Owner: blocks.Owner{Kind: "host", Name: "n1"},
				SoftDeleted: true, Unlabelled: true}},
		"virtual": {
			`{"metadata": {"name": "n1-10-0-0-0-26"}, "spec": {"cidr": "10.0.0.0/26", "node": "load-balancer", "type": "virtual", "deleted": ""}}`,
			blocks.Affinity{CIDR: prefix("10.0.0.0/26"), Owner: blocks.Owner{Kind: "virtual", Name: "load-balancer"}, Unlabelled: true}},
		"virtual by its label alone": {
			`{"metadata": {"name": "n1-10-0-0-0-26", "labels": {"projectcalico.org/hostname-hash": "X", "projectcalico.org/affinity-type": "virtual"}},
			 "spec": {"cidr": "10.0.0.0/26", "node": "load-balancer", "deleted": ""}}`,
			blocks.Affinity{CIDR: prefix("10.0.0.0/26"), Owner: blocks.Owner{Kind: "virtual", Name: "load-balancer"}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := decodeOne(t, affinities, c.object)
			noGaps(t, p)
			c.want.Name = "n1-10-0-0-0-26"
			diff(t, "affinity", []blocks.Affinity{c.want}, all[blocks.Affinity](p))
		})
	}
}

func TestAffinityGaps(t *testing.T) {
	n1 := blocks.Owner{Kind: "host", Name: "n1"}
	for object, want := range map[string]blocks.Gap{
		objectNamed("n1-10-0-0-0-26", `"cidr": "10.0.0.0", "node": "n1"`): {Name: "n1-10-0-0-0-26", Field: "spec.cidr",
			Reason: `"10.0.0.0" is not a CIDR`, Prefix: prefix("10.0.0.0/26"), Owner: n1, OwnerKnown: true},
		objectNamed("a", `"cidr": "10.0.0.0/26"`): {Name: "a", Field: "spec.node", Reason: "is missing", Prefix: prefix("10.0.0.0/26")},
		objectNamed("a", `"cidr": "10.0.0.0/26", "node": 7`): {Name: "a", Field: "spec.node", Reason: "is a number, not a string",
			Prefix: prefix("10.0.0.0/26")},
		objectNamed("a", `"cidr": "10.0.0.0/26", "node": "n1", "type": 7`): {Name: "a", Field: "spec.type", Reason: "is a number, not a string",
			Prefix: prefix("10.0.0.0/26")},
		objectNamed("a", `"cidr": "10.0.0.0/26", "node": "n1", "deleted": "perhaps"`): {Name: "a", Field: "spec.deleted",
			Reason: `"perhaps" is not a boolean`, Prefix: prefix("10.0.0.0/26"), Owner: n1, OwnerKnown: true},
	} {
		p := decodeOne(t, affinities, object)
		if len(all[blocks.Affinity](p)) > 0 {
			t.Errorf("%s: kept", object)
		}
		want.Resource = blocks.Affinities
		diff(t, object, want, oneGap(t, p))
	}
}

func TestHandle(t *testing.T) {
	p := decodeOne(t, handles, objectNamed("k8s-pod-network.ab",
		`"handleID": "k8s-pod-network.AB", "block": {"fd00::/122": 1, "10.0.0.9/26": 2}, "deleted": true`))
	noGaps(t, p)
	diff(t, "handle", []blocks.Handle{{
		Meta: blocks.Meta{Name: "k8s-pod-network.ab"}, ID: "k8s-pod-network.AB", SoftDeleted: true,
		Blocks: []blocks.HandleCount{{CIDR: prefix("10.0.0.0/26"), Count: 2}, {CIDR: prefix("fd00::/122"), Count: 1}},
	}}, all[blocks.Handle](p))

	// A bad count does not hide the others.
	p = decodeOne(t, handles, objectNamed("h", `"handleID": "h", "block": {"10.0.0.0/26": 1, "here": 1, "10.0.1.0/26": "2"}`))
	diff(t, "handle", []blocks.Handle{{Meta: blocks.Meta{Name: "h"}, ID: "h",
		Blocks: []blocks.HandleCount{{CIDR: prefix("10.0.0.0/26"), Count: 1}}}}, all[blocks.Handle](p))
	diff(t, "gaps", []blocks.Gap{
		{Resource: blocks.Handles, Name: "h", Field: "spec.block.here", Reason: `"here" is not a CIDR`},
		{Resource: blocks.Handles, Name: "h", Field: "spec.block[10.0.1.0/26]", Reason: "is a string, not an integer"},
	}, p.Gaps)

	for object, want := range map[string]blocks.Gap{
		objectNamed("h", `"block": {}`):                 {Name: "h", Field: "spec.handleID", Reason: "is missing"},
		objectNamed("h", `"handleID": "h", "block": 1`): {Name: "h", Field: "spec.block", Reason: "is a number, not an object"},
	} {
		p := decodeOne(t, handles, object)
		want.Resource = blocks.Handles
		diff(t, object, want, oneGap(t, p))
		if len(all[blocks.Handle](p)) > 0 {
			t.Errorf("%s: kept", object)
		}
	}
}

func TestPool(t *testing.T) {
	both := []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}
	for name, c := range map[string]struct {
		object string
		want   blocks.Pool
	}{
		"defaults": {
			objectNamed("p", `"cidr": "10.0.0.0/16"`),
			blocks.Pool{CIDR: prefix("10.0.0.0/16"), BlockSize: 26, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapNever, VXLAN: blocks.EncapNever}},
		"defaults of IPv6, as the API may store them": {
			objectNamed("p", `"cidr": "fd00::/48", "blockSize": 0, "allowedUses": [], "assignmentMode": null, "ipipMode": ""`),
			blocks.Pool{CIDR: prefix("fd00::/48"), BlockSize: 122, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapNever, VXLAN: blocks.EncapNever}},
		"everything set": {
			`{"metadata": {"name": "p"}, "spec": {"cidr": "10.0.0.0/16", "blockSize": 28, "disabled": true,
			  "nodeSelector": "zone == 'a'", "namespaceSelector": "team == 'b'", "allowedUses": ["LoadBalancer"],
			  "assignmentMode": "Manual", "ipipMode": "CrossSubnet", "vxlanMode": "Always", "disableBGPExport": true,
			  "natOutgoing": true},
			  "status": {"conditions": [{"type": "Other", "status": "False", "reason": "No"},
			    {"type": "Allocatable", "status": "False", "reason": "CIDROverlap", "lastTransitionTime": "2025-11-20T10:00:00Z"}]}}`,
			blocks.Pool{CIDR: prefix("10.0.0.0/16"), BlockSize: 28, Disabled: true, NodeSelector: "zone == 'a'",
				NamespaceSelector: "team == 'b'", Uses: []blocks.Use{blocks.UseLoadBalancer},
				IPIP: blocks.EncapCrossSubnet, VXLAN: blocks.EncapAlways, NATOutgoing: true, DisableBGPExport: true, NotAllocatable: "CIDROverlap"}},
		"allocatable": {
			`{"metadata": {"name": "p"}, "spec": {"cidr": "10.0.0.0/16"}, "status": {"conditions": [
			  {"type": "Allocatable", "status": "True", "reason": "OK"}]}}`,
			blocks.Pool{CIDR: prefix("10.0.0.0/16"), BlockSize: 26, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapNever, VXLAN: blocks.EncapNever}},
		"of Tigera's operator": {
			`{"metadata": {"name": "p", "labels": {"app.kubernetes.io/managed-by": "tigera-operator", "team": "b"}}, "spec": {"cidr": "10.0.0.0/16"}}`,
			blocks.Pool{CIDR: prefix("10.0.0.0/16"), BlockSize: 26, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapNever, VXLAN: blocks.EncapNever, OfOperator: true}},
		"of another manager": {
			`{"metadata": {"name": "p", "labels": {"app.kubernetes.io/managed-by": "Helm"}}, "spec": {"cidr": "10.0.0.0/16"}}`,
			blocks.Pool{CIDR: prefix("10.0.0.0/16"), BlockSize: 26, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapNever, VXLAN: blocks.EncapNever}},
		"stored by Calico v2": {
			objectNamed("p", `"cidr": "10.0.0.0/16", "ipip": {"enabled": true, "mode": "cross-subnet"}, "nat-outgoing": true`),
			blocks.Pool{CIDR: prefix("10.0.0.0/16"), BlockSize: 26, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapCrossSubnet, VXLAN: blocks.EncapNever, NATOutgoing: true}},
		"stored by Calico v2, always": {
			objectNamed("p", `"ipip": {"enabled": true}, "ipipMode": "Never", "cidr": "10.0.0.0/16"`),
			blocks.Pool{CIDR: prefix("10.0.0.0/16"), BlockSize: 26, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapAlways, VXLAN: blocks.EncapNever}},
		"smaller than a block": {
			objectNamed("p", `"cidr": "10.0.0.0/28"`),
			blocks.Pool{CIDR: prefix("10.0.0.0/28"), BlockSize: 26, DefaultSize: true, NodeSelector: "all()", Uses: both, Automatic: true,
				IPIP: blocks.EncapNever, VXLAN: blocks.EncapNever}},
	} {
		t.Run(name, func(t *testing.T) {
			p := decodeOne(t, pools, c.object)
			noGaps(t, p)
			c.want.Name = "p"
			diff(t, "pool", []blocks.Pool{c.want}, all[blocks.Pool](p))
		})
	}
	for object, want := range map[string]blocks.Gap{
		objectNamed("p", `"cidr": "10.0.0.0"`): {Name: "p", Field: "spec.cidr", Reason: `"10.0.0.0" is not a CIDR`},
		objectNamed("p", `"blockSize": 26`):    {Name: "p", Field: "spec.cidr", Reason: "is missing"},
		objectNamed("p", `"cidr": "10.0.0.0/16", "blockSize": 122`): {Name: "p", Field: "spec.blockSize",
			Reason: "is 122, not the length of an IPv4 prefix", Prefix: prefix("10.0.0.0/16")},
		objectNamed("p", `"cidr": "10.0.0.0/16", "disabled": "no"`): {Name: "p", Field: "spec.disabled",
			Reason: "is a string, not a boolean", Prefix: prefix("10.0.0.0/16")},
	} {
		p := decodeOne(t, pools, object)
		want.Resource = blocks.Pools
		diff(t, object, want, oneGap(t, p))
		if len(all[blocks.Pool](p)) > 0 {
			t.Errorf("%s: kept", object)
		}
	}
}

func TestReservation(t *testing.T) {
	p := decodeOne(t, reservations, objectNamed("r", `"reservedCIDRs": ["10.0.0.5/30", "nowhere", " 10.0.0.9 ", "", "fd00::1", 5]`))
	diff(t, "reservation", []blocks.Reservation{{Meta: blocks.Meta{Name: "r"},
		CIDRs: []blocks.Prefix{prefix("10.0.0.4/30"), prefix("10.0.0.9/32"), prefix("fd00::1/128")}}}, all[blocks.Reservation](p))
	diff(t, "gaps", []blocks.Gap{
		{Resource: blocks.Reservations, Name: "r", Field: "spec.reservedCIDRs[1]", Reason: `"nowhere" is not a CIDR`},
		{Resource: blocks.Reservations, Name: "r", Field: "spec.reservedCIDRs[5]", Reason: "is a number, not a string"},
	}, p.Gaps)

	p = decodeOne(t, reservations, objectNamed("r", `"reservedCIDRs": "10.0.0.0/8"`))
	diff(t, "gap", blocks.Gap{Resource: blocks.Reservations, Name: "r", Field: "spec.reservedCIDRs",
		Reason: "is a string, not a list"}, oneGap(t, p))
}

func TestConfigs(t *testing.T) {
	p := decodeOne(t, ipamConfigs, objectNamed("default", `"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 4, "ipCooldownSeconds": 30`))
	diff(t, "IPAM", []blocks.IPAMConfig{{Meta: blocks.Meta{Name: "default"}, Present: true,
		StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 4, Cooldown: 30 * time.Second}}, all[blocks.IPAMConfig](p))

	// An object of another name does not count, whatever its content, and is listed.
	s := NewSnapshot(decodeOne(t, ipamConfigs, objectNamed("ipam", `"strictAffinity": true, "maxBlocksPerHost": "many"`)))
	diff(t, "IPAM", blocks.DefaultIPAMConfig(), s.IPAM)
	diff(t, "ignored", []blocks.IPAMConfig{{Meta: blocks.Meta{Name: "ipam"}, Present: true, StrictAffinity: true}}, s.IgnoredIPAM)
	diff(t, "gaps", []blocks.Gap(nil), s.Gaps)

	p = decodeOne(t, clusterInfos, objectNamed("default", `"clusterGUID": "g", "calicoVersion": "v3.31.0", "datastoreReady": false`))
	diff(t, "cluster", []blocks.ClusterInfo{{Meta: blocks.Meta{Name: "default"}, Present: true,
		GUID: "g", CalicoVersion: "v3.31.0", Locked: true}}, all[blocks.ClusterInfo](p))
	p = decodeOne(t, clusterInfos, objectNamed("default", `"datastoreReady": null`))
	diff(t, "cluster", []blocks.ClusterInfo{{Meta: blocks.Meta{Name: "default"}, Present: true}}, all[blocks.ClusterInfo](p))

	p = decodeOne(t, controllersConfigs, objectNamed("default", `"controllers": {"node": {"leakGracePeriod": "0s", "syncLabels": "Enabled"}, "policy": {}}`))
	diff(t, "controllers", []blocks.ControllersConfig{{Meta: blocks.Meta{Name: "default"}, Present: true,
		NodeController: true, LeakGraceSet: true}}, all[blocks.ControllersConfig](p))
	p = decodeOne(t, controllersConfigs, objectNamed("default", `"controllers": {"node": {"leakGracePeriod": "1h2m"}}`))
	diff(t, "controllers", []blocks.ControllersConfig{{Meta: blocks.Meta{Name: "default"}, Present: true,
		NodeController: true, LeakGrace: 62 * time.Minute, LeakGraceSet: true}}, all[blocks.ControllersConfig](p))
	p = decodeOne(t, controllersConfigs, `{"metadata":{"name":"default"},"spec":{"controllers":{"loadBalancer":{}}},"status":{"runningConfig":{"controllers":{"loadBalancer":{"assignIPs":"RequestedServicesOnly"}}}}}`)
	diff(t, "controllers", []blocks.ControllersConfig{{Meta: blocks.Meta{Name: "default"}, Present: true, LoadBalancer: true, Reported: true, LoadBalancerRuns: true, RequestedOnly: true}}, all[blocks.ControllersConfig](p))
	p = decodeOne(t, controllersConfigs, `{"metadata":{"name":"default"},"spec":{"controllers":{"loadBalancer":{}}},"status":{"runningConfig":{"controllers":{}}}}`)
	diff(t, "controllers", []blocks.ControllersConfig{{Meta: blocks.Meta{Name: "default"}, Present: true, LoadBalancer: true}}, all[blocks.ControllersConfig](p))
	p = decodeOne(t, controllersConfigs, `{"metadata":{"name":"default"},"spec":{"controllers":{"loadBalancer":{}}},"status":{"runningConfig":{"controllers":{"node":{}}}}}`)
	diff(t, "controllers", []blocks.ControllersConfig{{Meta: blocks.Meta{Name: "default"}, Present: true, LoadBalancer: true, Reported: true}}, all[blocks.ControllersConfig](p))
	p = decodeOne(t, controllersConfigs, objectNamed("default", `"controllers": {"node": null}`))
	diff(t, "controllers", []blocks.ControllersConfig{{Meta: blocks.Meta{Name: "default"}, Present: true}}, all[blocks.ControllersConfig](p))

	p = decodeOne(t, felixConfigs, objectNamed("default", `"bpfEnabled": true, "programClusterRoutes": "Enabled", "routeSource": "WorkloadIPs", "floatingIPs": "Enabled"`))
	diff(t, "felix", []blocks.FelixConfig{{Meta: blocks.Meta{Name: "default"}, Present: true,
		BPFEnabled: true, ProgramClusterRoutes: "Enabled", RouteSource: "WorkloadIPs", FloatingIPs: "Enabled"}}, all[blocks.FelixConfig](p))
	p = decodeOne(t, felixConfigs, objectNamed("node.n1", `"bpfEnabled": true`))
	noGaps(t, p)
	diff(t, "felix of one node", []blocks.FelixConfig(nil), all[blocks.FelixConfig](p))

	p = decodeOne(t, bgpConfigs, objectNamed("default", `"nodeToNodeMeshEnabled": false, "asNumber": "1.10"`))
	diff(t, "BGP", []blocks.BGPConfig{{Meta: blocks.Meta{Name: "default"}, Present: true, ASNumber: 65546}}, all[blocks.BGPConfig](p))
	p = decodeOne(t, bgpConfigs, objectNamed("default", ``))
	diff(t, "BGP", []blocks.BGPConfig{{Meta: blocks.Meta{Name: "default"}, Present: true, Mesh: true, ASNumber: 64512}}, all[blocks.BGPConfig](p))

	p = decodeOne(t, bgpPeers, objectNamed("tor", `"node": "n1", "nodeSelector": "all()", "peerIP": "10.0.0.1:179", "asNumber": 64600, "peerSelector": "rr == 'y'"`))
	diff(t, "peer", []blocks.BGPPeer{{Meta: blocks.Meta{Name: "tor"}, Node: "n1", NodeSelector: "all()",
		PeerIP: "10.0.0.1:179", ASNumber: 64600, PeerSelector: "rr == 'y'"}}, all[blocks.BGPPeer](p))
	p = decodeOne(t, bgpPeers, objectNamed("tor", `"asNumber": 4294967296`))
	diff(t, "gap", blocks.Gap{Resource: blocks.BGPPeers, Name: "tor", Field: "spec.asNumber",
		Reason: "is 4294967296, not an AS number"}, oneGap(t, p))
	p = decodeOne(t, bgpPeers, objectNamed("rr", `"peerSelector": "has(rr)", "asNumber": 0, "localASNumber": "1.10", "reversePeering": "Manual", "filters": ["b", "a"]`))
	diff(t, "peer", []blocks.BGPPeer{{Meta: blocks.Meta{Name: "rr"}, PeerSelector: "has(rr)", LocalAS: 65546, ManualReverse: true, Filters: []string{"b", "a"}}}, all[blocks.BGPPeer](p))
	p = decodeOne(t, bgpPeers, objectNamed("pod", `"localWorkloadSelector": "app == 'bird'", "asNumber": 64600, "reversePeering": "Auto"`))
	diff(t, "peer", []blocks.BGPPeer{{Meta: blocks.Meta{Name: "pod"}, ASNumber: 64600, LocalWorkloads: true}}, all[blocks.BGPPeer](p))
	p = decoded(bgpPeers, GroupCRD, []byte(objectNamed("nobody", `"asNumber": 64600`)))
	diff(t, "gap", blocks.Gap{Resource: blocks.BGPPeers, Name: "nobody", Field: "spec", Reason: "has neither peerIP, peerSelector nor localWorkloadSelector"}, oneGap(t, p))
}

func TestBGPFilter(t *testing.T) {
	p := decodeOne(t, bgpFilters, objectNamed("f", `"exportV4": [
		{"cidr": "10.0.0.9/8", "matchOperator": "In", "prefixLength": {"min": 0, "max": 26}, "action": "Reject"},
		{"source": "RemotePeers", "interface": "eth*", "action": "Accept"}],
		"importV4": [{"action": "Reject"}], "exportV6": [{"cidr": "fd00::/64", "matchOperator": "NotEqual", "action": "Accept", "prefixLength": {"min": 128}}],
		"importV6": []`))
	noGaps(t, p)
	diff(t, "filter", []blocks.BGPFilter{{
		Meta: blocks.Meta{Name: "f"},
		ExportV4: []blocks.BGPFilterRule{
			{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Operator: "In", MinLength: 0, MaxLength: 26, Action: "Reject"},
			{Source: "RemotePeers", Interface: "eth*", Action: "Accept", MinLength: -1, MaxLength: -1}},
		ImportV4: []blocks.BGPFilterRule{{Action: "Reject", MinLength: -1, MaxLength: -1}},
		ExportV6: []blocks.BGPFilterRule{{CIDR: netip.MustParsePrefix("fd00::/64"), Operator: "NotEqual", MinLength: 128, MaxLength: -1, Action: "Accept"}},
	}}, all[blocks.BGPFilter](p))
	p = decodeOne(t, bgpFilters, objectNamed("f", `"importV6": [{"action": "Accept"}, {"cidr": "fd00::/x", "action": "Reject"}]`))
	diff(t, "gap", blocks.Gap{Resource: blocks.BGPFilters, Name: "f", Field: "spec.importV6[1].cidr", Reason: `"fd00::/x" is not a CIDR`}, oneGap(t, p))
	if len(all[blocks.BGPFilter](p)) > 0 {
		t.Errorf("kept a filter that could not be understood: %+v", all[blocks.BGPFilter](p))
	}
}

// A broken configuration is a gap of the whole resource: using Calico's defaults for it
// would be wrong.
func TestBrokenConfigIsAWholeGap(t *testing.T) {
	p := decodeOne(t, ipamConfigs, objectNamed("default", `"strictAffinity": "yes", "autoAllocateBlocks": true`))
	g := oneGap(t, p)
	if !g.Whole() || g.Reason != `object "default": spec.strictAffinity is a string, not a boolean` {
		t.Errorf("got gap %+v", g)
	}
	if len(all[blocks.IPAMConfig](p)) > 0 {
		t.Errorf("kept as %+v", all[blocks.IPAMConfig](p))
	}
}

// The newer API group's server defaults autoAllocateBlocks; the older group's type reads an
// absent value as false.
func TestAutoAllocateBlocksDefault(t *testing.T) {
	for native, want := range map[bool]bool{true: true, false: false} {
		p := NewObjects(ipamConfigs)
		d := &Decoder{Out: p, Strings: &SharedStrings{}, Native: native}
		r := parse.New([]byte(objectNamed("default", `"strictAffinity": false`)))
		ipamConfigs.JSON(d, r)
		if len(all[blocks.IPAMConfig](p)) != 1 || all[blocks.IPAMConfig](p)[0].AutoAllocateBlocks != want {
			t.Errorf("native %t: got %+v, want %t", native, all[blocks.IPAMConfig](p), want)
		}
	}
}

func TestPeerAcceptsItsOwnAS(t *testing.T) {
	p := decodeOne(t, bgpPeers, objectNamed("tor", `"peerIP": "10.0.0.1", "asNumber": 64600, "numAllowedLocalASNumbers": 2`))
	noGaps(t, p)
	if all[blocks.BGPPeer](p)[0].AllowedLocalAS != 2 {
		t.Errorf("got %+v", all[blocks.BGPPeer](p)[0])
	}
}

func TestStringsAreShared(t *testing.T) {
	var shared SharedStrings
	a, b := shared.Bytes([]byte("node-1")), shared.Bytes([]byte("node-1"))
	if a != b || testing.AllocsPerRun(100, func() { shared.Bytes([]byte("node-1")) }) != 0 {
		t.Error("a shared text was made twice")
	}
}
