package decode

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// handle replaces the names in a handle's ID: those of the CNI network and the
// sandbox for a pod's (cni-plugin/internal/pkg/utils, GetHandleID), of the CNI network
// and the machine for a virtual machine's, the node's for a tunnel's, the hash of a
// LoadBalancer service.
func (n *Anonymizer) handle(s string) string {
	if strings.EqualFold(s, blocks.WindowsReservedHandle) {
		return s
	}
	if _, node := (&blocks.Attributes{Handle: s}).TunnelOf(); node != "" {
		return strings.TrimSuffix(s, node) + n.node(node)
	}
	if service, ok := strings.CutPrefix(s, "lb-"); ok {
		return "lb-" + n.Name(someHandle, service)
	}
	if namespace, name, isVM := blocks.VMOfHandle(s); isVM {
		return n.vmHandle(s, namespace, name)
	}
	if i := strings.LastIndexByte(s, '.'); i > 0 && i < len(s)-1 {
		return n.network(s[:i]) + "." + n.Name(someSandbox, s[i+1:])
	}
	return n.Name(someHandle, s)
}

// vmHandle replaces the names in the handle of a virtual machine, which stays one of
// the same form: of a machine that is known, one that is hashed, or neither.
func (n *Anonymizer) vmHandle(s, namespace, name string) string {
	const marker = ".vmi."
	network, rest, _ := strings.Cut(s, marker)
	head := n.network(network) + marker
	switch hash, hashed := strings.CutPrefix(rest, "_"); {
	case hashed:
		return head + "_" + n.Name(someHandle, hash)
	case name == "":
		return head + n.Name(someHandle, rest)
	}
	return head + n.Name(someNamespace, namespace) + "." + n.Name(someVM, name)
}

// network replaces the name of a CNI network, but for the one that Calico's manifests
// give it.
func (n *Anonymizer) network(s string) string {
	if s == "k8s-pod-network" {
		return s
	}
	return n.Name(someNetwork, s)
}
