package decode

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/projectcalico/api/pkg/lib/numorstring"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/blocks/decode/podspec"
)

// Calico's annotations on nodes (libcalico-go backend/k8s/resources/node.go).
const (
	annotationCalicoLabels = "projectcalico.org/labels"
	annotationASNumber     = "projectcalico.org/ASNumber"
	annotationRRClusterID  = "projectcalico.org/RouteReflectorClusterID"
	annotationFlannel      = "flannel.alpha.coreos.com/backend-type"
	annotationFlannelIP    = "flannel.alpha.coreos.com/public-ip"
)

var nodeAddressAnnotations = []string{
	"projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address",
}

// tunnelAnnotations maps the annotations with a node's tunnel addresses to allocation
// types. IPIP exists only for IPv4.
var tunnelAnnotations = map[string]string{
	"projectcalico.org/IPv4IPIPTunnelAddr":         blocks.TypeIPIP,
	"projectcalico.org/IPv4VXLANTunnelAddr":        blocks.TypeVXLAN,
	"projectcalico.org/IPv6VXLANTunnelAddr":        blocks.TypeVXLANv6,
	"projectcalico.org/IPv4WireguardInterfaceAddr": blocks.TypeWireguard,
	"projectcalico.org/IPv6WireguardInterfaceAddr": blocks.TypeWireguardV6,
}

// wireguardAnnotations maps the annotations with a node's WireGuard keys to the allocation types of
// the devices.
var wireguardAnnotations = map[string]string{
	"projectcalico.org/WireguardPublicKey":   blocks.TypeWireguard,
	"projectcalico.org/WireguardPublicKeyV6": blocks.TypeWireguardV6,
}

var nodes = describe(Kind{
	Resource: blocks.Nodes, Names: []string{"Node"}, Core: true, Absent: always("no Node in the files"), LeftOut: blocks.NodeLeftOut,
	keeps: parse.Object("", 0,
		keep.Meta(keep.Node, true, keep.AllLabels, keep.Annotations(nodeAnnotationClasses())),
		parse.Object("spec", 2,
			&parse.Mask{Key: "unschedulable", Num: 4, Schema: parse.SchemaBool, Class: keep.Number},
			parse.List("taints", 5, parse.Object("", 0, parse.Value("key", 1, keep.Taint), parse.Value("value", 2, keep.LabelValue), parse.Value("effect", 3, keep.Word))),
			parse.List("podCIDRs", 7, parse.Value("", 7, keep.Addresses))),
		parse.Object("status", 3,
			allocatableMask,
			parse.List("conditions", 4, parse.Object("", 0, parse.Value("type", 1, keep.Word), parse.Value("status", 2, keep.Word))),
			&parse.Mask{Key: "addresses", Num: 5, Schema: parse.SchemaList, Parts: []*parse.Mask{nodeIP}, By: map[string]*parse.Mask{string(corev1.NodeInternalIP): nodeIP}},
			parse.Object("nodeInfo", 7, parse.Value("operatingSystem", 9, keep.Word)))),
}, descriptor[blocks.Node]{
	json: (*Decoder).node,
	in:   func(s *blocks.Snapshot) *[]blocks.Node { return &s.Nodes },
})

func nodeAnnotationClasses() map[string]keep.Class {
	classes := map[string]keep.Class{
		annotationCalicoLabels: keep.LabelText, annotationASNumber: keep.AS, annotationRRClusterID: keep.Addresses,
		blocks.OursAnnotation: keep.Stub, annotationFlannel: keep.Stub, annotationFlannelIP: keep.Addresses,
	}
	for _, a := range nodeAddressAnnotations {
		classes[a] = keep.NodeAddress
	}
	for a := range tunnelAnnotations {
		classes[a] = keep.Addresses
	}
	for a := range wireguardAnnotations {
		classes[a] = keep.Stub
	}
	return classes
}

