package capacity_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// trace is a script that the IPAM client of v3.32.1 played, with its results; see
// testdata/README.md.
type trace struct {
	Seed   uint64
	Strict bool
	Pools  []struct {
		Name, CIDR, Zone string
		BlockSize        int
	}
	Nodes map[string]string
	Steps []struct {
		Op, Node, IP string
		Six          bool
	}
	Blocks map[string]string
}

func (tr *trace) state(t *testing.T) *state.State {
	t.Helper()
	s := &blocks.Snapshot{IPAM: blocks.DefaultIPAMConfig(), Cluster: blocks.Cluster{CalicoVersion: "v3.32.1", TakenAt: time.Unix(1e9, 0)}}
	s.IPAM.StrictAffinity = tr.Strict
	for _, p := range tr.Pools {
		pool := blocks.Pool{
			Meta: blocks.Meta{Name: p.Name}, CIDR: netip.MustParsePrefix(p.CIDR), BlockSize: p.BlockSize,
			Automatic: true, Uses: []blocks.Use{blocks.UseWorkload},
		}
		if p.Zone != "" {
			pool.NodeSelector = "zone == '" + p.Zone + "'"
		}
		s.Pools = append(s.Pools, pool)
	}
	for name, zone := range tr.Nodes {
		s.Nodes = append(s.Nodes, blocks.Node{Meta: blocks.Meta{Name: name}, Labels: map[string]string{"zone": zone}})
	}
	return state.New(s, state.Options{})
}

// TestAllocatorAgreesWithV332: the Allocator does the same as the v3.32.1 client, which
// takes over empty blocks of other nodes.
func TestAllocatorAgreesWithV332(t *testing.T) {
	raw, err := os.ReadFile("testdata/calico-v3.32.1.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines, reclaimed := bytes.Split(bytes.TrimSpace(raw), []byte("\n")), 0
	for _, line := range lines {
		var tr trace
		if err := json.Unmarshal(line, &tr); err != nil {
			t.Fatal(err)
		}
		a := capacity.NewAllocator(tr.state(t))
		for i, s := range tr.Steps {
			switch s.Op {
			case "wait":
				a.Age()
			case "release":
				ip := netip.MustParsePrefix(s.IP)
				a.Release(ip.Masked(), ip.Addr())
			case "assign":
				var want netip.Prefix
				if s.IP != "" {
					want = netip.MustParsePrefix(s.IP)
				}
				family := blocks.IPv4
				if s.Six {
					family = blocks.IPv6
				}
				before := a.Owned()
				got := a.Assign(capacity.Request{Node: s.Node, Family: family, Use: blocks.UseWorkload})
				if got.Addr != want.Addr() || got.Addr.IsValid() && got.Block != want.Masked() {
					t.Fatalf("trace %d, step %d: %s gets %+v, and v3.32.1 gave it %v", tr.Seed, i, s.Node, got, want)
				}
				if had := before[got.Block]; got.Claimed && had != "" {
					reclaimed++
				}
			}
		}
		owned := a.Owned()
		for cidr, owner := range tr.Blocks {
			if p := netip.MustParsePrefix(cidr); owned[p] != owner {
				t.Errorf("trace %d: block %s is of %q, in v3.32.1 of %q", tr.Seed, cidr, owned[p], owner)
			}
		}
		if len(owned) != len(tr.Blocks) {
			t.Errorf("trace %d: there are %d blocks, in v3.32.1 %d", tr.Seed, len(owned), len(tr.Blocks))
		}
	}
	if len(lines) < 20 || reclaimed < 20 {
		t.Errorf("%d traces with %d blocks that were taken from another node try too little", len(lines), reclaimed)
	}
}
