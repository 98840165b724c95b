package errortext

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Pod is a pod named in a text.
type Pod struct {
	// Namespace is empty if the text does not name it.
	Namespace, Name string
}

// Names are the objects named in a text, each once, in the order of the text. They may not exist.
type Names struct {
	Pods []Pod
	// Nodes and Pools are names. A pool may be named by its CIDR, which is in CIDRs then.
	Nodes, Pools, Handles []string
	CIDRs                 []netip.Prefix
	Addresses             []netip.Addr
}

// add adds the value of a placeholder.
func (n *Names) add(placeholder, value string) {
	switch placeholder {
	case "node":
		n.Nodes = once(n.Nodes, value)
	case "pool":
		if p, err := netip.ParsePrefix(value); err == nil {
			n.CIDRs = once(n.CIDRs, p.Masked())
			return
		}
		n.Pools = once(n.Pools, value)
	case "ip":
		if a, err := netip.ParseAddr(value); err == nil {
			n.Addresses = once(n.Addresses, a.Unmap())
		}
	case "cidr", "cidrs":
		for _, field := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" ,'\"", r) }) {
			switch p, err := netip.ParsePrefix(field); {
			case err != nil:
			case p.IsSingleIP(): // a host route
				n.Addresses = once(n.Addresses, p.Addr())
			default:
				n.CIDRs = once(n.CIDRs, p.Masked())
			}
		}
	}
}

func once[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

func (n *Names) merge(o Names) {
	for _, v := range o.Pods {
		n.Pods = once(n.Pods, v)
	}
	for _, v := range o.Nodes {
		n.Nodes = once(n.Nodes, v)
	}
	for _, v := range o.Pools {
		n.Pools = once(n.Pools, v)
	}
	for _, v := range o.Handles {
		n.Handles = once(n.Handles, v)
	}
	for _, v := range o.CIDRs {
		n.CIDRs = once(n.CIDRs, v)
	}
	for _, v := range o.Addresses {
		n.Addresses = once(n.Addresses, v)
	}
}

const (
	dnsName      = `([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)`
	dnsNamespace = `([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)`
)

// contexts are the forms in which kubectl, the kubelet, container runtimes and Calico's logs name a
// pod or a node. fields gives the order of the groups.
var contexts = []struct {
	re                    *regexp.Regexp
	namespace, name, node int // groups; 0 for none
}{
	// kubectl describe pod; an event in YAML
	{regexp.MustCompile(`\b[Nn]ame: +` + dnsName + ` [Nn]amespace: +` + dnsNamespace + `\b`), 2, 1, 0},
	{regexp.MustCompile(`\bNode: +` + dnsName + `/[0-9a-f]`), 0, 0, 1},
	{regexp.MustCompile(`Successfully assigned ` + dnsNamespace + `/` + dnsName + ` to ` + dnsName), 1, 2, 3},
	// the kubelet: pod "NAME_NAMESPACE(UID)", pod="NAMESPACE/NAME"
	{regexp.MustCompile(`\bpod[ =:]+"` + dnsName + `_` + dnsNamespace + `\b`), 2, 1, 0},
	{regexp.MustCompile(`\bpods?["]?[ =:]+["]?` + dnsNamespace + `/` + dnsName), 1, 2, 0},
	// CRI-O
	{regexp.MustCompile(`\badding pod ` + dnsNamespace + `_` + dnsName + ` to CNI network`), 1, 2, 0},
	{regexp.MustCompile(`\bk8s_(?:POD_)?` + dnsName + `_` + dnsNamespace + `_[0-9a-f]{8}-`), 2, 1, 0},
	// containerd
	{regexp.MustCompile(`\bName:` + dnsName + `,Uid:[-0-9a-f]*,Namespace:` + dnsNamespace + `,`), 2, 1, 0},
	// CNI_ARGS
	{regexp.MustCompile(`K8S_POD_NAMESPACE=` + dnsNamespace + `;K8S_POD_NAME=` + dnsName), 1, 2, 0},
	// kubectl get events
	{regexp.MustCompile(`\bpod/` + dnsName), 0, 1, 0},
	// Calico's logs; the From column of older kubectl
	{regexp.MustCompile(`\b(?:host|node|nodename|calicoNode|Host|Node)["]?[=:] ?["']?` + dnsName), 0, 0, 1},
	{regexp.MustCompile(`\bfor (?:host|node) '?` + dnsName), 0, 0, 1},
	{regexp.MustCompile(`\bkubelet, ` + dnsName), 0, 0, 1},
}

var (
	// workload is the name of a WorkloadEndpoint: NODE-k8s-POD-eth0, each dash of a name doubled
	// (libcalico-go/lib/names).
	workload = regexp.MustCompile(`\b([a-z0-9][-a-z0-9.]*?[a-z0-9])-k8s-([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)-eth0\b`)
	// cidrField is a field of the JSON logs of Tigera's operator.
	cidrField = regexp.MustCompile(`"cidr": ?"([0-9A-Fa-f.:/]+)"`)
	handle    = regexp.MustCompile(`\b[A-Za-z0-9][-A-Za-z0-9_]*\.[0-9a-f]{64}\b`)
)

// namesIn returns the pods, nodes and handles named in an unescaped text.
func namesIn(text string) (out Names) {
	for _, c := range contexts {
		for _, m := range c.re.FindAllStringSubmatch(text, -1) {
			if c.name > 0 {
				p := Pod{Name: m[c.name]}
				if c.namespace > 0 {
					p.Namespace = m[c.namespace]
				}
				out.Pods = once(out.Pods, p)
			}
			if c.node > 0 {
				out.Nodes = once(out.Nodes, m[c.node])
			}
		}
	}
	for _, m := range workload.FindAllStringSubmatch(text, -1) {
		single := func(s string) string { return strings.ReplaceAll(s, "--", "-") }
		out.Nodes = once(out.Nodes, single(m[1]))
		out.Pods = once(out.Pods, Pod{Name: single(m[2])})
	}
	for _, m := range cidrField.FindAllStringSubmatch(text, -1) {
		out.add("cidr", m[1])
	}
	for _, h := range handle.FindAllString(text, -1) {
		out.Handles = once(out.Handles, h)
	}
	return out
}
