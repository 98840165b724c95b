package page

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// loadReport reads a handwritten report of package view.
func loadReport(t testing.TB, name string) *audit.Report {
	t.Helper()
	r := new(audit.Report)
	if err := json.Unmarshal([]byte(viewData(t, filepath.Join("reports", name+".json"))), r); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return r
}

func viewData(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// testOptions returns options without values that change between runs.
func testOptions() Options {
	return Options{Options: view.Options{
		Source: "dump/", ReportArgs: "-f dump/", Now: time.Date(2026, 2, 3, 9, 0, 0, 0, time.UTC),
		Why: func(check string) string { return "Why " + check + " matters to those who run pods in the cluster." },
	}}
}

// everyState is a report whose maps contain every glyph and mark.
func everyState(t testing.TB) *audit.Report {
	t.Helper()
	s, err := statedsl.Parse(viewData(t, "every-state.txt"))
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(s, state.Options{})
	return audit.NewReport(st, audit.Run(st, checks.All))
}

// pictures returns the reports with golden maps: three shipped snapshots, an empty cluster,
// and generated ones.
func pictures(t testing.TB) map[string]*audit.Report {
	t.Helper()
	return map[string]*audit.Report{
		"story": snapshotReport(t, "story"), "healthy": snapshotReport(t, "healthy"), "dual-stack": snapshotReport(t, "dual-stack"),
		"empty": loadReport(t, "empty"), "16384": crowdedReport(), "states": everyState(t),
	}
}

// crowdedReport has a pool of 16,384 slots with 9,000 blocks at its beginning and some far
// away, owned by 4,000 nodes.
func crowdedReport() *audit.Report {
	r := &audit.Report{Complete: true, Pools: []audit.PoolReport{{Name: "pods", CIDR: "10.0.0.0/12", BlockSize: 26}}}
	for i := range 16384 {
		if i >= 9000 && i%1024 != 7 {
			continue
		}
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i << 6)}), 26)
		b := audit.BlockReport{CIDR: cidr.String(), Pool: "pods", Owner: fmt.Sprintf("host:node-%04d", i*7919%4000), InUse: i * 31 % 65}
		b.Available = 64 - b.InUse
		if i == 4321 {
			b.Conditions = []audit.Condition{audit.BlockCorrupt}
		}
		if i%500 == 99 {
			b.LentTo, b.Lent = []string{"new-1"}, 1
		}
		r.Blocks = append(r.Blocks, b)
	}
	return r
}
