package keep

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/multus"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// Class is the meaning of a value, which determines its anonymization.
type Class = parse.Class

// The classes.
const (
	None Class = iota // dropped

	// Kept: numbers and booleans, or strings in their place.
	Number
	Bool
	Quantity
	ByOrdinal // numbers by ordinal
	ByCIDR    // numbers by CIDR

	// Kept if valid.
	Time
	Duration
	Version

	Addresses    // kept, except addresses of nodes and peers
	PoolCIDR     // kept, like the addresses in it
	NodeAddress  // replaced
	Endpoint     // replaced
	AS           // replaced
	Word         // kept if it is in a fixed list of words, else replaced
	Stub         // only the presence of the value matters
	OwnerVersion // API version of a KubeVirt owner
	Default      // name of an object that only counts if it is named "default"
	Manager      // field manager, of interest only if it is this program

	// Replaced: names of one kind.
	Node
	Pod
	Namespace
	Pool
	Sandbox
	Reservation
	Peer
	Filter
	Service
	VM
	Controller
	Network
	Taint
	UID
	GUID

	// Strings that contain names.
	Owner
	Handle
	CIDRName
	AffinityName
	PoolList
	AddressJSON
	Networks
	Asks
	PodRef
	RangeName
	AddressName
	Attachment
	Label
	LabelKey
	LabelValue
	LabelText
	NodeSelector
	NamespaceSelector
	WorkloadSelector
)

// plain reports whether a number or boolean is kept.
func plain(r Class) bool { return r >= Number && r <= ByCIDR }

// categories are the alias kinds of plain names.
var categories = map[Class]alias.Kind{
	Pod: alias.Pod, Namespace: alias.Namespace, Pool: alias.Pool, Sandbox: alias.Sandbox,
	Reservation: "reservation", Peer: "peer", Filter: "filter", Service: "service", VM: alias.VM,
	Network: alias.Network, UID: alias.UID, GUID: "cluster",
}

// replacements anonymize strings of the other classes.
var replacements = map[Class]func(*alias.Aliases, string) string{
	Addresses: (*alias.Aliases).AddressList, PoolCIDR: (*alias.Aliases).PoolCIDR, NodeAddress: (*alias.Aliases).NodeAddress,
	Endpoint: (*alias.Aliases).Endpoint, AS: (*alias.Aliases).ASNumber,
	Word: (*alias.Aliases).Word, Node: (*alias.Aliases).Node, Taint: (*alias.Aliases).Taint, Owner: (*alias.Aliases).Owner,
	Handle: (*alias.Aliases).Handle, CIDRName: (*alias.Aliases).CIDRName, AffinityName: (*alias.Aliases).AffinityName,
	PoolList: (*alias.Aliases).PoolList, AddressJSON: (*alias.Aliases).AddressJSON, Networks: multus.AnonymizeStatus, Asks: multus.AnonymizeAsks, PodRef: (*alias.Aliases).PodRef, Attachment: multus.AnonymizeConfig,
	Controller: controllerName, LabelKey: (*alias.Aliases).LabelKey, LabelValue: (*alias.Aliases).Value, LabelText: (*alias.Aliases).LabelText,
	NodeSelector: (*alias.Aliases).Selector, NamespaceSelector: (*alias.Aliases).Selector, WorkloadSelector: (*alias.Aliases).Selector,
}

// anonymize anonymizes a string of a class. key is its key, if it is an entry of a map.
func anonymize(r Class, n *alias.Aliases, key, s string) string {
	if r == Label {
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
	case Bool, Quantity, Time, Duration, Version, OwnerVersion:
		return alias.Kept(s, means(r, s))
	case Default:
		if s == blocks.DefaultName {
			return s
		}
		return n.Name("configuration", s)
	case Manager:
		return alias.Kept(s, s == blocks.FieldManager)
	case RangeName:
		return n.RangeName(s)
	case AddressName:
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

// means reports whether a string is valid for its class.
func means(r Class, s string) bool {
	var err error
	switch r {
	case Bool:
		_, err = strconv.ParseBool(s)
	case Quantity:
		_, err = resource.ParseQuantity(s)
	case Time:
		if _, err = time.Parse(time.RFC3339, s); err != nil {
			return !blocks.ParseGoTime(s).IsZero()
		}
	case Duration:
		_, err = time.ParseDuration(s)
	case Version:
		return len(s) < 64 && s[0] == 'v'
	case OwnerVersion:
		group, version, _ := strings.Cut(s, "/")
		return group == blocks.GroupKubeVirt && strings.Trim(version, "abehlptv0123456789") == "" // v1, v1alpha3
	default:
		return false
	}
	return err == nil
}

// anonymizeKey anonymizes the key of a map's entry.
func anonymizeKey(r Class, n *alias.Aliases, s string) string {
	switch r {
	case None:
		return alias.Bad
	case Label:
		return n.LabelKey(s)
	case Quantity:
		if strings.Contains(s, "/") { // an extended resource
			return n.LabelKey(s)
		}
		return s
	case ByOrdinal:
		_, err := strconv.ParseInt(s, 10, 64)
		return alias.Kept(s, err == nil)
	case ByCIDR:
		_, ok := blocks.ParseCIDR(s)
		return alias.Kept(s, ok)
	default:
		return s
	}
}
