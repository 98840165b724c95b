package decode

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
)

// class is the meaning of a value, which determines its anonymization.
type class int

const (
	// classNone: dropped.
	classNone class = iota
	// classNumber, classBool, classQuantity: numbers and booleans, or strings in their
	// place. Kept.
	classNumber
	classBool
	classQuantity
	// classByOrdinal and classByCIDR: numbers by ordinal or CIDR. Kept.
	classByOrdinal
	classByCIDR
	// classTime, classDuration, classVersion: kept if valid.
	classTime
	classDuration
	classVersion
	// classAddresses: kept, except addresses of nodes and peers. classPoolCIDR: kept, like
	// the addresses in it.
	classAddresses
	classPoolCIDR
	// classNodeAddress, classEndpoint, classAS: replaced.
	classNodeAddress
	classEndpoint
	classAS
	// classWord: kept if it is in a fixed list of words, else replaced.
	classWord
	// classStub: only the presence of the value matters.
	classStub
	// classOwnerVersion is the API version of a KubeVirt owner.
	classOwnerVersion
	// classDefault is the name of an object that only counts if it is named "default".
	classDefault
	// classManager is a field manager, of interest only if it is this program.
	classManager
	// Names of one kind, which are replaced.
	classNode
	classPod
	classNamespace
	classPool
	classSandbox
	classReservation
	classPeer
	classFilter
	classService
	classVM
	classController
	classNetwork
	classTaint
	classUID
	classGUID
	// Strings that contain names.
	classOwner
	classHandle
	classCIDRName
	classAffinityName
	classPoolList
	classAddressJSON
	classNetworks
	classPodRef
	classRangeName
	classAddressName
	classAttachment
	classLabel
	classLabelKey
	classLabelValue
	classLabelText
	classNodeSelector
	classNamespaceSelector
	classWorkloadSelector
)

// plain reports whether a number or boolean is kept.
func (r class) plain() bool { return r >= classNumber && r <= classByCIDR }

// categories are the alias kinds of plain names.
var categories = map[class]alias.Kind{
	classPod: somePod, classNamespace: someNamespace, classPool: somePool, classSandbox: someSandbox,
	classReservation: "reservation", classPeer: "peer", classFilter: "filter", classService: "service", classVM: someVM,
	classController: "controller", classNetwork: someNetwork,
	classUID: alias.UID, classGUID: "cluster",
}

// replacements anonymize strings of the other classes.
var replacements = map[class]func(*Anonymizer, string) string{
	classAddresses: (*Anonymizer).addressList, classPoolCIDR: (*Anonymizer).poolCIDR, classNodeAddress: (*Anonymizer).nodeAddress,
	classEndpoint: (*Anonymizer).endpoint, classAS: (*Anonymizer).asNumber,
	classWord: (*Anonymizer).word, classNode: (*Anonymizer).node, classTaint: (*Anonymizer).taint, classOwner: (*Anonymizer).owner,
	classHandle: (*Anonymizer).handle, classCIDRName: (*Anonymizer).cidrName, classAffinityName: (*Anonymizer).affinityName,
	classPoolList: (*Anonymizer).poolList, classAddressJSON: (*Anonymizer).addressJSON, classNetworks: (*Anonymizer).networks, classPodRef: (*Anonymizer).podRef, classAttachment: (*Anonymizer).attachment,
	classLabelKey: (*Anonymizer).LabelKey, classLabelValue: (*Anonymizer).Value, classLabelText: (*Anonymizer).LabelText,
	classNodeSelector: (*Anonymizer).Selector, classNamespaceSelector: (*Anonymizer).Selector, classWorkloadSelector: (*Anonymizer).Selector,
}

const bad = alias.Bad

// words reveal nothing about a cluster's owner.
var words = []string{
	"Pending", "Running", "Succeeded", "Failed", "Unknown", "Completed", "True", "False", "Ready", "MemoryPressure",
	"DiskPressure", "PIDPressure", "NetworkUnavailable", "NoSchedule", "NoExecute", "PreferNoSchedule", "linux", "windows",
	"Update", "Apply", "status", "Workload", "Tunnel", "LoadBalancer", "Never", "Always", "CrossSubnet", "cross-subnet", "always",
	"Exists", "DoesNotExist", "Gt", "Lt", "Automatic", "Manual", "Enabled", "Disabled", "Allocatable", "CIDROverlap", "PoolDisabled", "Terminating", "OK",
	"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "Node", kindVM, kindVMI, "EnabledIPIPOnly", "CalicoIPAM", "WorkloadIPs", "Auto", string(apiv3.Accept), string(apiv3.Reject),
	string(apiv3.Equal), string(apiv3.NotEqual), string(apiv3.In), string(apiv3.NotIn), string(apiv3.BGPFilterSourceRemotePeers),
	string(blocks.Pending), string(blocks.Confirmed), string(blocks.PendingDeletion), string(blocks.HostOwner), string(blocks.VirtualOwner),
	blocks.TypeIPIP, blocks.TypeVXLAN, blocks.TypeVXLANv6, blocks.TypeWireguard, blocks.TypeWireguardV6,
}

