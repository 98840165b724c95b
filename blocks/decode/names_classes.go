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

// class is what a value means, which decides how it is anonymized.
type class int

const (
	// classNone: left out.
	classNone class = iota
	// classNumber, classBool, classQuantity: what Kubernetes writes as a number or
	// boolean, or as a text that stands for one. Kept.
	classNumber
	classBool
	classQuantity
	// classByOrdinal and classByCIDR: numbers by ordinal or CIDR. Kept.
	classByOrdinal
	classByCIDR
	// classTime, classDuration, classVersion: kept if they are what they should be.
	classTime
	classDuration
	classVersion
	// classAddresses: kept but for those of nodes and peers. classPoolCIDR: kept, with
	// what lies in it.
	classAddresses
	classPoolCIDR
	// classNodeAddress, classEndpoint, classAS: replaced.
	classNodeAddress
	classEndpoint
	classAS
	// classWord is one of a few words; others are replaced.
	classWord
	// classStub is a value of which only the presence matters.
	classStub
	// classOwnerVersion is the API version of an owner of KubeVirt's.
	classOwnerVersion
	// classDefault is the name of an object of which the one named "default"
	// counts.
	classDefault
	// classManager is who wrote an object, of whom only this program counts.
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
	// Texts with names in them.
	classOwner
	classHandle
	classCIDRName
	classAffinityName
	classPoolList
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

// plain reports whether a number or boolean in place of a text is kept.
func (r class) plain() bool { return r >= classNumber && r <= classByCIDR }

// categories are the roles of plain names.
var categories = map[class]alias.Kind{
	classPod: somePod, classNamespace: someNamespace, classPool: somePool, classSandbox: someSandbox,
	classReservation: "reservation", classPeer: "peer", classFilter: "filter", classService: "service", classVM: someVM,
	classController: "controller", classNetwork: someNetwork,
	classUID: alias.UID, classGUID: "cluster",
}

// replacements return what stands for a text of the other classes.
var replacements = map[class]func(*Anonymizer, string) string{
	classAddresses: (*Anonymizer).addressList, classPoolCIDR: (*Anonymizer).poolCIDR, classNodeAddress: (*Anonymizer).nodeAddress,
	classEndpoint: (*Anonymizer).endpoint, classAS: (*Anonymizer).asNumber,
	classWord: (*Anonymizer).word, classNode: (*Anonymizer).node, classTaint: (*Anonymizer).taint, classOwner: (*Anonymizer).owner,
	classHandle: (*Anonymizer).handle, classCIDRName: (*Anonymizer).cidrName, classAffinityName: (*Anonymizer).affinityName,
	classPoolList: (*Anonymizer).poolList, classNetworks: (*Anonymizer).networks, classPodRef: (*Anonymizer).podRef, classAttachment: (*Anonymizer).attachment,
	classLabelKey: (*Anonymizer).LabelKey, classLabelValue: (*Anonymizer).Value, classLabelText: (*Anonymizer).LabelText,
	classNodeSelector: (*Anonymizer).Selector, classNamespaceSelector: (*Anonymizer).Selector, classWorkloadSelector: (*Anonymizer).Selector,
}

const bad = alias.Bad

// words are the words that tell nothing about a cluster's owner.
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

// text returns what stands for a text in an anonymized snapshot; key is that of
// the map it stands in.
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

// means reports whether a text is of the kind that its class says.
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

// key returns what stands for the key of an entry of a map.
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

// loadBalancer is the owner of the blocks of LoadBalancer services, which is the
// same in every cluster.
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

// cidrName keeps a name that is made of a CIDR, as a block's is.
func (n *Anonymizer) cidrName(s string) string {
	if blocks.PrefixOfName(s).IsValid() {
		return s
	}
	return n.Name("block", s)
}

// owner replaces the name in a block's affinity.
func (n *Anonymizer) owner(s string) string {
	kind, name, found := strings.Cut(s, ":")
	if !found {
		return n.node(s)
	}
	return n.word(kind) + ":" + n.node(name)
}

// affinityName replaces the node in an affinity's name, which is made of node and
// CIDR.
func (n *Anonymizer) affinityName(s string) string {
	for _, node := range []string{n.Claimant, strings.ToLower(n.Claimant)} {
		if cidr, ok := strings.CutPrefix(s, node+"-"); ok && node != "" && blocks.PrefixOfName(cidr).IsValid() {
			return n.node(node) + "-" + cidr
		}
	}
	return n.Name("affinity", s)
}

// poolList replaces the names in a JSON list of pools, and keeps CIDRs.
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
	out, _ := json.Marshal(pools) // texts always can be
	return string(out)
}
