package decode

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// class is the meaning of a value, which determines its anonymization.
type class = parse.Class

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
	classAsks
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
func plain(r class) bool { return r >= classNumber && r <= classByCIDR }

// categories are the alias kinds of plain names.
var categories = map[class]alias.Kind{
	classPod: alias.Pod, classNamespace: alias.Namespace, classPool: alias.Pool, classSandbox: alias.Sandbox,
	classReservation: "reservation", classPeer: "peer", classFilter: "filter", classService: "service", classVM: alias.VM,
	classNetwork: alias.Network, classUID: alias.UID, classGUID: "cluster",
}

// replacements anonymize strings of the other classes.
var replacements = map[class]func(*alias.Aliases, string) string{
	classAddresses: (*alias.Aliases).AddressList, classPoolCIDR: (*alias.Aliases).PoolCIDR, classNodeAddress: (*alias.Aliases).NodeAddress,
	classEndpoint: (*alias.Aliases).Endpoint, classAS: (*alias.Aliases).ASNumber,
	classWord: (*alias.Aliases).Word, classNode: (*alias.Aliases).Node, classTaint: (*alias.Aliases).Taint, classOwner: (*alias.Aliases).Owner,
	classHandle: (*alias.Aliases).Handle, classCIDRName: (*alias.Aliases).CIDRName, classAffinityName: (*alias.Aliases).AffinityName,
	classPoolList: (*alias.Aliases).PoolList, classAddressJSON: (*alias.Aliases).AddressJSON, classNetworks: networks, classAsks: asks, classPodRef: (*alias.Aliases).PodRef, classAttachment: attachment,
	classController: controllerName, classLabelKey: (*alias.Aliases).LabelKey, classLabelValue: (*alias.Aliases).Value, classLabelText: (*alias.Aliases).LabelText,
	classNodeSelector: (*alias.Aliases).Selector, classNamespaceSelector: (*alias.Aliases).Selector, classWorkloadSelector: (*alias.Aliases).Selector,
}

// anonymize anonymizes a string of a class. key is its key, if it is an entry of a map.
func anonymize(r class, n *alias.Aliases, key, s string) string {
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
		return kept(s, means(r, s))
	case classDefault:
		if s == DefaultName {
			return s
		}
		return n.Name("configuration", s)
	case classManager:
		return kept(s, s == blocks.FieldManager)
	case classRangeName:
		return n.RangeName(s)
	case classAddressName:
		return n.AddressName(s)
	default:
		return alias.Bad
	}
}

// controllerName keeps the prefix that tells a DaemonSet's network, because verdicts depend on it.
func controllerName(n *alias.Aliases, s string) string {
	prefix := blocks.NetworkPrefix(s)
	switch rest := strings.TrimPrefix(s[len(prefix):], "-"); {
	case prefix == "":
		return n.Name("controller", s)
	case rest == "":
		return prefix
	default:
		return prefix + "-" + n.Name("controller", rest)
	}
}

func kept(s string, ok bool) string {
	if ok {
		return s
	}
	return alias.Bad
}

// means reports whether a string is valid for its class.
func means(r class, s string) bool {
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

// anonymizeKey anonymizes the key of a map's entry.
func anonymizeKey(r class, n *alias.Aliases, s string) string {
	switch r {
	case classNone:
		return alias.Bad
	case classLabel:
		return n.LabelKey(s)
	case classQuantity:
		if strings.Contains(s, "/") { // an extended resource
			return n.LabelKey(s)
		}
		return s
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
