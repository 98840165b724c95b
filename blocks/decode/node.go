package decode

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/calico-audit/calico-audit/blocks"
)

// Calico's annotations on nodes (libcalico-go backend/k8s/resources/node.go).
const (
	annotationCalicoLabels = "projectcalico.org/labels"
	annotationASNumber     = "projectcalico.org/ASNumber"
	annotationRRClusterID  = "projectcalico.org/RouteReflectorClusterID"
)

var nodeAddressAnnotations = []string{
	"projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address",
}

// tunnelAnnotations name a node's tunnel addresses, of both families, and the
// type of their allocations. IPIP exists for IPv4 alone.
var tunnelAnnotations = map[string]string{
	"projectcalico.org/IPv4IPIPTunnelAddr":         blocks.TypeIPIP,
	"projectcalico.org/IPv4VXLANTunnelAddr":        blocks.TypeVXLAN,
	"projectcalico.org/IPv6VXLANTunnelAddr":        blocks.TypeVXLANv6,
	"projectcalico.org/IPv4WireguardInterfaceAddr": blocks.TypeWireguard,
	"projectcalico.org/IPv6WireguardInterfaceAddr": blocks.TypeWireguardV6,
}

var nodes = describe(Kind{
	Resource: blocks.Nodes, Names: []string{"Node"}, Core: true,
	keeps: object("", 0,
		metaMask(roleNode, true, allLabels, annotations(nodeAnnotationRoles())),
		object("spec", 2,
			&fieldMask{key: "unschedulable", num: 4, form: formBool, role: roleNumber},
			listOf("taints", 5, object("", 0, value("key", 1, roleTaint), value("effect", 3, roleWord)))),
		object("status", 3,
			&fieldMask{key: "allocatable", num: 2, form: formQuantities, wants: func(k string) bool { return k == "pods" }, role: roleQuantity},
			listOf("conditions", 4, object("", 0, value("type", 1, roleWord), value("status", 2, roleWord))),
			object("nodeInfo", 7, value("operatingSystem", 9, roleWord)))),
}, column[blocks.Node]{
	json: (*Decoder).node,
	in:   func(s *blocks.Snapshot) *[]blocks.Node { return &s.Nodes },
})

func nodeAnnotationRoles() map[string]role {
	roles := map[string]role{
		annotationCalicoLabels: roleLabelText, annotationASNumber: roleAS, annotationRRClusterID: roleAddresses,
		blocks.OursAnnotation: roleStub,
	}
	for _, a := range nodeAddressAnnotations {
		roles[a] = roleNodeAddress
	}
	for a := range tunnelAnnotations {
		roles[a] = roleAddresses
	}
	return roles
}

// nodeBuilder makes a node out of its fields.
type nodeBuilder struct {
	d      *Decoder
	node   blocks.Node
	calico map[string]string // Calico's own labels
	faults []fault
}

func (b *nodeBuilder) label(key, value []byte) {
	if b.node.Labels == nil {
		b.node.Labels = map[string]string{}
	}
	b.node.Labels[b.d.str(key)] = b.d.str(value)
	if string(key) == "kubernetes.io/os" || string(key) == "beta.kubernetes.io/os" {
		b.operatingSystem(value)
	}
}

func (b *nodeBuilder) operatingSystem(value []byte) {
	b.node.Windows = b.node.Windows || string(value) == "windows"
}

func (b *nodeBuilder) annotation(key, value []byte) {
	if len(value) == 0 {
		return
	}
	if kind, ok := tunnelAnnotations[string(key)]; ok {
		if a, ok := ParseAddr(string(value)); ok {
			b.node.Tunnels = append(b.node.Tunnels, blocks.Tunnel{Type: kind, Addr: a})
		} else {
			b.fault(key, NotA("address", value))
		}
		return
	}
	if slices.Contains(nodeAddressAnnotations, string(key)) {
		if p, ok := parseNodeAddress(string(value)); ok {
			b.node.Addresses = append(b.node.Addresses, p)
		} else {
			b.fault(key, NotA("CIDR", value))
		}
		return
	}
	switch string(key) {
	case annotationASNumber:
		n, ok := parseASNumber(string(value))
		if !ok {
			b.fault(key, NotA("AS number", value))
		}
		b.node.ASNumber = n
	case blocks.OursAnnotation:
		b.node.Ours = b.d.str(value)
	case annotationRRClusterID:
		b.node.RouteReflectorID = b.d.str(value)
	case annotationCalicoLabels:
		if err := json.Unmarshal(value, &b.calico); err != nil {
			b.fault(key, "is not a JSON object of texts")
		}
	}
}

