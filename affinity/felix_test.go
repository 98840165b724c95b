package affinity_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// TestFelix covers pools whose routes Felix programs.
func TestFelix(t *testing.T) {
	for name, c := range felixCases {
		check(t, name, c.state, c.want)
	}
}

const (
	vxlan = "pool p 10.0.0.0/24 vxlan=Always\n"
	vteps = "node a addr=172.16.0.1/24 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.0.2/24 tunnel=vxlan@10.0.0.65\nnode c addr=172.16.0.3/24 tunnel=vxlan@10.0.0.129\n"
	block = "block 10.0.0.0/26 a\naffinity 10.0.0.0/26 a\n"
)

var felixCases = map[string]testCase{
	"VXLAN":                   {vteps + vxlan + pair, verdict{delivered, "the pool uses VXLAN", ""}},
	"VXLAN whatever BGP says": {vteps + offMesh + tor + vxlan + pair, verdict{delivered, "VXLAN", ""}},
	"VXLAN, BGP not read":     {vteps + "gap bgppeers forbidden\ngap bgpconfigurations forbidden\n" + vxlan + pair, verdict{delivered, "VXLAN", ""}},
	"VXLAN, Felix's not read": {vteps + "gap felixconfigurations forbidden\n" + vxlan + pair, verdict{delivered, "VXLAN", ""}},
	"kept from BGP":           {vteps + "pool p 10.0.0.0/24 vxlan=Always noexport\n" + pair, verdict{delivered, "VXLAN", ""}},
	"no node recorded":        {vteps + vxlan + block + "alloc 10.0.0.5 pod=shop/web\n", verdict{dropped, "does not record the node", ""}},
	"no node recorded, Felix's not read": {vteps + vxlan + "gap felixconfigurations forbidden\n" + block + "alloc 10.0.0.5 pod=shop/web\n",
		verdict{unsure, "does not record the node", "routeSource"}},
	"recorded as the owner's": {vteps + vxlan + block + "alloc 10.0.0.5 node=a pod=shop/web\n", verdict{dropped, "names a itself", ""}},
	"recorded as another's":   {vteps + vxlan + block + "alloc 10.0.0.5 node=c pod=shop/web\n", verdict{unsure, "the allocation names c", "on which node the pod runs"}},
	"recorded node is gone":   {vteps + vxlan + block + "alloc 10.0.0.5 node=gone pod=shop/web\n", verdict{dropped, "gone as the node that uses the address, which is not a node of the cluster", ""}},
	"the user has no VTEP":    {"node a addr=172.16.0.1/24 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.0.2/24\n" + vxlan + pair, verdict{dropped, "b has no VXLAN tunnel address", ""}},
	"the owner has no VTEP":   {"node a addr=172.16.0.1/24\nnode b addr=172.16.0.2/24 tunnel=vxlan@10.0.0.1\n" + vxlan + pair, verdict{dropped, "a has no VXLAN tunnel address", ""}},
	"the user has no VTEP, same subnet": {"node a addr=172.16.0.1/24 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.0.2/24\npool p 10.0.0.0/24 vxlan=CrossSubnet\n" + pair,
		verdict{delivered, "VXLAN", ""}},
	"the user has no VTEP, other subnet": {"node a addr=172.16.0.1/24 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.1.2/24\npool p 10.0.0.0/24 vxlan=CrossSubnet\n" + pair,
		verdict{dropped, "b has no VXLAN tunnel address", ""}},
	"the user has no VTEP, and lies in the owner's wider subnet": {"node a addr=172.16.0.1/16 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.5.2/24\npool p 10.0.0.0/24 vxlan=CrossSubnet\n" + pair,
		verdict{delivered, "VXLAN", ""}},
	"the user has no VTEP, and the owner lies in its wider subnet": {"node a addr=172.16.0.1/24 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.5.2/16\npool p 10.0.0.0/24 vxlan=CrossSubnet\n" + pair,
		verdict{dropped, "b has no VXLAN tunnel address", ""}},
	"the user has no address":  {"node a addr=172.16.0.1/24 tunnel=vxlan@10.0.0.1\nnode b tunnel=vxlan@10.0.0.65\n" + vxlan + pair, verdict{dropped, "b records no IPv4 address", ""}},
	"nothing recorded at all":  {"node a\nnode b\n" + vxlan + pair, verdict{delivered, "VXLAN", ""}},
	"nodes not read":           {"gap nodes forbidden\n" + vxlan + pair, verdict{unsure, "forbidden", "nodes"}},
	"the user not read whole":  {vteps + "gap nodes name=b broken\n" + vxlan + pair, verdict{unsure, "b could not be read completely", "what node b records"}},
	"the user's pods not read": {vteps + "gap nodes name=c broken\n" + vxlan + pair, verdict{delivered, "", ""}},
	"routes of pods":           {vteps + "felix source=WorkloadIPs\n" + vxlan + block + "alloc 10.0.0.5 pod=shop/web\n", verdict{delivered, "routeSource", ""}},
	"a tunnel's own address":   {vteps + vxlan + "block 10.0.0.64/26 a\nalloc 10.0.0.65 type=vxlanTunnelAddress\n", verdict{delivered, "VXLAN", ""}},

	"Felix told to":                       {nodes + offMesh + tor + "felix routes=Enabled\n" + plain + pair, verdict{delivered, "Felix programs this pool's routes", ""}},
	"BIRD told to":                        {nodes + offMesh + tor + "version v3.33.0\nfelix routes=Disabled\npool p 10.0.0.0/24 ipip=Always\n" + pair, verdict{dropped, "share AS", ""}},
	"IPIP by default of v3.33":            {nodes + offMesh + tor + "version v3.33.0\npool p 10.0.0.0/24 ipip=Always\n" + pair, verdict{delivered, "Felix", ""}},
	"IPIP by default of v3.32":            {nodes + offMesh + tor + "version v3.32.9\npool p 10.0.0.0/24 ipip=Always\n" + pair, verdict{dropped, "share AS", ""}},
	"no encapsulation on v3.33":           {nodes + offMesh + tor + "version v3.33.0\n" + plain + pair, verdict{dropped, "share AS", ""}},
	"IPIP only, IPIP":                     {nodes + offMesh + tor + "felix routes=EnabledIPIPOnly\npool p 10.0.0.0/24 ipip=Always\n" + pair, verdict{delivered, "Felix", ""}},
	"IPIP only, other":                    {nodes + offMesh + tor + "felix routes=EnabledIPIPOnly\n" + plain + pair, verdict{dropped, "share AS", ""}},
	"not IPIP, IPIP":                      {nodes + offMesh + tor + "felix routes=EnabledNoEncapOnly\npool p 10.0.0.0/24 ipip=Always\n" + pair, verdict{dropped, "share AS", ""}},
	"IPIP, version unknown":               {nodes + offMesh + tor + "version master\npool p 10.0.0.0/24 ipip=Always\n" + pair, verdict{unsure, "if BIRD, it is dropped", "Calico's version"}},
	"IPIP, version unknown, all the same": {nodes + "version master\npool p 10.0.0.0/24 ipip=Always\n" + pair, verdict{delivered, "but the outcome is the same", ""}},
	"plain, version unknown":              {nodes + offMesh + tor + "version master\n" + plain + pair, verdict{dropped, "share AS", ""}},
	"a word of a later version":           {nodes + offMesh + tor + "felix routes=Sometimes\n" + plain + pair, verdict{unsure, "if Felix, delivered", "programClusterRoutes: Sometimes"}},
	"Felix's not read":                    {nodes + offMesh + tor + "gap felixconfigurations forbidden\n" + plain + pair, verdict{unsure, "if BIRD, it is dropped", "FelixConfiguration"}},
	"Felix, address not recorded":         {"node a addr=172.16.0.1/24\nnode b\nfelix routes=Enabled\n" + plain + pair, verdict{unsure, "b records no IPv4 address", "kubectl get node"}},
	"WireGuard": {"node a addr=172.16.0.1/24 tunnel=wireguard@10.0.0.1\nnode b addr=172.16.0.2/24 tunnel=wireguard@10.0.0.65\n" + offMesh + tor + plain + pair,
		verdict{unsure, "WireGuard", "on a: ip route get 10.0.0.5"}},
	"WireGuard on one end": {"node a addr=172.16.0.1/24 tunnel=wireguard@10.0.0.1\nnode b addr=172.16.0.2/24\n" + offMesh + tor + plain + pair, verdict{dropped, "share AS", ""}},
}

