package affinity_test

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/internal/sketch"
)

// TestPredictBorrowed goes through who programs a pool's routes and what BGP
// makes of a borrowed address, as far as the cluster's objects tell.
func TestPredictBorrowed(t *testing.T) {
	const offMesh = "bgp nomesh as=64602\n"
	for name, c := range map[string]struct {
		state  string
		want   affinity.Fate
		reason string
	}{
		"VXLAN":                       {offMesh + "peer tor as=14907\npool p 10.0.0.0/24 vxlan=CrossSubnet", affinity.Delivered, "VXLAN"},
		"mesh":                        {"pool p 10.0.0.0/24", affinity.Delivered, "mesh"},
		"kept from BGP":               {"pool p 10.0.0.0/24 noexport", affinity.Dropped, "disableBGPExport"},
		"one AS behind another":       {offMesh + "peer tor as=14907\npool p 10.0.0.0/24", affinity.Dropped, "all nodes share AS 64602 behind AS 14907"},
		"IPIP, which BIRD routes":     {offMesh + "peer tor as=14907\npool p 10.0.0.0/24 ipip=Always", affinity.Dropped, "AS 14907"},
		"IPIP on Calico v3.33":        {"version v3.33.0\n" + offMesh + "peer tor as=14907\npool p 10.0.0.0/24 ipip=Always", affinity.Delivered, "Felix"},
		"no encapsulation on v3.33":   {"version v3.33.0\n" + offMesh + "peer tor as=14907\npool p 10.0.0.0/24", affinity.Dropped, "AS 14907"},
		"nodes with AS of their own":  {offMesh + "peer tor as=14907\nnode a as=64700\npool p 10.0.0.0/24", affinity.Unknown, "AS numbers of their own"},
		"their own AS is accepted":    {offMesh + "peer tor as=14907 localas=1\npool p 10.0.0.0/24", affinity.Unknown, "numAllowedLocalASNumbers"},
		"only some nodes peer":        {offMesh + "peer tor as=14907 nodes=rack=='a'\npool p 10.0.0.0/24", affinity.Unknown, "some nodes only"},
		"reflectors, whatever else":   {offMesh + "peer a-tor as=14907\npeer z-rr reflectors=has(rr)\npool p 10.0.0.0/24", affinity.Delivered, "route reflectors in the cluster"},
		"an outside reflector":        {offMesh + "peer rr as=64602\npool p 10.0.0.0/24", affinity.Unknown, "outside route reflector"},
		"a reflector beside a router": {offMesh + "peer tor as=14907\npeer rr as=64602\npool p 10.0.0.0/24", affinity.Unknown, "outside route reflector"},
		"no peer at all":              {offMesh + "pool p 10.0.0.0/24", affinity.Unknown, "no BGPPeer"},
		"peers were not read":         {"gap bgppeers forbidden\npool p 10.0.0.0/24", affinity.Unknown, "a read is missing"},
	} {
		snap, err := sketch.Parse(c.state)
		if err != nil {
			t.Fatal(err)
		}
		snap.Sort()
		got := affinity.PredictBorrowed(snap, &snap.Pools[0])
		if got.Fate != c.want || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: %s, %s; want %s because of %q", name, got.Fate, got.Reason, c.want, c.reason)
		}
	}
}

// TestJudge: the block's own record of its owner decides how an affinity stands.
func TestJudge(t *testing.T) {
	snap, err := sketch.Parse(`
block 10.0.0.0/26 a
affinity 10.0.0.0/26 a
affinity 10.0.0.0/26 b
affinity 10.0.0.0/26 a state=pendingDeletion
affinity 10.0.0.64/26 a
`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []affinity.Standing{affinity.Confirmed, affinity.NotOwner, affinity.Unsettled} {
		if got := affinity.Judge(&snap.Affinities[i], &snap.Blocks[0]); got != want {
			t.Errorf("affinity %d: %d, want %d", i, got, want)
		}
	}
	if got := affinity.Judge(&snap.Affinities[3], nil); got != affinity.NoBlock {
		t.Errorf("without a block: %d", got)
	}
}

// TestBlackholes: BIRD skips pending affinities, single addresses, and pools
// whose routes are not its own.
func TestBlackholes(t *testing.T) {
	for line, want := range map[string]bool{
		"affinity 10.0.0.0/26 a":                       true,
		"affinity 10.0.0.0/26 a state=pendingDeletion": true,
		"affinity 10.0.0.0/26 a state=pending":         false,
		"affinity 10.0.0.0/32 a":                       false,
		"affinity 10.1.0.0/26 a":                       false,
	} {
		snap, err := sketch.Parse("pool p 10.0.0.0/24\npool v 10.1.0.0/24 vxlan=Always\n" + line)
		if err != nil {
			t.Fatal(err)
		}
		pool := &snap.Pools[0]
		if strings.Contains(line, "10.1.") {
			pool = &snap.Pools[1]
		}
		if got := affinity.Blackholes(snap, &snap.Affinities[0], pool); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{"v3.32.0": true, "v3.33.0-0.dev": true, "v4.0.0": true, "3.32": true, "v3.31.7": false, "": false, "master": false} {
		if got := affinity.AtLeast(version, 3, 32); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}
