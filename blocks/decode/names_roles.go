package decode

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
)

// role is what a value means, which decides how it is anonymized.
type role int

const (
	// roleNone: left out.
	roleNone role = iota
	// roleNumber, roleBool, roleQuantity: what Kubernetes writes as a number or
	// boolean, or as a text that stands for one. Kept.
	roleNumber
	roleBool
	roleQuantity
	// roleByOrdinal and roleByCIDR: numbers by ordinal or CIDR. Kept.
	roleByOrdinal
	roleByCIDR
	// roleTime, roleDuration, roleVersion: kept if they are what they should be.
	roleTime
	roleDuration
	roleVersion
	// roleAddresses: kept but for those of nodes and peers. rolePoolCIDR: kept, with
	// what lies in it.
	roleAddresses
	rolePoolCIDR
	// roleNodeAddress, roleEndpoint, roleAS: replaced.
	roleNodeAddress
	roleEndpoint
	roleAS
	// roleWord is one of a few words; others are replaced.
	roleWord
	// roleStub is a value of which only the presence matters.
	roleStub
	// roleOwnerVersion is the API version of an owner of KubeVirt's.
	roleOwnerVersion
	// roleDefault is the name of an object of which the one named "default"
	// counts.
	roleDefault
	// roleManager is who wrote an object, of whom only this program counts.
	roleManager
	// Names of one kind, which are replaced.
	roleNode
	rolePod
	roleNamespace
	rolePool
	roleSandbox
	roleReservation
	rolePeer
	roleFilter
	roleService
	roleVM
	roleController
	roleNetwork
	roleTaint
	roleUID
	roleGUID
	// Texts with names in them.
	roleOwner
	roleHandle
	roleCIDRName
	roleAffinityName
	rolePoolList
	roleNetworks
	rolePodRef
	roleRangeName
	roleAddressName
	roleAttachment
	roleLabel
	roleLabelKey
	roleLabelValue
	roleLabelText
	roleNodeSelector
	roleNamespaceSelector
	roleWorkloadSelector
)

// plain tells whether a number or boolean in place of a text is kept.
func (r role) plain() bool { return r >= roleNumber && r <= roleByCIDR }

// categories are the roles of plain names.
var categories = map[role]alias.Kind{
	rolePod: somePod, roleNamespace: someNamespace, rolePool: somePool, roleSandbox: someSandbox,
	roleReservation: someReservation, rolePeer: somePeer, roleFilter: someFilter, roleService: someService, roleVM: someVM,
	roleController: someController, roleNetwork: someNetwork,
	roleUID: alias.UID, roleGUID: someCluster,
}

const bad = alias.Bad

// words are the words that tell nothing about a cluster's owner.
var words = []string{
	"Pending", "Running", "Succeeded", "Failed", "Unknown", "Completed", "True", "False", "Ready", "MemoryPressure",
	"DiskPressure", "PIDPressure", "NetworkUnavailable", "NoSchedule", "NoExecute", "PreferNoSchedule", "linux", "windows",
	"Update", "Apply", "status", "Workload", "Tunnel", "LoadBalancer", "Never", "Always", "CrossSubnet", "cross-subnet", "always",
	"Exists", "DoesNotExist", "Gt", "Lt", "Automatic", "Manual", "Enabled", "Disabled", "Allocatable", "CIDROverlap", "PoolDisabled", "Terminating", "OK",
	"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "Node", kindVM, kindVMI, "EnabledIPIPOnly", "CalicoIPAM", "WorkloadIPs", "Auto", blocks.FilterAccept, blocks.FilterReject,
	blocks.FilterEqual, blocks.FilterNotEqual, blocks.FilterIn, blocks.FilterNotIn, blocks.FilterRemotePeers,
	string(blocks.Pending), string(blocks.Confirmed), string(blocks.PendingDeletion), string(blocks.HostOwner), string(blocks.VirtualOwner),
	blocks.TypeIPIP, blocks.TypeVXLAN, blocks.TypeVXLANv6, blocks.TypeWireguard, blocks.TypeWireguardV6,
}

// text returns what stands for a text in an anonymized snapshot; key is that of
// the map it stands in.
func (n *Anonymizer) text(r role, key, s string) string {
	if r == roleLabel {
		return n.LabelValue(key, s)
	}
	if s == "" {
		return ""
	}
	if c, ok := categories[r]; ok {
		return n.Name(c, s)
	}
	switch r {
	case roleBool, roleQuantity, roleTime, roleDuration, roleVersion, roleOwnerVersion:
		return kept(s, r.means(s))
	case roleAddresses:
		return n.addressList(s)
	case rolePoolCIDR:
		return n.poolCIDR(s)
	case roleNodeAddress:
		return n.nodeAddress(s)
	case roleEndpoint:
		return n.endpoint(s)
	case roleAS:
		return n.asNumber(s)
	case roleWord:
		return n.word(s)
	case roleDefault:
		return kept(s, s == DefaultName)
	case roleManager:
		return kept(s, s == blocks.FieldManager)
	case roleNode:
		return n.node(s)
	case roleTaint:
		if strings.HasPrefix(s, "node.kubernetes.io/") || slices.Contains(alias.PlainLabels, s) {
			return s
		}
		return n.Name(someTaint, s)
	case roleOwner:
		return n.owner(s)
	case roleHandle:
		return n.handle(s)
	case roleCIDRName:
		if blocks.PrefixOfName(s).IsValid() {
			return s
		}
		return n.Name(someBlock, s)
	case roleAffinityName:
		return n.affinityName(s)
	case rolePoolList:
		return n.poolList(s)
	case roleNetworks:
		return n.networks(s)
	case rolePodRef:
		return n.podRef(s)
	case roleRangeName:
		return n.networkOf(s, isRangeName)
	case roleAddressName:
		return n.networkOf(s, isAddressName)
	case roleAttachment:
		return n.attachment(s)
	case roleLabelKey:
		return n.LabelKey(s)
	case roleLabelValue:
		return n.Value(s)
	case roleLabelText:
		return n.LabelText(s)
	case roleNodeSelector, roleNamespaceSelector, roleWorkloadSelector:
		return n.Selector(s)
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

// means tells whether a text is of the kind that its role says.
func (r role) means(s string) bool {
	var err error
	switch r {
	case roleBool:
		_, err = strconv.ParseBool(s)
	case roleQuantity:
		_, err = resource.ParseQuantity(s)
	case roleTime:
		if _, err = time.Parse(time.RFC3339, s); err != nil {
			return !blocks.ParseGoTime(s).IsZero()
		}
	case roleDuration:
		_, err = time.ParseDuration(s)
	case roleVersion:
		return len(s) < 64 && s[0] == 'v'
	case roleOwnerVersion:
		group, version, _ := strings.Cut(s, "/")
		return group == groupVM && strings.Trim(version, "abehlptv0123456789") == "" // v1, v1alpha3
	default:
		return false
	}
	return err == nil
}

// key returns what stands for the key of an entry of a map.
func (n *Anonymizer) key(r role, s string) string {
	switch r {
	case roleNone:
		return bad
	case roleLabel:
		return n.LabelKey(s)
	case roleByOrdinal:
		_, err := strconv.ParseInt(s, 10, 64)
		return kept(s, err == nil)
	case roleByCIDR:
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
	return n.Name(someWord, s)
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
	return n.Name(someAffinity, s)
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
