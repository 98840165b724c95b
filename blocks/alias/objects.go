package alias

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// words reveal nothing about a cluster's owner.
var words = []string{
	"Pending", "Running", "Succeeded", "Failed", "Unknown", "Completed", "True", "False", "Ready", "MemoryPressure",
	"DiskPressure", "PIDPressure", "NetworkUnavailable", "NoSchedule", "DoNotSchedule", "ScheduleAnyway", "default-scheduler", "NoExecute", "PreferNoSchedule", "linux", "windows",
	"Update", "Apply", "status", blocks.TigeraOperator, "Workload", "Tunnel", "LoadBalancer", "Never", "Always", "CrossSubnet", "cross-subnet", "always",
	"Exists", "DoesNotExist", "Gt", "Lt", "Automatic", "Manual", "Enabled", "Disabled", "Allocatable", "CIDROverlap", "PoolDisabled", "Terminating", "OK",
	"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "Node", "InternalIP", string(apiv3.AllServices), string(apiv3.RequestedServicesOnly), "VirtualMachine", "VirtualMachineInstance", "EnabledIPIPOnly", "CalicoIPAM", "WorkloadIPs", "Auto", "-felix-ready", "-felix-live", "-bird-ready", "-bird-live", string(apiv3.Accept), string(apiv3.Reject),
	string(apiv3.Equal), string(apiv3.NotEqual), string(apiv3.In), string(apiv3.NotIn), string(apiv3.BGPFilterSourceRemotePeers),
	string(blocks.Pending), string(blocks.Confirmed), string(blocks.PendingDeletion), string(blocks.HostOwner), string(blocks.VirtualOwner),
	"true", "false", blocks.UpgradeIPAM, blocks.FelixVXLANPort, blocks.FelixVXLANVNI, blocks.FelixVXLAN, blocks.FelixIPIP, blocks.DetectIPv4, blocks.DetectIPv6, blocks.PoolCIDRv4, blocks.PoolCIDRv6,
	blocks.TypeIPIP, blocks.TypeVXLAN, blocks.TypeVXLANv6, blocks.TypeWireguard, blocks.TypeWireguardV6,
}

// Word keeps words that reveal nothing, and numbers.
func (n *Aliases) Word(s string) string {
	if slices.Contains(words, s) || strings.Trim(s, "0123456789") == "" {
		return s
	}
	return n.Name("word", s)
}

// loadBalancer owns the blocks of LoadBalancer services, under this name in every cluster.
const loadBalancer = "load-balancer"

// Node anonymizes the name of a node.
func (n *Aliases) Node(s string) string {
	if s == loadBalancer {
		return s
	}
	return n.Name(Node, s)
}

// Taint anonymizes the key of a taint, unless the key is one of Kubernetes' own.
func (n *Aliases) Taint(s string) string {
	if strings.HasPrefix(s, "node.kubernetes.io/") || slices.Contains(PlainLabels, s) {
		return s
	}
	return n.Name("taint", s)
}

// CIDRName keeps a name made from a CIDR, like a block's.
func (n *Aliases) CIDRName(s string) string {
	if blocks.PrefixOfName(s).IsValid() {
		return s
	}
	return n.Name("block", s)
}

// Owner anonymizes the name in a block's affinity.
func (n *Aliases) Owner(s string) string {
	kind, name, found := strings.Cut(s, ":")
	if !found {
		return n.Node(s)
	}
	return n.Word(kind) + ":" + n.Node(name)
}

// AffinityName anonymizes the node in an affinity's name, which consists of node and CIDR.
func (n *Aliases) AffinityName(s string) string {
	for _, node := range []string{n.Claimant, strings.ToLower(n.Claimant)} {
		if cidr, ok := strings.CutPrefix(s, node+"-"); ok && node != "" && blocks.PrefixOfName(cidr).IsValid() {
			return n.Node(node) + "-" + cidr
		}
	}
	return n.Name("affinity", s)
}

// PoolList anonymizes the names in a JSON list of pools, and keeps CIDRs.
func (n *Aliases) PoolList(s string) string {
	var pools []string
	if json.Unmarshal([]byte(s), &pools) != nil {
		return Bad
	}
	for i, p := range pools {
		if _, err := netip.ParsePrefix(p); err != nil {
			pools[i] = n.Name(Pool, p)
		}
	}
	out, _ := json.Marshal(pools) // strings always marshal
	return string(out)
}
