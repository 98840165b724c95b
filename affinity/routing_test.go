package affinity_test

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// pair is a state with node b using 10.0.0.5, an address of node a's block.
const pair = `
block 10.0.0.0/26 a
affinity 10.0.0.0/26 a
alloc 10.0.0.5 node=b pod=shop/web
`

// nodes are a and b on one subnet; offMesh and tor peer nodes of one AS without a mesh.
const (
	nodes   = "node a addr=172.16.0.1/24 label=rack=1\nnode b addr=172.16.0.2/24 label=rack=2\n"
	offMesh = "bgp nomesh as=64602\n"
	plain   = "pool p 10.0.0.0/24\n"
	tor     = "peer tor ip=172.16.0.254 as=14907\n"
)

func parse(t *testing.T, text string) *blocks.Snapshot {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Sort()
	return s
}

// borrowed returns the only borrowed address of a state.
func borrowed(t *testing.T, s *blocks.Snapshot) affinity.Borrowed {
	t.Helper()
	for i := range s.Blocks {
		b := &s.Blocks[i]
		for o := range b.Ordinals {
			attr := b.At(o)
			if attr == nil {
				continue
			}
			out := affinity.Borrowed{Addr: b.Address(o), Block: b, Owner: b.Owner.Node(), User: "b", Attributes: attr, Tunnel: attr.Tunnel()}
			for j := range s.Pools {
				if s.Pools[j].CIDR.Contains(out.Addr) {
					out.Pool = &s.Pools[j]
				}
			}
			return out
		}
	}
	t.Fatal("the sketch has no allocation")
	panic("unreachable")
}

// verdict is the expected outcome of a case, with parts of its reason and of the deciding
// fact.
type verdict struct {
	outcome   affinity.RouteOutcome
	reason    string
	decidedBy string
}

func check(t *testing.T, name, text string, want verdict) {
	t.Helper()
	s := parse(t, text)
	got := affinity.NewRouting(s).Borrowed(borrowed(t, s))
	if got.Outcome != want.outcome || !strings.Contains(got.Reason, want.reason) || !strings.Contains(got.DecidedBy, want.decidedBy) {
		t.Errorf("%s: %s because %s; settled by %q; want %s because of %q, settled by %q", name, got.Outcome, got.Reason, got.DecidedBy, want.outcome, want.reason, want.decidedBy)
	}
	if (got.Outcome == affinity.Unknown) != (got.DecidedBy != "") {
		t.Errorf("%s: %s, and settled by %q", name, got.Outcome, got.DecidedBy)
	}
	if got.Reason == "" || strings.HasSuffix(got.Reason, ".") || strings.Contains(got.Reason, "%!") {
		t.Errorf("%s: the reason is %q", name, got.Reason)
	}
}

const (
	delivered = affinity.Delivered
	dropped   = affinity.Dropped
	unsure    = affinity.Unknown
)

// TestBIRD covers the topologies of pools whose routes BIRD programs.
func TestBIRD(t *testing.T) {
	for name, c := range birdCases {
		check(t, name, c.state+pair, c.want)
	}
}

// rr is a route reflector; toRR peers all nodes with it.
const (
	rr   = "node rr1 addr=172.16.0.9/24 label=rr=1 rr=10.9.9.9\n"
	toRR = "peer to-rr reflectors=has(rr)\n"
)

type testCase struct {
	state string
	want  verdict
}

