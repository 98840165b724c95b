package affinity_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// without removes a kind of object from a snapshot, like a reader without the right to read
// it, or one object of it (i >= 0), like an undecodable one. It returns false if there is
// no such object.
func without(s *blocks.Snapshot, r blocks.Resource, i int) bool {
	gap := blocks.Gap{Resource: r, Reason: "forbidden"}
	named := func(n int, name func(int) string, drop func()) bool {
		if i >= n {
			return false
		}
		gap.Name, gap.Field, gap.Reason = name(i), "spec", "broken"
		drop()
		return true
	}
	found := true
	switch {
	case r == blocks.BGPPeers && i >= 0:
		found = named(len(s.BGPPeers), func(i int) string { return s.BGPPeers[i].Name }, func() { s.BGPPeers = append(s.BGPPeers[:i:i], s.BGPPeers[i+1:]...) })
	case r == blocks.BGPFilters && i >= 0:
		found = named(len(s.BGPFilters), func(i int) string { return s.BGPFilters[i].Name }, func() { s.BGPFilters = append(s.BGPFilters[:i:i], s.BGPFilters[i+1:]...) })
	case r == blocks.Affinities && i >= 0:
		found = named(len(s.Affinities), func(i int) string { return s.Affinities[i].Name }, func() { s.Affinities = append(s.Affinities[:i:i], s.Affinities[i+1:]...) })
	case r == blocks.Nodes && i >= 0:
		found = named(len(s.Nodes), func(i int) string { return s.Nodes[i].Name }, func() { s.Nodes = append(s.Nodes[:i:i], s.Nodes[i+1:]...) })
	case i >= 0:
		return false
	case r == blocks.Affinities:
		s.Affinities = nil
	case r == blocks.BGPConfigs:
		s.BGP = blocks.DefaultBGPConfig()
	case r == blocks.BGPPeers:
		s.BGPPeers = nil
	case r == blocks.BGPFilters:
		s.BGPFilters = nil
	case r == blocks.FelixConfigs:
		s.Felix = blocks.FelixConfig{}
	case r == blocks.Nodes:
		s.Nodes = nil
	case r == blocks.ClusterInfos:
		s.Info, s.Cluster.CalicoVersion = blocks.ClusterInfo{}, ""
	}
	s.Gaps = append(s.Gaps, gap)
	return found
}

// TestGapsProveNothing: if a kind or an object is missing from a state, the verdict is
// unknown or the same as for the complete state.
func TestGapsProveNothing(t *testing.T) {
	states := map[string]string{}
	for name, c := range birdCases {
		states[name] = c.state + pair
	}
	for name, c := range filterCases {
		states["filter "+name] = nodes + offMesh + plain + c.state + pair
	}
	for name, c := range felixCases {
		states["Felix, "+name] = c.state
	}
	skipped := 0
	for name, text := range states {
		whole := parse(t, text)
		if !whole.Complete() {
			continue
		}
		want := affinity.NewRouting(whole).Borrowed(borrowed(t, whole))
		for _, r := range []blocks.Resource{blocks.BGPConfigs, blocks.BGPPeers, blocks.BGPFilters, blocks.FelixConfigs, blocks.Nodes, blocks.ClusterInfos, blocks.Affinities} {
			for i := -1; ; i++ {
				s := parse(t, text)
				if !without(s, r, i) {
					break
				}
				got := affinity.NewRouting(s).Borrowed(borrowed(t, s))
				if got.Outcome != want.Outcome && got.Outcome != affinity.Unknown {
					t.Errorf("%s, without %s (%d): %s because %s; it is %s because %s", name, r, i, got.Outcome, got.Reason, want.Outcome, want.Reason)
				}
				if got.Outcome == affinity.Unknown && got.DecidedBy == "" {
					t.Errorf("%s, without %s (%d): not known because %s, and nothing would settle it", name, r, i, got.Reason)
				}
				if got.Outcome != want.Outcome {
					skipped++
				}
			}
		}
	}
	if skipped < 100 {
		t.Errorf("only %d verdicts were withheld: the test tests little", skipped)
	}
}

// TestGapsThatChangeNothing: an unread object withholds only the verdicts that depend on
// it.
func TestGapsThatChangeNothing(t *testing.T) {
	for name, c := range map[string]testCase{
		"one peer, under a mesh":         {nodes + plain + "gap bgppeers name=x broken\n", verdict{delivered, "mesh", ""}},
		"one peer, off the mesh":         {nodes + offMesh + tor + plain + "gap bgppeers name=x broken\n", verdict{unsure, "may carry a route", `BGPPeer "x"`}},
		"one peer, beside a reflector":   {nodes + rr + offMesh + toRR + plain + "gap bgppeers name=x broken\n", verdict{unsure, "may change the sessions", `BGPPeer "x"`}},
		"one filter, not used":           {nodes + rr + offMesh + toRR + plain + "gap bgpfilters name=x broken\n", verdict{delivered, "rr1", ""}},
		"another node":                   {nodes + plain + "gap nodes name=x broken\n", verdict{delivered, "mesh", ""}},
		"another node, off the mesh":     {nodes + offMesh + tor + plain + "gap nodes name=x broken\n", verdict{unsure, "may pass a route on", "what node x records"}},
		"the version, where it is one":   {nodes + plain + "version master\ngap clusterinformations forbidden\n", verdict{delivered, "mesh", ""}},
		"whole peers":                    {nodes + plain + "gap bgppeers forbidden\n", verdict{unsure, "forbidden", "bgppeers"}},
		"whole BGP configuration":        {nodes + plain + "gap bgpconfigurations forbidden\n", verdict{unsure, "forbidden", "bgpconfigurations"}},
		"whole affinities":               {nodes + plain + "gap blockaffinities forbidden\n", verdict{unsure, "may block the route", "which nodes have affinities"}},
		"whole nodes":                    {nodes + plain + "gap nodes forbidden\n", verdict{unsure, "forbidden", "nodes"}},
		"Felix's, where it is the same":  {nodes + plain + "gap felixconfigurations forbidden\n", verdict{delivered, "but the outcome is the same", ""}},
		"the pods of no BGP kind at all": {nodes + plain + "gap pods forbidden\n", verdict{delivered, "mesh", ""}},
	} {
		check(t, name, c.state+pair, c.want)
	}
}

// TestLostBlockRoutesOfPartialReads: routes are called lost only if no unread object may carry them.
func TestLostBlockRoutesOfPartialReads(t *testing.T) {
	const apart = nodes + offMesh + plain + "peer all nodes=all() reflectors=has(rr)\n"
	lost := func(text string) bool {
		s := parse(t, text)
		return affinity.NewRouting(s).LostBlockRoutes(&s.Pools[0], []*blocks.Node{&s.Nodes[0], &s.Nodes[1]}) != nil
	}
	if !lost(apart) {
		t.Error("nodes without a session have routes")
	}
	for _, gap := range []string{
		"bgppeers forbidden", "bgppeers name=x broken", "bgpconfigurations forbidden", "bgpconfigurations name=default broken",
		"felixconfigurations forbidden", "felixconfigurations name=default broken", "nodes forbidden", "nodes name=x broken",
	} {
		if lost(apart + "gap " + gap + "\n") {
			t.Errorf("although %s, routes are lost", gap)
		}
	}
}