// text anonymizes a string. key is its key, if it is an entry of a map.
func (n *Anonymizer) text(r class, key, s string) string {
	if r == classLabel {
		return n.LabelValue(key, s)
	}
	if s == "" {
		return ""
	}
	if c, ok := categories[r]; ok {
		return n.Name(c, s)
	}
	if replaced := replacements[r]; replaced != nil {
		return replaced(n, s)
	}
	switch r {
	case classBool, classQuantity, classTime, classDuration, classVersion, classOwnerVersion:
		return kept(s, r.means(s))
	case classDefault:
		return kept(s, s == DefaultName)
	case classManager:
		return kept(s, s == blocks.FieldManager)
	case classRangeName:
		return n.networkOf(s, isRangeName)
	case classAddressName:
		return n.networkOf(s, isAddressName)
	default:
		return bad
	}
}

func kept(s string, ok bool) string {
	if ok {
		return s
	}
	return bad
}

// means reports whether a string is valid for its class.
func (r class) means(s string) bool {
	var err error
	switch r {
	case classBool:
		_, err = strconv.ParseBool(s)
	case classQuantity:
		_, err = resource.ParseQuantity(s)
	case classTime:
		if _, err = time.Parse(time.RFC3339, s); err != nil {
			return !blocks.ParseGoTime(s).IsZero()
		}
	case classDuration:
		_, err = time.ParseDuration(s)
	case classVersion:
		return len(s) < 64 && s[0] == 'v'
	case classOwnerVersion:
		group, version, _ := strings.Cut(s, "/")
		return group == groupVM && strings.Trim(version, "abehlptv0123456789") == "" // v1, v1alpha3
	default:
		return false
	}
	return err == nil
}

// key anonymizes the key of a map's entry.
func (n *Anonymizer) key(r class, s string) string {
	switch r {
	case classNone:
		return bad
	case classLabel:
		return n.LabelKey(s)
	case classByOrdinal:
		_, err := strconv.ParseInt(s, 10, 64)
		return kept(s, err == nil)
	case classByCIDR:
		_, ok := blocks.ParseCIDR(s)
		return kept(s, ok)
	default:
		return s
	}
}

func (n *Anonymizer) word(s string) string {
	if slices.Contains(words, s) || strings.Trim(s, "0123456789") == "" {
		return s
	}
	return n.Name("word", s)
}

// loadBalancer owns the blocks of LoadBalancer services, under this name in every cluster.
const loadBalancer = "load-balancer"

func (n *Anonymizer) node(s string) string {
	if s == loadBalancer {
		return s
	}
	return n.Name(someNode, s)
}

func (n *Anonymizer) taint(s string) string {
	if strings.HasPrefix(s, "node.kubernetes.io/") || slices.Contains(alias.PlainLabels, s) {
		return s
	}
	return n.Name("taint", s)
}

// cidrName keeps a name made from a CIDR, like a block's.
func (n *Anonymizer) cidrName(s string) string {
	if blocks.PrefixOfName(s).IsValid() {
		return s
	}
	return n.Name("block", s)
}

// owner anonymizes the name in a block's affinity.
func (n *Anonymizer) owner(s string) string {
	kind, name, found := strings.Cut(s, ":")
	if !found {
		return n.node(s)
	}
	return n.word(kind) + ":" + n.node(name)
}

// affinityName anonymizes the node in an affinity's name, which consists of node and CIDR.
func (n *Anonymizer) affinityName(s string) string {
	for _, node := range []string{n.Claimant, strings.ToLower(n.Claimant)} {
		if cidr, ok := strings.CutPrefix(s, node+"-"); ok && node != "" && blocks.PrefixOfName(cidr).IsValid() {
			return n.node(node) + "-" + cidr
		}
	}
	return n.Name("affinity", s)
}

// poolList anonymizes the names in a JSON list of pools, and keeps CIDRs.
func (n *Anonymizer) poolList(s string) string {
	var pools []string
	if json.Unmarshal([]byte(s), &pools) != nil {
		return bad
	}
	for i, p := range pools {
		if _, err := netip.ParsePrefix(p); err != nil {
			pools[i] = n.Name(somePool, p)
		}
	}
	out, _ := json.Marshal(pools) // strings always marshal
	return string(out)
}