var birdCases = map[string]testCase{
	"mesh":                               {nodes + plain, verdict{delivered, "node-to-node mesh carries a route to the address from b to a", ""}},
	"mesh, no address recorded anywhere": {"node a\nnode b\n" + plain, verdict{delivered, "mesh", ""}},
	"mesh, the owner without an address": {"node a\nnode b addr=172.16.0.2/24\nnode c addr=172.16.0.3/24\n" + plain, verdict{dropped, "a records no IPv4 address", ""}},
	"mesh, the user without an address":  {"node a addr=172.16.0.1/24\nnode b\nnode c addr=172.16.0.3/24\n" + plain, verdict{dropped, "b records no IPv4 address", ""}},
	"mesh, two AS, one subnet":           {"node a addr=172.16.0.1/24 as=64701\nnode b addr=172.16.0.2/24 as=64702\n" + plain, verdict{delivered, "mesh", ""}},
	"mesh, two AS, two subnets":          {"node a addr=172.16.1.1/24 as=64701\nnode b addr=172.16.2.2/24 as=64702\n" + plain, verdict{dropped, "no common subnet", ""}},
	"mesh, two AS, subnet not recorded":  {"node a addr=172.16.1.1/32 as=64701\nnode b addr=172.16.2.2/32 as=64702\n" + plain, verdict{unsure, "common subnet only", "calicoctl node status on a"}},
	"mesh and routers":                   {nodes + tor + plain, verdict{delivered, "mesh", ""}},
	"IPIP goes by BGP":                   {nodes + offMesh + tor + "version v3.31.0\npool p 10.0.0.0/24 ipip=Always\n", verdict{dropped, "share AS 64602 behind AS 14907", ""}},
	"CrossSubnet changes nothing":        {nodes + "pool p 10.0.0.0/24 ipip=CrossSubnet\n", verdict{delivered, "mesh", ""}},

	"kept from BGP": {nodes + "pool p 10.0.0.0/24 noexport\n", verdict{dropped, "disableBGPExport", ""}},
	"kept from BGP, but let out by a filter": {nodes + offMesh + "filter out export=Accept,In,10.0.0.0/24\npeer all reflectors=all() filters=out\npool p 10.0.0.0/24 noexport\n",
		verdict{delivered, `BGPPeer "all"`, ""}},
	"no session at all":     {nodes + offMesh + plain, verdict{dropped, "no BGPPeer gives a a session", ""}},
	"peer for others only":  {nodes + offMesh + "peer tor ip=172.16.0.254 as=14907 nodes=rack=='9'\n" + plain, verdict{dropped, "no BGPPeer gives a a session", ""}},
	"peer for the owner":    {nodes + offMesh + "peer tor ip=172.16.0.254 as=14907 nodes=rack=='1'\n" + plain, verdict{dropped, "no BGPPeer gives b a session", ""}},
	"selector of nonsense":  {nodes + offMesh + "peer tor ip=172.16.0.254 as=14907 nodes=rack\n" + plain, verdict{dropped, "no BGPPeer gives a a session", ""}},
	"peers are pods":        {nodes + offMesh + "peer pods as=64999 workloads\n" + plain, verdict{dropped, "no BGPPeer gives a a session", ""}},
	"router of IPv6 alone":  {nodes + offMesh + "peer tor ip=fd00::1 as=14907\n" + plain, verdict{dropped, "no BGPPeer gives a a session", ""}},
	"one AS behind another": {nodes + offMesh + tor + plain, verdict{dropped, `the node-to-node mesh is off and a and b share AS 64602 behind AS 14907 (BGPPeer "tor")`, ""}},
	"one AS behind two routers": {nodes + offMesh + "peer t1 ip=172.16.0.254 as=14907 nodes=rack=='1'\npeer t2 ip=172.16.0.253 as=14908 nodes=rack=='2'\n" + plain,
		verdict{dropped, "a and b share AS 64602", ""}},
	"another node has its own AS": {nodes + "node c addr=172.16.0.3/24 as=64777\n" + offMesh + tor + plain, verdict{dropped, "share AS 64602", ""}},
	"the user has its own AS": {"node a addr=172.16.0.1/24\nnode b addr=172.16.0.2/24 as=64700\n" + offMesh + tor + plain,
		verdict{delivered, "their AS numbers differ, provided that routers outside the cluster pass on routes to single addresses", ""}},
	"two AS, two routers": {"node a addr=172.16.1.1/24 as=64701 label=rack=1\nnode b addr=172.16.2.2/24 as=64702 label=rack=2\n" + offMesh +
		"peer t1 ip=172.16.1.254 as=65001 nodes=rack=='1'\npeer t2 ip=172.16.2.254 as=65002 nodes=rack=='2'\n" + plain,
		verdict{delivered, "routers 172.16.2.254 (AS 65002, BGPPeer \"t2\") and 172.16.1.254", ""}},
	"the owner's AS is its neighbour's router's": {"node a addr=172.16.1.1/24 as=64701 label=rack=1\nnode b addr=172.16.2.2/24 as=64702 label=rack=2\n" + offMesh +
		"peer t1 ip=172.16.1.254 as=65001 nodes=rack=='1'\npeer t2 ip=172.16.2.254 as=64701 nodes=rack=='2'\n" + plain,
		verdict{dropped, "its own AS 64701 is in the path", ""}},
	"a router's own AS stands in the path": {"node a addr=172.16.0.1/24 as=65003 label=tor=1\nnode b addr=172.16.0.2/24 as=65001 label=user=1\nnode c addr=172.16.0.3/24 as=65002 label=tor=1 label=between=1\n" + offMesh +
		"peer between reflectors=has(between) nodes=has(user)\npeer tor ip=172.16.0.254 as=65001 nodes=has(tor)\n" + plain,
		verdict{dropped, "no chain of BGP sessions", ""}},
	"a router's own AS does not stand in the path": {"node a addr=172.16.0.1/24 as=65003 label=tor=1\nnode b addr=172.16.0.2/24 as=65001 label=user=1\nnode c addr=172.16.0.3/24 as=65002 label=tor=1 label=between=1\n" + offMesh +
		"peer between reflectors=has(between) nodes=has(user)\npeer tor ip=172.16.0.254 as=65004 nodes=has(tor)\n" + plain,
		verdict{delivered, "router 172.16.0.254 (AS 65004", ""}},
	"localASNumber tells them apart": {nodes + offMesh + "peer t1 ip=172.16.0.254 as=14907 nodes=rack=='1'\npeer t2 ip=172.16.0.254 as=14907 nodes=rack=='2' ownas=64999\n" + plain,
		verdict{delivered, "provided", ""}},
	"its own AS is accepted": {nodes + offMesh + "peer tor ip=172.16.0.254 as=14907 localas=1\n" + plain,
		verdict{unsure, "numAllowedLocalASNumbers: 1", "whether 172.16.0.254 passes on routes to single addresses"}},
	"its own AS is accepted by the user alone": {nodes + offMesh + "peer t1 ip=172.16.0.254 as=14907 nodes=rack=='1'\npeer t2 ip=172.16.0.254 as=14907 nodes=rack=='2' localas=1\n" + plain,
		verdict{dropped, "share AS 64602", ""}},
	"an outside reflector": {nodes + offMesh + "peer rr ip=172.16.0.254 as=64602\n" + plain,
		verdict{unsure, "an outside route reflector at best", "whether 172.16.0.254 is a route reflector"}},
	"a reflector beside a router": {nodes + offMesh + tor + "peer rr ip=172.16.0.253 as=64602\n" + plain,
		verdict{unsure, "172.16.0.253", "172.16.0.253"}},
	"inside for one, outside for the other": {"node a addr=172.16.0.1/24\nnode b addr=172.16.0.2/24 as=64700\n" + offMesh + "peer r ip=172.16.0.254 as=64602\n" + plain,
		verdict{delivered, "provided", ""}},
	"a router without AS": {nodes + offMesh + "peer r ip=172.16.0.254\n" + plain, verdict{unsure, "gives no AS number", "the AS number of 172.16.0.254"}},

	"reflector": {nodes + rr + offMesh + toRR + plain, verdict{delivered, "through route reflector rr1", ""}},
	"reflector beside the mesh, one end of it": {"node a addr=172.16.0.1/24 rr=10.9.9.9 label=rr=1\nnode b addr=172.16.0.2/24\nnode c addr=172.16.0.3/24\n" + plain,
		verdict{dropped, "a is a route reflector (10.9.9.9), which takes no part in the node-to-node mesh", ""}},
	"the owner is the reflector": {"node a addr=172.16.0.1/24 rr=10.9.9.9 label=rr=1\nnode b addr=172.16.0.2/24\n" + offMesh + toRR + plain,
		verdict{delivered, `BGPPeer "to-rr" gives b and a a session`, ""}},
	"the user is the reflector": {"node b addr=172.16.0.1/24 rr=10.9.9.9 label=rr=1\nnode a addr=172.16.0.2/24\n" + offMesh + toRR + plain,
		verdict{delivered, "gives b and a a session", ""}},
	"reflector without cluster ID": {nodes + "node rr1 addr=172.16.0.9/24 label=rr=1\n" + offMesh + toRR + plain,
		verdict{dropped, "rr1, which has sessions with both, has no route reflector cluster ID", ""}},
	"two reflectors of one cluster, one each": {nodes + "node r1 addr=172.16.0.8/24 label=rr=1 rr=10.9.9.9\nnode r2 addr=172.16.0.9/24 label=rr=2 rr=10.9.9.9\n" + offMesh +
		"peer p1 reflectors=rr=='1' nodes=rack=='1'\npeer p2 reflectors=rr=='2' nodes=rack=='2'\npeer between reflectors=has(rr) nodes=has(rr)\n" + plain,
		verdict{dropped, "r1 does not pass on what other reflectors of its cluster", ""}},
	"two reflectors of two clusters, one each": {nodes + "node r1 addr=172.16.0.8/24 label=rr=1 rr=10.9.9.8\nnode r2 addr=172.16.0.9/24 label=rr=2 rr=10.9.9.9\n" + offMesh +
		"peer p1 reflectors=rr=='1' nodes=rack=='1'\npeer p2 reflectors=rr=='2' nodes=rack=='2'\npeer between reflectors=has(rr) nodes=has(rr)\n" + plain,
		verdict{delivered, "route reflector r2, then route reflector r1", ""}},
	"two reflectors, not peered": {nodes + "node r1 addr=172.16.0.8/24 label=rr=1 rr=10.9.9.8\nnode r2 addr=172.16.0.9/24 label=rr=2 rr=10.9.9.9\n" + offMesh +
		"peer p1 reflectors=rr=='1' nodes=rack=='1'\npeer p2 reflectors=rr=='2' nodes=rack=='2'\n" + plain,
		verdict{dropped, "no chain of BGP sessions leads from b to a", ""}},
	"reflector given by address": {nodes + rr + offMesh + "peer to-rr ip=172.16.0.9 as=64602\n" + plain, verdict{delivered, "route reflector rr1", ""}},
	"reflector given by address and port": {nodes + rr + offMesh + "peer to-rr ip=172.16.0.9:179 as=64602\n" + plain,
		verdict{delivered, "route reflector rr1", ""}},
	"reflector given with a wrong AS": {nodes + rr + offMesh + "peer to-rr ip=172.16.0.9 as=64603\n" + plain, verdict{dropped, "no BGPPeer gives a a session", ""}},
	"reflector that does not peer back": {nodes + rr + offMesh + "peer to-rr reflectors=has(rr) nodes=!has(rr) oneway\n" + plain,
		verdict{dropped, "no BGPPeer gives a a session", ""}},
	"reflector that peers back by hand": {nodes + rr + offMesh + "peer to-rr reflectors=has(rr) nodes=!has(rr) oneway\npeer back reflectors=!has(rr) nodes=has(rr) oneway\n" + plain,
		verdict{delivered, "route reflector rr1", ""}},
	"reflector with a stale affinity to the block": {nodes + rr + offMesh + toRR + plain + "affinity 10.0.0.0/26 rr1\n", verdict{dropped, "", ""}},
	"reflector with an affinity in deletion":       {nodes + rr + offMesh + toRR + plain + "affinity 10.0.0.0/26 rr1 state=pendingDeletion\n", verdict{delivered, "rr1", ""}},
	"the user has an affinity to the block":        {nodes + plain + "affinity 10.0.0.0/26 b\n", verdict{dropped, "b has an affinity to 10.0.0.0/26, too", ""}},
	"peers of nodes by name":                       {nodes + offMesh + "peer ab node=b ip=172.16.0.1 as=64602\n" + plain, verdict{delivered, `BGPPeer "ab" gives b and a a session`, ""}},
	"a border node between": {nodes + "node c addr=172.16.0.3/24 as=64700 label=border=1\n" + offMesh + "peer border reflectors=has(border) nodes=!has(border)\n" + plain,
		verdict{dropped, "a and b share AS 64602 behind AS 64700", ""}},

	"a pool could not be read": {nodes + offMesh + tor + plain + "gap ippools name=q broken\n", verdict{unsure, "a pool that could not be read", `pool "q"`}},
}

