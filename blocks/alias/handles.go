package alias

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Handle anonymizes the names in a handle's ID: the CNI network and the sandbox of a pod
// (cni-plugin/internal/pkg/utils, GetHandleID), the CNI network and the name of a virtual
// machine, the node of a tunnel, or the hash of a LoadBalancer service.
func (n *Aliases) Handle(s string) string {
	if strings.EqualFold(s, blocks.WindowsReservedHandle) {
		return s
	}
	if _, node := (&blocks.Attributes{Handle: s}).TunnelOf(); node != "" {
		return strings.TrimSuffix(s, node) + n.Node(node)
	}
	if service, ok := strings.CutPrefix(s, "lb-"); ok {
		return "lb-" + n.Name(Handle, service)
	}
	if namespace, name, isVM := blocks.VMOfHandle(s); isVM {
		return n.vmHandle(s, namespace, name)
	}
	if i := strings.LastIndexByte(s, '.'); i > 0 && i < len(s)-1 {
		return n.network(s[:i]) + "." + n.Name(Sandbox, s[i+1:])
	}
	return n.Name(Handle, s)
}

// vmHandle anonymizes a virtual machine's handle and keeps its form: with a known machine,
// with a hash, or with neither.
func (n *Aliases) vmHandle(s, namespace, name string) string {
	const marker = ".vmi."
	network, rest, _ := strings.Cut(s, marker)
	head := n.network(network) + marker
	switch hash, hashed := strings.CutPrefix(rest, "_"); {
	case hashed:
		return head + "_" + n.Name(Handle, hash)
	case name == "":
		return head + n.Name(Handle, rest)
	}
	return head + n.Name(Namespace, namespace) + "." + n.Name(VM, name)
}

// network anonymizes a CNI network, except the one in Calico's manifests.
func (n *Aliases) network(s string) string {
	if s == "k8s-pod-network" {
		return s
	}
	return n.Name(Network, s)
}