// TestCrossSubnetPairs: within the owner's subnet, a node needs no VXLAN tunnel address.
// The counts for a pool equal the sum over all pairs of nodes.
func TestCrossSubnetPairs(t *testing.T) {
	for name, c := range map[string]struct {
		nodes              string
		dropped, delivered int
	}{
		"one without, beside nodes of two subnets": {
			"node a addr=172.16.1.1/24 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.2.1/24 tunnel=vxlan@10.0.0.65\nnode u addr=172.16.1.9/24\n", 3, 3},
		"one without, in a part of the owner's subnet": {
			"node a addr=172.16.0.1/16 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.1.1/24 tunnel=vxlan@10.0.0.65\nnode u addr=172.16.2.9/24\nnode v addr=172.16.1.9/24\n", 7, 5},
		"all have one": {
			"node a addr=172.16.1.1/24 tunnel=vxlan@10.0.0.1\nnode b addr=172.16.2.1/24 tunnel=vxlan@10.0.0.65\nnode c addr=172.16.3.1/24 tunnel=vxlan@10.0.0.66\n", 0, 6},
	} {
		s := parse(t, c.nodes+"pool p 10.0.0.0/24 vxlan=CrossSubnet\n")
		var all []*blocks.Node
		for i := range s.Nodes {
			all = append(all, &s.Nodes[i])
		}
		if o := affinity.NewRouting(s).Pool(&s.Pools[0], all); o.Dropped != c.dropped || o.Delivered != c.delivered || o.Unknown != 0 {
			t.Errorf("%s: got %d dropped, %d delivered, %d unknown; want %d, %d", name, o.Dropped, o.Delivered, o.Unknown, c.dropped, c.delivered)
		}
	}
}