// TestFilters: BGPFilters on either end, or on a reflector in between, stop a route. A
// filter that cannot be evaluated with certainty makes the outcome unknown.
func TestFilters(t *testing.T) {
	for name, c := range filterCases {
		check(t, name, nodes+offMesh+plain+c.state+pair, c.want)
	}
}

var filterCases = map[string]testCase{
	"export at the user": {"filter f export=Reject,In,10.0.0.0/24,32-\npeer all reflectors=all() filters=f\n",
		verdict{dropped, `BGPFilter "f", on the session of b with a (BGPPeer "all"), blocks the address`, ""}},
	"import at the owner": {"filter f import=Reject,In,10.0.0.0/24\npeer all reflectors=all() filters=f\n",
		verdict{dropped, `BGPFilter "f", on the sessions of a by BGPPeer "all", rejects the address`, ""}},
	"of blocks alone":               {"filter f export=Reject,In,10.0.0.0/24,-31\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"of another network":            {"filter f export=Reject,In,10.9.0.0/24\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"of all but a network":          {"filter f export=Reject,NotIn,10.9.0.0/24\npeer all reflectors=all() filters=f\n", verdict{dropped, "", ""}},
	"of this address":               {"filter f export=Reject,Equal,10.0.0.5/32\npeer all reflectors=all() filters=f\n", verdict{dropped, "", ""}},
	"of another address":            {"filter f export=Reject,Equal,10.0.0.6/32\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"of all others":                 {"filter f export=Reject,NotEqual,10.0.0.5/32\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"of everything":                 {"filter f export=Reject\npeer all reflectors=all() filters=f\n", verdict{dropped, "", ""}},
	"accepted before":               {"filter f export=Accept,In,10.0.0.0/24 export=Reject\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"accepted by another":           {"filter f export=Reject\nfilter g export=Accept,In,10.0.0.0/24\npeer all reflectors=all() filters=g,f\n", verdict{delivered, "", ""}},
	"rejected before":               {"filter f export=Reject\nfilter g export=Accept,In,10.0.0.0/24\npeer all reflectors=all() filters=f,g\n", verdict{dropped, `"f"`, ""}},
	"that does not exist":           {"peer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"of routes of peers":            {"filter f export=Reject,source=RemotePeers\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"of routes of peers, on import": {"filter f import=Reject,source=RemotePeers\npeer all reflectors=all() filters=f\n", verdict{dropped, "", ""}},
	"of routes of peers, at a reflector": {rr + "filter f export=Reject,source=RemotePeers\npeer to-rr reflectors=has(rr) filters=f\n",
		verdict{dropped, `on the session of rr1 with a`, ""}},
	"export at the reflector alone": {rr + "filter f export=Reject\npeer to-rr reflectors=has(rr) nodes=!has(rr) oneway\npeer back reflectors=!has(rr) nodes=has(rr) oneway filters=f\n",
		verdict{dropped, `on the session of rr1 with a (BGPPeer "back")`, ""}},
	"on a mesh session": {"bgp as=64602\nfilter f export=Reject\npeer all reflectors=all() filters=f\n", verdict{delivered, "mesh", ""}},

	"of interfaces":            {"filter f export=Reject,if=eth*\npeer all reflectors=all() filters=f\n", verdict{unsure, "a rule about interfaces", `the effect of BGPFilter "f"`}},
	"of interfaces, elsewhere": {"filter f export=Reject,In,10.9.0.0/24,if=eth*\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"of interfaces, then sure": {"filter f export=Reject,if=eth* export=Reject\npeer all reflectors=all() filters=f\n", verdict{dropped, "", ""}},
	"unknown operator":         {"filter f export=Reject,Near,10.0.0.0/24\npeer all reflectors=all() filters=f\n", verdict{unsure, "operator that Calico does not know", "BGPFilter"}},
	"unknown action":           {"filter f import=Drop\npeer all reflectors=all() filters=f\n", verdict{unsure, "action that Calico does not know", "BGPFilter"}},
	"unknown source":           {"filter f import=Reject,source=Moon\npeer all reflectors=all() filters=f\n", verdict{unsure, "source", "BGPFilter"}},
	"equality with lengths":    {"filter f export=Reject,Equal,10.0.0.0/24,32-\npeer all reflectors=all() filters=f\n", verdict{unsure, "equality", "BGPFilter"}},
	"bounds crossed":           {"filter f export=Reject,In,10.0.0.0/24,30-28\npeer all reflectors=all() filters=f\n", verdict{unsure, "lower bound", "BGPFilter"}},
	"doubt about accepting":    {"filter f import=Accept,if=eth*\npeer all reflectors=all() filters=f\n", verdict{delivered, "", ""}},
	"which could not be read":  {"gap bgpfilters name=f broken\npeer all reflectors=all() filters=f\n", verdict{unsure, "broken", `BGPFilter "f"`}},
	"which were not read":      {"gap bgpfilters forbidden\npeer all reflectors=all() filters=f\n", verdict{unsure, "forbidden", `BGPFilter "f"`}},
	"not read, and not used":   {"gap bgpfilters forbidden\npeer all reflectors=all()\n", verdict{delivered, "", ""}},
	"two configurations": {"filter f export=Reject\npeer p1 reflectors=all() nodes=all() filters=f\npeer p2 reflectors=all() nodes=has(rack)\n",
		verdict{unsure, "several BGPPeers configure one session", "BGPPeers"}},
	"a global configuration wins": {"filter f export=Reject\npeer p1 reflectors=all() filters=f\npeer p2 reflectors=all() nodes=has(rack)\n", verdict{dropped, `BGPPeer "p1"`, ""}},
}

// TestNeverDropped: without a blackhole no traffic is dropped, even in the topology that
// drops all other traffic.
func TestNeverDropped(t *testing.T) {
	const state = nodes + offMesh + tor + plain
	for name, c := range map[string]testCase{
		"a block of one address":      {"block 10.0.0.5/32 a\naffinity 10.0.0.5/32 a\nalloc 10.0.0.5 node=b\n", verdict{delivered, "single address", ""}},
		"a block of nobody":           {"block 10.0.0.0/26\nalloc 10.0.0.5 node=b\n", verdict{delivered, "belongs to no node", ""}},
		"a block of load balancers":   {"block 10.0.0.0/26 virtual:load-balancer\nalloc 10.0.0.5 node=b\n", verdict{delivered, "belongs to no node", ""}},
		"a block of a node that left": {"block 10.0.0.0/26 gone\naffinity 10.0.0.0/26 gone\nalloc 10.0.0.5 node=b\n", verdict{delivered, "gone is not a node of the cluster", ""}},
		"an owner without affinity":   {"block 10.0.0.0/26 a\naffinity 10.0.0.64/26 a\nalloc 10.0.0.5 node=b\n", verdict{unsure, "a has no affinity to block 10.0.0.0/26", "on a: ip route get 10.0.0.5"}},
		"an owner's pending affinity": {"block 10.0.0.0/26 a\naffinity 10.0.0.0/26 a state=pending\nalloc 10.0.0.5 node=b\n", verdict{unsure, "no affinity", "ip route get"}},
		"an owner's in deletion":      {"block 10.0.0.0/26 a\naffinity 10.0.0.0/26 a state=pendingDeletion\nalloc 10.0.0.5 node=b\n", verdict{dropped, "share AS", ""}},
		"no affinities in a cluster":  {"live\nblock 10.0.0.0/26 a\nalloc 10.0.0.5 node=b\n", verdict{unsure, "a has no affinity to block 10.0.0.0/26", "on a: ip route get 10.0.0.5"}},
		"affinities were left out":    {"block 10.0.0.0/26 a\nalloc 10.0.0.5 node=b\n", verdict{dropped, "share AS", ""}},
		"affinities were not read":    {"block 10.0.0.0/26 a\ngap blockaffinities forbidden\nalloc 10.0.0.5 node=b\n", verdict{unsure, "no affinity of a to block 10.0.0.0/26 was read", "which nodes have affinities"}},
		"an affinity was not read":    {"block 10.0.0.0/26 a\naffinity 10.0.0.64/26 a\ngap blockaffinities name=x broken\nalloc 10.0.0.5 node=b\n", verdict{unsure, "no affinity of a to block 10.0.0.0/26 was read", "which nodes have affinities"}},
		"a block in no pool":          {"block 10.9.0.0/26 a\naffinity 10.9.0.0/26 a\nalloc 10.9.0.5 node=b\n", verdict{unsure, "is in no pool", "ip route get 10.9.0.5"}},
	} {
		check(t, name, state+c.state, c.want)
	}
}

// TestIPv6: sessions of the two families are separate.
func TestIPv6(t *testing.T) {
	const six = "pool p fd00::/64\nblock fd00::/122 a\naffinity fd00::/122 a\nalloc fd00::5 node=b\n"
	const both = "node a addr=172.16.0.1/24 addr=fd01::1/64\nnode b addr=172.16.0.2/24 addr=fd01::2/64\n"
	check(t, "mesh", both+six, verdict{delivered, "mesh", ""})
	check(t, "IPv4 alone", "node a addr=172.16.0.1/24\nnode b addr=172.16.0.2/24\nnode c addr=fd01::3/64\n"+six, verdict{dropped, "records no IPv6 address", ""})
	check(t, "a router of IPv4", both+offMesh+tor+six, verdict{dropped, "no BGPPeer gives a a session", ""})
	check(t, "a router of IPv6", both+offMesh+"peer tor ip=[fd01::9]:179 as=14907\n"+six, verdict{dropped, "share AS 64602 behind AS 14907", ""})
	check(t, "a filter of IPv4", both+offMesh+"filter f export=Reject,In,0.0.0.0/0\npeer all reflectors=all() filters=f\n"+six, verdict{delivered, "", ""})
	check(t, "a filter of IPv6", both+offMesh+"filter f export=Reject,In,fd00::/64,128-\npeer all reflectors=all() filters=f\n"+six, verdict{dropped, `BGPFilter "f"`, ""})
}

// TestTunnelAddresses: BIRD does not announce addresses of VXLAN and WireGuard devices to
// peers of its own AS.
func TestTunnelAddresses(t *testing.T) {
	const own = plain + "block 10.0.0.0/26 a\naffinity 10.0.0.0/26 a\n"
	check(t, "IPIP", nodes+own+"alloc 10.0.0.5 node=b type=ipipTunnelAddress\n", verdict{delivered, "mesh", ""})
	check(t, "WireGuard", nodes+own+"alloc 10.0.0.5 node=b type=wireguardTunnelAddress\n", verdict{dropped, "VXLAN and WireGuard devices", ""})
	check(t, "VXLAN to another AS", "node a addr=172.16.0.1/24 as=64701\nnode b addr=172.16.0.2/24\n"+own+"alloc 10.0.0.5 node=b type=vxlanTunnelAddress\n", verdict{delivered, "mesh", ""})
}
