package decode

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// odd holds objects with every field that a decoder reads, and with values of wrong types.
var odd = map[blocks.Resource][]string{
	blocks.Pods: {
		`{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"3","creationTimestamp":"2026-01-01T00:00:00Z",
		"deletionTimestamp":"2026-01-02T00:00:00Z","annotations":{"cni.projectcalico.org/podIP":"10.0.0.1/32","cni.projectcalico.org/podIPs":"10.0.0.1/32,x",
		"cni.projectcalico.org/containerID":"c","cni.projectcalico.org/ipv4pools":"[\"a\"]","cni.projectcalico.org/ipv6pools":"none"}},
		"spec":{"nodeName":"n1","hostNetwork":true},"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"y"},7],"startTime":"2026-01-01T00:00:01Z"}}`,
		`{"metadata":{"name":"p","namespace":"n"},"status":{"phase":"Failed","conditions":[{"type":"Ready","status":"False","lastTransitionTime":"2026-01-01T00:00:01Z"},{"type":"DisruptionTarget","lastTransitionTime":5},{"type":"PodScheduled"}],
		"containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":1,"finishedAt":"2026-01-01T00:00:02Z"}}},{"state":{"running":{}}},{"state":{"terminated":{"finishedAt":"soon"}}},{"state":7},5]}}`,
		`{"metadata":{"name":5,"annotations":[]},"spec":7,"status":{"podIPs":{},"phase":{}}}`, `{"metadata":null,"spec":"x","status":[]}`, `{}`,
		`{"metadata":{"name":"p","annotations":{"cni.projectcalico.org/podIP":{"a":1}}},"spec":{"hostNetwork":"yes","nodeName":null}}`,
		`{"metadata":{"name":"p","namespace":"n","labels":{"vm.kubevirt.io/name":"db","app":"x"},"annotations":{
		"k8s.v1.cni.cncf.io/network-status":"[{\"name\":\"a/net1\",\"interface\":\"net1\",\"ips\":[\"10.9.0.1\",\"fd00::1\"]},{\"name\":\"b\"}]",
		"k8s.v1.cni.cncf.io/networks-status":"[{\"ips\":[\"10.9.0.2\",\"z\",5]}]","k8s.v1.cni.cncf.io/networks":"[{}]"},
		"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs"},{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","name":"db","uid":"x"},5]}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeSelector":{"disk":"ssd","a":5,"b":[]},"affinity":{"podAffinity":{"x":[1]},"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
		{"matchExpressions":[{"operator":"In","values":["b",7,null],"key":"zone"},{"key":"gpu","operator":"Exists"},5],"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]},{},7,{"matchExpressions":{}}]}}}}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeSelector":"x","affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":null}}}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeSelector":null,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":{}}}}}}`,
		`{"metadata":{"name":"p","labels":[],"ownerReferences":{},"annotations":{"k8s.v1.cni.cncf.io/network-status":"net1"}}}`,
		`{"metadata":{"name":"p","namespace":"n","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"other","uid":"o"},
		{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"r","controller":true,"blockOwnerDeletion":true},{"controller":"yes"},{"controller":true}],
		"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict":"false","cni.projectcalico.org/ipAddrs":"[\"10.0.0.1\"]","cni.projectcalico.org/ipAddrsNoIpam":"[\"10.0.0.1\"]"}},
		"spec":{"volumes":[{"name":"a","emptyDir":{}},{"name":"b","persistentVolumeClaim":{"claimName":"c"}},5,{"persistentVolumeClaim":"c"}]},
		"status":{"conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"},7,{"type":[]}]}}`,
		`{"metadata":{"name":"p"},"spec":{"restartPolicy":5,"nodeSelector":{"a":true},"tolerations":[{"key":"a"},{"key":{}},7],"affinity":{"nodeAffinity":"x"},"volumes":[{"name":"a","hostPath":{}},{"emptyDir":"x"},null]},
		"status":{"phase":"Failed","conditions":[{"type":"Initialized","status":"True","lastTransitionTime":"2026-02-01T00:00:00Z"},{"type":"PodScheduled","status":{"a":1}}]}}`,
		`{"metadata":{"name":"p"},"spec":{"volumes":[{"name":"a"},{"persistentVolumeClaim":["c"]}]},"status":{"conditions":[{"type":"Initialized","status":"True"},{"type":5,"reason":5}],"containerStatuses":[{"state":{"running":{}}},{"state":{"terminated":[]}}]}}`,
		`{"metadata":{"name":"p","namespace":"n","annotations":{"descheduler.alpha.kubernetes.io/prevent-eviction":"true"}},
		"spec":{"volumes":[{"name":"b","ephemeral":{"volumeClaimTemplate":{}}}]},"status":{"conditions":{}}}`,
		`{"metadata":{"name":"p"},"spec":{"schedulerName":"default-scheduler","containers":[{"name":"c","ports":[{"hostPort":80},{"containerPort":1}],"resources":{"requests":{"cpu":"1","memory":5,"acme.com/gpu":"2"},"limits":{"cpu":1}},"restartPolicy":"Always"}],
		"initContainers":[{"resources":{"requests":{"cpu":"2"}},"restartPolicy":"Always"}],"overhead":{"cpu":"1m"},"resources":{"requests":{"cpu":"3"}},"resourceClaims":[{"name":"r"}],"schedulingGates":[{"name":"g"}],"schedulingGroup":{"podGroupName":"x"},
		"topologySpreadConstraints":[{"whenUnsatisfiable":"DoNotSchedule","topologyKey":"zone"}],"volumes":[{"name":"v","csi":{"driver":"d"}}],
		"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone"}]},"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"In","values":["d"]}]},"namespaces":["n"],"namespaceSelector":{"matchLabels":{"x":"y"}}}]}}}}`,
		`{"metadata":{"name":"p"},"spec":{"schedulerName":5}}`, `{"metadata":{"name":"p"},"spec":{"schedulerName":"s","containers":{}}}`, `{"metadata":{"name":"p"},"spec":{"containers":[{"ports":[{"hostPort":"80"}]}]}}`,
		`{"metadata":{"name":"p"},"spec":{"containers":[{"resources":{"requests":{"cpu":"many"}}},5]}}`, `{"metadata":{"name":"p"},"spec":{"topologySpreadConstraints":"x","schedulingGroup":[],"affinity":{"podAntiAffinity":7,"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{}}}}}`,
		`{"metadata":{"name":"p"},"spec":{"volumes":"x"},"status":{"conditions":[{"type":"Ready","status":false}]}}`,
		`{"metadata":{"name":"p","labels":{"a":5},"ownerReferences":[{"kind":"VirtualMachineInstance","name":7},{"kind":"VirtualMachineInstance","apiVersion":"acme/v1","name":"q"},{"kind":{}}],
		"annotations":{"k8s.v1.cni.cncf.io/network-status":"[] []","k8s.v1.cni.cncf.io/networks-status":[]}}}`,
	},
	blocks.Migrations: {
		`{"metadata":{"name":"v1-to-v3"},"spec":{"type":"APIServerToCRDs"},"status":{"phase":"Converged","message":"m","progress":{"total":5}}}`,
		`{"metadata":{"name":"v1-to-v3"},"status":{"phase":5}}`, `{"status":[]}`,
	},
	blocks.Nodes: {
		`{"metadata":{"name":"n","annotations":{"calico-audit/consolidation":"run-1"}}}`,
		`{"metadata":{"name":"n","labels":{"a":"b","kubernetes.io/os":"windows","c":5},"annotations":{"projectcalico.org/IPv4Address":"10.0.0.1/24",
		"projectcalico.org/IPv6Address":"z","projectcalico.org/IPv4IPIPTunnelAddr":"10.0.0.2","projectcalico.org/IPv4VXLANTunnelAddr":"q",
		"projectcalico.org/ASNumber":"1.5","projectcalico.org/RouteReflectorClusterID":"1.2.3.4","projectcalico.org/labels":"{\"x\":\"y\"}"},
		"managedFields":[{"time":"2026-01-01T00:00:00Z","manager":"m"},{"time":5},7]},
		"spec":{"podCIDR":"10.244.1.0/24","podCIDRs":["10.244.1.0/24","fd00:1::/64","x",5],"unschedulable":true,"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"PreferNoSchedule"},{"key":"a","effect":"NoExecute"},{"key":"b","effect":"PreferNoSchedule","value":"v"},3]},
		"status":{"allocatable":{"pods":"110","cpu":"4"},"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"operatingSystem":"linux"}}}`,
		`{"metadata":{"name":"n"},"status":{"allocatable":{"pods":110},"conditions":{},"nodeInfo":[]}}`,
		`{"metadata":{"name":"n"},"status":{"allocatable":{"pods":"many"}},"spec":{"podCIDR":"","podCIDRs":{},"taints":{},"unschedulable":"no"}}`,
		`{"metadata":{"name":"n","annotations":{"projectcalico.org/labels":"[]","projectcalico.org/ASNumber":"x"}}}`,
		`{"metadata":{"name":"n"},"status":{"allocatable":[],"addresses":[{"type":"InternalIP","address":"10.9.0.1"},{"type":"InternalIP","address":"x"},{"type":"Hostname","address":"n"},{"address":"10.9.0.2","type":"InternalIP"}]}}`,
		`{"metadata":{"name":"n"},"status":{"addresses":{"type":"InternalIP"}}}`,
	},
	blocks.Namespaces: {
		`{"metadata":{"name":"n","labels":{"a":"b"},"annotations":{"cni.projectcalico.org/ipv4pools":"[\"a\"]","cni.projectcalico.org/ipv6pools":"x"}}}`,
		`{"metadata":[]}`, `{"metadata":{"labels":{"a":[]}}}`,
	},
	blocks.VMs: {
		`{"metadata":{"name":"db","namespace":"shop","uid":"u","resourceVersion":"3","creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-02T00:00:00Z",
		"labels":{"a":"b"},"annotations":{"kubevirt.io/x":"y"},"ownerReferences":[{"apiVersion":"pool.kubevirt.io/v1alpha1","kind":"VirtualMachinePool","name":"q"}],
		"managedFields":[{"time":"2026-01-01T00:00:00Z","manager":"m"}]},"spec":{"running":true},"status":{"ready":false}}`,
		`{"metadata":{"name":"db","namespace":5,"uid":[]}}`, `{"metadata":{"namespace":"shop"}}`, `{"metadata":[]}`, `{}`,
	},
	blocks.VMInstances: {
		`{"metadata":{"name":"db","namespace":"shop","ownerReferences":[{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"db","uid":"x"}]},"status":{"phase":"Running"}}`,
		`{"metadata":{"name":"db","namespace":"shop","ownerReferences":[{"apiVersion":"acme/v1","kind":"VirtualMachine","name":"db"},{"kind":"VirtualMachine"},5]}}`,
		`{"metadata":{"name":"alone","namespace":"shop","ownerReferences":"none"}}`, `{"metadata":{"name":""}}`,
	},
	blocks.WhereaboutsPools: {
		`{"metadata":{"name":"storage-10.9.0.0-24","namespace":"kube-system","uid":"u","resourceVersion":"3","managedFields":[{"time":"2026-01-01T00:00:00Z","manager":"m"}]},
		"spec":{"allocations":{"5":{"id":"c","podref":"shop/db-0","ifname":"net1"},"6":{"id":"","podref":""},"x":{"podref":"shop/web"},"7":{"podref":5},"8":7},"range":"10.9.0.0/24"}}`,
		`{"metadata":{"name":"fd00---64","namespace":"kube-system"},"spec":{"range":"fd00::/64","allocations":{"9223372036854775807":{"id":"c","podref":"a/b"},"9223372036854775808":{}}}}`,
		`{"metadata":{"name":"p"},"spec":{"range":"10.9.0.7/24","allocations":{"-1":{},"4294967295":{},"2":{"podref":"a/b/c","ifname":7}}}}`,
		`{"metadata":{"name":"p"},"spec":{"range":"bogus","allocations":{"1":{"podref":"a/b"}}}}`, `{"metadata":{"name":"p"},"spec":{"allocations":[]}}`,
		`{"metadata":{"name":"p"},"spec":{"allocations":null,"range":5}}`, `{"metadata":{}}`, `{"metadata":{"name":"p"},"spec":[]}`,
	},
	blocks.WhereaboutsReservations: {
		`{"metadata":{"name":"storage-10.9.0.5","namespace":"kube-system"},"spec":{"containerid":"c","podref":"shop/db-0","ifname":"net1"}}`,
		`{"metadata":{"name":"fd00--1"},"spec":{"podref":""}}`, `{"metadata":{"name":"10.9.0.5"},"spec":{"podref":null,"containerid":5}}`, `{"metadata":{"name":"odd"}}`, `{"spec":{}}`,
	},
	blocks.NodeSlicePools: {
		`{"metadata":{"name":"storage","namespace":"kube-system"},"spec":{"range":"10.9.0.0/16","sliceSize":"/24"},"status":{"allocations":[{"nodeName":"n1","sliceRange":"10.9.0.0/24"},
		{"nodeName":"","sliceRange":"10.9.1.0/24"},{"nodeName":"n2","sliceRange":"x"},5]}}`,
		`{"metadata":{"name":"storage"},"status":{"allocations":null}}`, `{"metadata":{"name":"storage"},"status":{"allocations":{}}}`, `{"metadata":{"name":"storage"},"status":5}`,
	},
	blocks.NetworkAttachments: {
		`{"metadata":{"name":"storage","namespace":"shop"},"spec":{"config":"{\"cniVersion\":\"0.3.1\",\"name\":\"storage\",\"type\":\"macvlan\",\"ipam\":{\"type\":\"whereabouts\",\"range\":\"10.9.0.0/24\",\"exclude\":[\"10.9.0.0/30\",\"10.9.0.9\",\"z\"],\"network_name\":\"storage\",\"enable_overlapping_ranges\":false,\"node_slice_size\":\"/28\"}}"}}`,
		`{"metadata":{"name":"two","namespace":"shop"},"spec":{"config":"{\"plugins\":[{\"type\":\"bridge\",\"ipam\":{\"type\":\"whereabouts\",\"ipRanges\":[{\"range\":\"10.9.0.5-10.9.0.20/24\"},{\"range\":\"fd00::/64\",\"range_start\":\"fd00::5\",\"range_end\":\"fd00::9\"},{\"range\":\"q\"}]}}]}"}}`,
		`{"metadata":{"name":"other"},"spec":{"config":"{\"ipam\":{\"type\":\"host-local\",\"secret\":\"whereabouts\"}}"}}`, `{"metadata":{"name":"bad"},"spec":{"config":"whereabouts {"}}`,
		`{"metadata":{"name":"odd"},"spec":{"config":5}}`, `{"metadata":{"name":"none"},"spec":{}}`, `{"metadata":{"name":"none"},"spec":{"config":"not JSON"}}`, `{"spec":{}}`,
	},
	blocks.Pools: {
		`{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16","blockSize":26,"disabled":true,"nodeSelector":"a == 'b'","namespaceSelector":"has(x)",
		"allowedUses":["Workload","Tunnel",5],"assignmentMode":"Manual","ipipMode":"Always","vxlanMode":"Never","disableBGPExport":true},
		"status":{"conditions":[{"type":"Allocatable","status":"False","reason":"CIDROverlap","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		`{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16","ipip":{"enabled":true,"mode":"cross-subnet"}}}`,
		`{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16","ipip":null,"blockSize":"26"}}`, `{"metadata":{"name":"p"},"spec":{"cidr":"bogus"}}`,
		`{"metadata":{"name":"p"},"spec":{"cidr":"10.0.4.7/16"}}`, `{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16","blockSize":99}}`, `{"metadata":{"name":"p"},"spec":[]}`, `{"metadata":{"name":"p"}}`,
		`{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16"},"status":{"conditions":{"type":"Allocatable"}}}`,
	},
	blocks.Blocks: {
		`{"metadata":{"name":"10-0-0-0-30","managedFields":[{"time":"2026-01-01T00:00:00Z"}]},"spec":{"cidr":"10.0.0.0/30","affinity":"host:n1",
		"affinityClaimTime":"2026-01-01T00:00:00Z","allocations":[0,null,1,9],"unallocated":[1],"deleted":true,"strictAffinity":true,
		"attributes":[{"handle_id":"h","releasedAt":"2026-01-01T00:00:00Z","secondary":{"pod":"p","namespace":"n","node":"n1","type":"x","service":"s",
		"timestamp":"2026-01-01 00:00:00.5 +0000 UTC","vmi-name":"v","other":"kept"},"alternateOwnerAttrs":{"pod":"q","vmim-uid":"u","new":"x"}},{}],"sequenceNumber":18446744073709551615,
		"sequenceNumberForAllocation":{"0":1,"x":2,"2":18446744073709551615}}}`,
		`{"metadata":{"name":"10-0-0-0-30"},"spec":{"cidr":"10.0.0.0/30","affinity":5}}`, `{"metadata":{"name":"10-0-0-0-30"},"spec":{"cidr":7,"affinity":"host:n1"}}`,
		`{"metadata":{"name":"10-0-0-0-30"},"spec":{"cidr":"10.0.0.0/30","affinity":null,"allocations":["a",{}],"attributes":[5]}}`,
		`{"metadata":{"name":"10-0-0-0-30"},"spec":{"affinity":"odd"}}`, `{"metadata":{"name":"b"},"spec":null}`,
		`{"metadata":{"name":"10-0-0-0-30"},"spec":{"cidr":"10.0.0.0/30","affinity":"virtual:load-balancer","attributes":[{"secondary":{"pod":5}}],"allocations":[]}}`,
		`{"metadata":{"name":"10-0-0-0-30"},"spec":{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[null,null,null,null],"unallocated":[],"attributes":[],"sequenceNumber":1}}`,
	},
	blocks.Affinities: {
		`{"metadata":{"name":"n1-10-0-0-0-26","labels":{"projectcalico.org/hostname-hash":"h"}},"spec":{"cidr":"10.0.0.0/26","node":"n1","type":"host","state":"confirmed","deleted":"true"}}`,
		`{"metadata":{"name":"n1-10-0-0-0-26"},"spec":{"cidr":"x","node":"n1","deleted":true}}`, `{"metadata":{"name":"n1-10-0-0-0-26"},"spec":{"cidr":"10.0.0.0/26"}}`,
		`{"metadata":{"name":"x"},"spec":{"cidr":"10.0.0.0/26","node":["n1"],"type":5,"deleted":"perhaps"}}`, `{"metadata":{"name":"x"}}`,
		`{"metadata":{"name":"load-balancer-10-0-0-0-26"},"spec":{"cidr":"10.0.0.0/26","node":"load-balancer","type":"virtual"}}`,
	},
	blocks.Handles: {
		`{"metadata":{"name":"h"},"spec":{"handleID":"h","block":{"10.0.0.0/26":2,"x":1,"10.0.1.0/26":"1"},"deleted":false}}`,
		`{"metadata":{"name":"h"},"spec":{"handleID":5,"block":[]}}`, `{"metadata":{"name":"h"},"spec":{}}`, `{"metadata":{},"spec":{"handleID":"h"}}`,
	},
	blocks.Reservations: {
		`{"metadata":{"name":"r","annotations":{"calico-audit/consolidation":"run-1","x":"y"}},"spec":{"reservedCIDRs":["10.0.0.0/30","10.0.0.9","",null,"x",5]}}`, `{"metadata":{"name":"r"},"spec":{"reservedCIDRs":{}}}`,
	},
	blocks.IPAMConfigs: {
		`{"metadata":{"name":"default"},"spec":{"strictAffinity":true,"autoAllocateBlocks":null,"maxBlocksPerHost":3,"ipCooldownSeconds":30}}`,
		`{"metadata":{"name":"default"},"spec":{"strictAffinity":"yes"}}`, `{"metadata":{"name":"other"},"spec":{"strictAffinity":true}}`, `{"spec":{}}`,
	},
	blocks.ClusterInfos: {
		`{"metadata":{"name":"default"},"spec":{"clusterGUID":"g","calicoVersion":"v3.31.0","datastoreReady":false}}`,
		`{"metadata":{"name":"default"},"spec":{"clusterGUID":5}}`, `{"metadata":{"name":"default"},"spec":5}`,
	},
	blocks.ControllerConfig: {
		`{"metadata":{"name":"default"},"spec":{"controllers":{"node":{"leakGracePeriod":"5m"}}}}`,
		`{"metadata":{"name":"default"},"spec":{"controllers":{"node":{"leakGracePeriod":"soon"}}}}`, `{"metadata":{"name":"default"},"spec":{"controllers":{"node":null}}}`,
		`{"metadata":{"name":"default"},"spec":{"controllers":{"node":[],"loadBalancer":7}},"status":{"runningConfig":{"controllers":{"loadBalancer":[]}}}}`,
		`{"metadata":{"name":"default"},"spec":{"controllers":{"loadBalancer":{"assignIPs":"AllServices"}}},"status":{"environmentVars":{"ENABLED_CONTROLLERS":"node"},"runningConfig":{"logSeverityScreen":"Info","controllers":{"loadBalancer":{}}}}}`,
	},
	blocks.FelixConfigs: {
		`{"metadata":{"name":"default"},"spec":{"bpfEnabled":true,"programClusterRoutes":"Enabled","routeSource":"WorkloadIPs"}}`, `{"metadata":{"name":"node.x"},"spec":{"bpfEnabled":5}}`,
	},
	blocks.BGPConfigs: {
		`{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,"asNumber":"1.10"}}`, `{"metadata":{"name":"default"},"spec":{"asNumber":4294967296}}`, `{"metadata":{"name":"default"},"spec":{"asNumber":-5}}`,
		`{"metadata":{"name":"default"},"spec":{"asNumber":"x"}}`,
	},
	blocks.BGPPeers: {
		`{"metadata":{"name":"p"},"spec":{"node":"n1","nodeSelector":"has(x)","peerIP":"10.0.0.1:179","peerSelector":"all()","asNumber":64512,
		"localASNumber":"1.10","numAllowedLocalASNumbers":2,"reversePeering":"Manual","localWorkloadSelector":"app == 'bird'","filters":["f","g",5]}}`,
		`{"metadata":{"name":"p"},"spec":{"asNumber":"x"}}`, `{"metadata":{"name":"p"},"spec":{"filters":"f","localASNumber":5}}`,
		`{"metadata":{"name":"p"},"spec":{"filters":["f","g"],"localWorkloadSelector":"is odd","reversePeering":"Auto","numAllowedLocalASNumbers":2}}`,
	},
	blocks.BGPFilters: {
		`{"metadata":{"name":"f"},"spec":{"exportV4":[{"cidr":"10.0.0.0/8","matchOperator":"In","prefixLength":{"min":8,"max":32},"action":"Reject"},
		{"source":"RemotePeers","interface":"cali*","action":"Accept"},{"matchOperator":"Near","action":"Drop","source":"Moon"}],
		"importV4":[{"action":"Accept"}],"exportV6":[{"cidr":"fd00::/64","matchOperator":"NotIn","action":"Reject","prefixLength":{"min":null}}],"importV6":[{}]}}`,
		`{"metadata":{"name":"f"},"spec":{"exportV4":[{"cidr":"x"}]}}`, `{"metadata":{"name":"f"},"spec":{"exportV4":{},"importV6":[5]}}`,
		`{"metadata":{"name":"f"},"spec":{"importV4":[{"cidr":null,"prefixLength":{"min":"8"}}]}}`, `{"metadata":{},"spec":{}}`,
	},
}

// TestKeptIsWhatDecodersRead: a decoder decodes the saved form of an object to the same
// record as the object, even if values are invalid. The test fails for a field that a
// decoder reads but no mask keeps.
func TestKeptIsWhatDecodersRead(t *testing.T) {
	for _, k := range Kinds {
		if len(odd[k.Resource]) == 0 {
			t.Errorf("the table odd in keep_test.go has no object of %s: give it some, with each field that the decoder reads and with values of wrong kinds", k.Resource)
		}
		for _, text := range odd[k.Resource] {
			sameKept(t, k, []byte(text))
		}
	}
}

// TestDroppedElementsTakeNoSpace: of the lists of nearly every pod, no element is kept, so a snapshot
// has none of these lists.
func TestDroppedElementsTakeNoSpace(t *testing.T) {
	const pod = `{"metadata":{"name":"p","ownerReferences":[{"kind":"Acme","name":"a"}]},"spec":{"containers":[{"name":"c"}],"volumes":[{"name":"v"}]},"status":{"containerStatuses":[{"state":{"running":{}}}]}}`
	for _, n := range []*alias.Aliases{nil, alias.New()} {
		if kept := pods.AppendSaved(nil, GroupCRD, Object{Text: []byte(pod)}, n); bytes.Contains(kept, []byte("[]")) {
			t.Errorf("names anonymized: %t: kept is %s", n != nil, kept)
		}
	}
}

func sameKept(t *testing.T, k *Kind, text []byte) {
	t.Helper()
	for _, version := range []string{GroupCRD, GroupNative} {
		kept := k.AppendSaved(nil, version, Object{Text: text}, nil)
		if !json.Valid(kept) {
			t.Fatalf("%s is no JSON, from %s", kept, text)
		}
		want, got := decoded(k, version, text), decoded(k, version, kept)
		if d := cmp.Diff(NewSnapshot(want), NewSnapshot(got), equal, cmpopts.EquateComparable(blocks.Owner{})); d != "" {
			t.Errorf("%s\nof which is kept\n%s\ngives (-whole +kept):\n%s", text, kept, d)
		}
	}
}

func decoded(k *Kind, version string, text []byte) *Objects {
	p := NewObjects(k)
	var newest time.Time
	dump := k.Resource != blocks.Pods // a dump keeps all labels of pods
	d := &Decoder{Out: p, Strings: &SharedStrings{}, Native: version == GroupNative, Dump: dump, Newest: &newest}
	r := parse.New(text)
	k.JSON(d, r)
	return p
}

// FuzzKept searches for objects whose saved form decodes to another record, or whose
// anonymized form decodes less completely.
func FuzzKept(f *testing.F) {
	for i, k := range Kinds {
		for _, text := range odd[k.Resource] {
			f.Add(i, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, i int, text []byte) {
		k := Kinds[max(i, -i-1)%len(Kinds)]
		if len(text) == 0 || text[0] != '{' || !utf8.Valid(text) || parse.CheckSyntax(text, 1, 1) != nil {
			return // API servers store only UTF-8
		}
		sameKept(t, k, text)
		sameAnonymized(t, k, text)
	})
}

// sameAnonymized checks that an anonymized object decodes as completely as the original.
func sameAnonymized(t *testing.T, k *Kind, text []byte) {
	t.Helper()
	n := alias.New()
	n.Claimant = Claimant(text)
	k.AppendSaved(nil, GroupCRD, Object{Text: text}, n)
	n.EndCollecting()
	replaced := k.AppendSaved(nil, GroupCRD, Object{Text: text}, n)
	if !json.Valid(replaced) {
		t.Fatalf("%s is no JSON, from %s", replaced, text)
	}
	want, got := decoded(k, GroupCRD, text), decoded(k, GroupCRD, replaced)
	if d := cmp.Diff([]int{want.Len(), len(want.Gaps)}, []int{got.Len(), len(got.Gaps)}); d != "" {
		t.Errorf("%s\nanonymized\n%s\ngives other objects (-whole +anonymized):\n%s\n%v\n%v", text, replaced, d, want.Gaps, got.Gaps)
		return
	}
	for i := range want.Gaps {
		if a, b := want.Gaps[i], got.Gaps[i]; a.Resource != b.Resource || a.Whole() != b.Whole() || a.OwnerKnown != b.OwnerKnown || a.Prefix != b.Prefix {
			t.Errorf("%s\nanonymized\n%s\nhas the gap %+v, not %+v", text, replaced, b, a)
		}
	}
}

func TestAnonymizedIsUnderstoodAsFar(t *testing.T) {
	for _, k := range Kinds {
		for _, text := range odd[k.Resource] {
			sameAnonymized(t, k, []byte(text))
		}
	}
}

// TestKeptOfProtobuf: the saved form is the same for protobuf and JSON.
func TestKeptOfProtobuf(t *testing.T) {
	yes := true
	created, heartbeat := metaTime("2025-11-20T09:00:00Z"), metaTime("2025-11-20T10:00:00Z")
	meta := metav1.ObjectMeta{
		Name: "x", Namespace: "ns", UID: "u", ResourceVersion: "9", CreationTimestamp: created, DeletionTimestamp: &heartbeat,
		Labels: map[string]string{"app": "cart", "empty": "", "vm.kubevirt.io/name": "db"}, Finalizers: []string{"f"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "r"},
			{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "db", UID: "v"},
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set", UID: "s", Controller: &yes}},
		Annotations: map[string]string{"cni.projectcalico.org/podIP": "", "projectcalico.org/IPv4Address": "172.16.0.1/24", "other": "x",
			"k8s.v1.cni.cncf.io/network-status": `[{"name": "net1", "ips": ["10.9.0.1"]}]`, "cni.projectcalico.org/ipv4pools": "[\"a\\u003c\"]"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", Time: &heartbeat, Subresource: "status",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:x":{}}`)}, {Manager: "m"}},
	}
	pod := &corev1.Pod{ObjectMeta: meta,
		Spec: corev1.PodSpec{NodeName: "n1", HostNetwork: true, Tolerations: []corev1.Toleration{{Operator: "Exists"}, {Key: "a", Value: "v", Effect: "NoSchedule"}}, NodeSelector: map[string]string{"disk": "ssd"}, Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}, RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a", "b"}}, {Key: "gpu", Operator: "DoesNotExist"}}},
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n1"}}}}}}}}, Volumes: []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}, Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: "m", PodIP: "10.0.0.5", StartTime: &heartbeat,
			Conditions:        []corev1.PodCondition{{Type: "PodScheduled", Status: "True"}, {Type: "Ready", Status: "True", Message: "m", LastTransitionTime: heartbeat}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: heartbeat}}}, {Name: "d"}},
			PodIPs:            []corev1.PodIP{{IP: "10.0.0.5"}, {IP: "fd00::5"}}}}
	node := &corev1.Node{ObjectMeta: meta,
		Spec: corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "a", Value: "v", Effect: "NoExecute"}}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"pods": resource.MustParse("1k"), "cpu": resource.MustParse("4")},
			Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: heartbeat, Message: "m"}, {Type: "X"}},
			Addresses:  []corev1.NodeAddress{{Type: "Hostname", Address: "n"}, {Type: "InternalIP", Address: "10.9.0.1"}},
			NodeInfo:   corev1.NodeSystemInfo{OperatingSystem: "windows", MachineID: "m"}}}
	namespace := &corev1.Namespace{ObjectMeta: meta}
	type object interface{ Marshal() ([]byte, error) }
	for res, objects := range map[blocks.Resource][]object{
		blocks.Pods:       {pod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}},
		blocks.Nodes:      {node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}},
		blocks.Namespaces: {namespace, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}},
		blocks.VMs:        {&metav1.PartialObjectMetadata{ObjectMeta: meta}},
		blocks.VMInstances: {&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "x"}}}}},
	} {
		k := KindOf(res)
		for _, o := range objects {
			wire, err := o.Marshal()
			must(t, err)
			text, err := json.Marshal(o)
			must(t, err)
			fromWire := string(k.AppendSaved(nil, k.Version(""), Object{wire, true}, nil))
			fromText := string(k.AppendSaved(nil, k.Version(""), Object{Text: text}, nil))
			if d := cmp.Diff(compact(t, fromText), compact(t, fromWire)); d != "" {
				t.Errorf("%s (-json +protobuf):\n%s", res, d)
			}
		}
		if err := (&Decoder{Out: NewObjects(k), Strings: &SharedStrings{}}).One(Object{[]byte{0x0a, 0x05, 0x01}, true}); err == nil {
			t.Errorf("%s: a message that breaks off gives no error", res)
		}
	}
}

// compact returns an object without empty values.
func compact(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return withoutEmpty(v)
}

func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			x = withoutEmpty(x)
			if x == nil || x == false || x == "" && !strings.Contains(key, "/") && key != "empty" {
				delete(v, key)
				continue
			}
			v[key] = x
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
		if len(slices.DeleteFunc(slices.Clone(v), func(x any) bool { return x == nil })) == 0 {
			return nil
		}
	}
	return v
}
