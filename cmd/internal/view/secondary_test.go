package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// secondaryPool returns a Whereabouts pool with the given numbers; a capacity of -1 is
// unknown.
func secondaryPool(name string, used, capacity int) audit.WhereaboutsPoolReport {
	p := audit.WhereaboutsPoolReport{Name: name, Range: "10.9.0.0/24", InUse: blocks.CountOf(used)}
	if capacity >= 0 {
		all, left := blocks.CountOf(capacity), blocks.CountOf(capacity-used)
		p.Capacity, p.Available = &all, &left
	}
	return p
}

// TestSecondaryPools: table and Markdown list Whereabouts pools, the fullest first, up to a
// limit. Without any, neither mentions Whereabouts.
func TestSecondaryPools(t *testing.T) {
	r := loadReport(t, "healthy")
	table, document := render(t, "table", r, testOptions(100)), render(t, "markdown", r, testOptions(100))
	if strings.Contains(table+document+render(t, "json", r, testOptions(100)), "hereabouts") {
		t.Error("a report without Whereabouts speaks of it")
	}
	r.WhereaboutsPools = []audit.WhereaboutsPoolReport{secondaryPool("kube-system/roomy", 1, 254), secondaryPool("kube-system/endless", 7, -1), secondaryPool("kube-system/full", 254, 254)}
	r.WhereaboutsPools[2].Network = "fast|net"
	got := render(t, "table", r, testOptions(100))
	want := strings.Split(`WHEREABOUTS POOL     RANGE        NETWORK    IN USE        AVAIL
kube-system/full     10.9.0.0/24  fast|net  254/254  100%      0
kube-system/roomy    10.9.0.0/24  -           1/254   <1%    253
kube-system/endless  10.9.0.0/24  -             7/-     -      -`, "\n")
	for _, line := range want {
		if !strings.Contains(got, line) {
			t.Errorf("the table lacks %q:\n%s", line, got)
		}
	}
	got = render(t, "markdown", r, testOptions(100))
	for _, line := range []string{"| `kube-system/full` | `10.9.0.0/24` | `fast\\|net` | 254/254 | 0 |\n", "| `kube-system/endless` | `10.9.0.0/24` | | 7 |  |\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("Markdown lacks %q:\n%s", line, got)
		}
	}
	if narrow := render(t, "table", r, testOptions(50)); !strings.Contains(narrow, "Whereabouts pool kube-system/full\n  addresses  254 of 254 in use (100%), 0") {
		t.Errorf("a narrow table is\n%s", narrow)
	}
	for i := range 40 {
		r.WhereaboutsPools = append(r.WhereaboutsPools, secondaryPool(fmt.Sprintf("kube-system/more-%d", i), 0, 254))
	}
	if got := render(t, "table", r, testOptions(100)); !strings.Contains(got, "… and 31 more with more room") || strings.Contains(got, "more-39") || strings.Contains(render(t, "wide", r, testOptions(100)), "with more room") {
		t.Errorf("of 43 pools the table shows\n%s", got)
	}
	if got := render(t, "markdown", r, testOptions(100)); !strings.Contains(got, "… and 33 more Whereabouts pools") || strings.Contains(got, "more-39") {
		t.Errorf("of 43 pools Markdown shows\n%s", got)
	}
}