// node decodes a Kubernetes node. Invalid annotations are ignored, as in Calico, but
// recorded as gaps.
func (d *Decoder) node(r *parse.Reader, n *blocks.Node) bool {
	var calico map[string]string // labels of Calico's Node resource
	label := d.labels(&n.Labels)
	d.object(r, &n.Meta, metaHooks{
		label: func(key, value []byte) {
			label(key, value)
			if string(key) == "kubernetes.io/os" || string(key) == "beta.kubernetes.io/os" {
				n.Windows = n.Windows || string(value) == "windows"
			}
		},
		annotation: func(key, value []byte) {
			if string(key) != annotationCalicoLabels || len(value) == 0 {
				d.nodeAnnotation(r, n, key, value)
			} else if err := json.Unmarshal(value, &calico); err != nil {
				r.Fault("is not a JSON object of texts")
			}
		},
		wrote: func(manager []byte, at blocks.Time) {
			if string(manager) == blocks.FieldManager && at.After(n.OursSince) {
				n.OursSince = at
			}
		},
	}, r.Known(parse.Members{"unschedulable": &n.Unschedulable, "taints": func() { d.taints(r, n) },
		"podCIDRs": func() {
			r.Array(func(int) {
				s, _ := r.Bytes()
				p, ok := blocks.ParseNetwork(string(s))
				if n.PodCIDRs = append(n.PodCIDRs, p.Masked()); !ok {
					r.Fault(parse.NotA("CIDR", s))
				}
			})
		},
	}), r.Known(parse.Members{
		"allocatable": func() { n.Allocatable = d.Strings.allocatable(r) },
		"conditions": func() {
			d.conditions(r, func(kind, status, _ []byte, _ blocks.Time) {
				if string(kind) == "Ready" {
					n.Ready = string(status) == "True"
					n.NotReady = len(status) > 0 && !n.Ready // an unreadable status is neither
				}
			})
		},
		"addresses": func() { n.InternalIPs = internalIPs(r) },
		"nodeInfo": func() {
			system := ""
			r.Fields(parse.Members{"operatingSystem": &system})
			n.Windows = n.Windows || system == "windows"
		},
	}))
	// Calico merges its own labels with those of Kubernetes, which take precedence
	// (libcalico-go backend/k8s/resources/node.go, mergeCalicoAndK8sLabels).
	for k, v := range calico {
		if _, ok := n.Labels[k]; !ok {
			label([]byte(k), []byte(v))
		}
	}
	slices.SortFunc(n.Tunnels, func(a, b blocks.Tunnel) int { return a.Addr.Compare(b.Addr) })
	slices.Sort(n.Wireguard)
	slices.SortFunc(n.Addresses, blocks.ComparePrefixes)
	slices.SortFunc(n.InternalIPs, netip.Addr.Compare)
	slices.SortFunc(n.PodCIDRs, blocks.ComparePrefixes)
	slices.SortFunc(n.Taints, blocks.Taint.Compare)
	n.NoSpec = d.Dump && !d.hasSpec
	return d.whole(r, &n.Meta, anywhere)
}

func (d *Decoder) nodeAnnotation(r *parse.Reader, n *blocks.Node, key, value []byte) {
	if len(value) == 0 {
		return
	}
	if kind, ok := tunnelAnnotations[string(key)]; ok {
		if a, ok := blocks.ParseAddr(string(value)); ok {
			n.Tunnels = append(n.Tunnels, blocks.Tunnel{Type: kind, Addr: a})
		} else {
			r.Fault(parse.NotA("address", value))
		}
		return
	}
	if kind, ok := wireguardAnnotations[string(key)]; ok {
		n.Wireguard = append(n.Wireguard, kind)
		return
	}
	if slices.Contains(nodeAddressAnnotations, string(key)) {
		if p, ok := blocks.ParseNodeAddress(string(value)); ok {
			n.Addresses = append(n.Addresses, p)
		} else {
			r.Fault(parse.NotA("CIDR", value))
		}
		return
	}
	switch string(key) {
	case annotationASNumber:
		as, err := numorstring.ASNumberFromString(string(value))
		if n.ASNumber = uint32(as); err != nil {
			r.Fault(parse.NotA("AS number", value))
		}
	case blocks.OursAnnotation:
		n.Ours = d.str(value)
	case annotationFlannel:
		n.Flannel = true
	case annotationFlannelIP:
		n.FlannelIP, _ = netip.ParseAddr(string(value)) // flannel's own matter, so no fault
	case annotationRRClusterID:
		n.RouteReflectorID = d.str(value)
	}
}

// nodeIP keeps an entry of status.addresses.
var nodeIP = parse.Object("", 0, parse.Value("type", 1, keep.Word), parse.Value("address", 2, keep.NodeAddress))

// internalIPs decodes the internal addresses in status.addresses. It ignores entries that are
// not addresses.
func internalIPs(r *parse.Reader) (out []netip.Addr) {
	r.Array(func(int) {
		kind, address := "", ""
		r.Fields(parse.Members{"type": &kind, "address": &address})
		if a, ok := blocks.ParseAddr(address); ok && kind == string(corev1.NodeInternalIP) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	})
	return out
}

func (d *Decoder) taints(r *parse.Reader, n *blocks.Node) {
	r.Array(func(int) {
		var taint blocks.Taint
		r.Fields(parse.Members{"key": &taint.Key, "value": &taint.Value, "effect": &taint.Effect})
		n.OutOfService = n.OutOfService || taint.Key == blocks.TaintOutOfService
		if taint.Effect == "NoSchedule" || taint.Effect == "NoExecute" {
			n.Taints = append(n.Taints, taint)
		}
	})
}

var allocatableMask = quantities("allocatable", 2)

// allocatable decodes status.allocatable, shared by all nodes with equal resources.
func (s *SharedStrings) allocatable(r *parse.Reader) blocks.Quantities {
	var list corev1.ResourceList
	text := keep.Append(nil, r, allocatableMask, nil)
	if err := json.Unmarshal(text, &list); err != nil {
		r.Fault("has an entry that cannot be parsed")
	}
	return shared(s, &s.resources, text, func() blocks.Quantities { return podspec.Quantities(list) })
}