func (b *nodeBuilder) fault(annotation []byte, reason string) {
	b.faults = append(b.faults, fault{"metadata.annotations[" + string(annotation) + "]", reason})
}

// parseNodeAddress reads an address with the length of its subnet, whose host
// bits are kept: they are the address.
func parseNodeAddress(s string) (netip.Prefix, bool) {
	if p, ok := ParseNetwork(s); ok {
		return p, true
	}
	a, ok := ParseAddr(s)
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

func (b *nodeBuilder) taint(key, effect []byte) {
	if string(key) == blocks.TaintOutOfService {
		b.node.OutOfService = true
	}
	switch string(effect) {
	case "NoSchedule", "NoExecute":
		b.node.Taints = append(b.node.Taints, b.d.str(key))
	}
}

func (b *nodeBuilder) condition(kind, status string) {
	if kind == "Ready" {
		b.node.Ready = status == "True"
		b.node.NotReady = !b.node.Ready
	}
}

func (b *nodeBuilder) allocatablePods(quantity []byte) {
	n, err := strconv.Atoi(string(quantity))
	if err != nil {
		q, err := resource.ParseQuantity(string(quantity))
		if err != nil {
			b.faults = append(b.faults, fault{"status.allocatable.pods", NotA("quantity", quantity)})
			return
		}
		n = int(q.Value())
	}
	b.node.AllocatablePods = max(n, 0)
}

// finish returns the node.
func (b *nodeBuilder) finish() blocks.Node {
	n := &b.node
	// Calico merges its own labels with those of Kubernetes, which win
	// (libcalico-go backend/k8s/resources/node.go, mergeCalicoAndK8sLabels).
	for k, v := range b.calico {
		if _, ok := n.Labels[k]; ok {
			continue
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[b.d.str([]byte(k))] = b.d.str([]byte(v))
	}
	slices.SortFunc(n.Tunnels, func(a, b blocks.Tunnel) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(n.Addresses, blocks.ComparePrefixes)
	slices.Sort(n.Taints)
	b.d.gapPerFault(&n.Meta, b.faults)
	return *n
}

// node reads a Kubernetes node. An annotation that makes no sense is left out,
// as Calico does, but as a gap.
func (d *Decoder) node(r *JSONReader) (blocks.Node, bool) {
	b := nodeBuilder{d: d}
	found := d.object(r, &b.node.Meta, metaHooks{label: b.label, annotation: b.annotation}, func(key []byte) {
		switch string(key) {
		case "unschedulable":
			b.node.Unschedulable, _ = r.Boolean()
		case "taints":
			b.readTaints(r)
		}
	}, func(key []byte) { b.readStatus(r, key) })
	if !d.named(r, &b.node.Meta, found) {
		return b.node, false
	}
	b.faults = append(b.faults, r.Faults...)
	return b.finish(), true
}

func (b *nodeBuilder) readTaints(r *JSONReader) {
	r.Array(func(int) {
		var taint, effect []byte
		r.Object(func(key []byte) {
			switch string(key) {
			case "key":
				taint, _ = r.str()
			case "effect":
				effect, _ = r.str()
			}
		})
		b.taint(taint, effect)
	})
}

func (b *nodeBuilder) readStatus(r *JSONReader, key []byte) {
	switch string(key) {
	case "allocatable":
		r.Object(func(key []byte) {
			if string(key) != "pods" {
				return
			}
			if c := r.Peek(); c >= '0' && c <= '9' {
				b.allocatablePods(r.Raw())
			} else if q, ok := r.str(); ok {
				b.allocatablePods(q)
			}
		})
	case "conditions":
		r.Array(func(int) {
			var kind, status string
			r.Object(func(key []byte) {
				switch string(key) {
				case "type":
					kind = b.d.text(r)
				case "status":
					status = b.d.text(r)
				case "lastHeartbeatTime", "lastTransitionTime":
					quietly(r, func() { b.d.seenTime(r) })
				}
			})
			b.condition(kind, status)
		})
	case "nodeInfo":
		r.Object(func(key []byte) {
			if string(key) == "operatingSystem" {
				s, _ := r.str()
				b.operatingSystem(s)
			}
		})
	}
}
