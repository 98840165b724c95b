package metrics

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// starved is a cluster whose pool has no block left, where n3 borrows. In its topology
// owners drop the traffic to borrowed addresses.
const starved = borrowing + "bgp mesh=off\n"

// TestInconclusive: if a check has no verdict because a kind could not be read, it has no
// series of findings, not even 0, and check_success is 0. The alert rules then keep its
// earlier findings. The report names the skipped parts, and confirmed findings stay
// confirmed once the kind can be read again.
func TestInconclusive(t *testing.T) {
	for _, c := range []struct {
		gap    string
		checks string
	}{
		{"pods", "pool/no-free-blocks pool/low-free-blocks config/strict-affinity ip/borrowed route/blackhole"},
		{"nodes", "pool/no-free-blocks pool/low-free-blocks config/strict-affinity ip/borrowed route/blackhole"},
		{"namespaces", "pool/no-free-blocks config/strict-affinity"},
		{"ipamconfigs", "pool/no-free-blocks config/strict-affinity"},
		{"bgppeers", "route/blackhole config/strict-affinity"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFed(t)
			f.is(starved)
			played(t, f, ExporterOptions{NodeMetrics: true}, func(e *Exporter) {
				pass(5 * time.Second)
				if critical(e) == 0 || value(t, e, "calico_audit_findings", "check", "pool/no-free-blocks", "severity", "critical") != 1 {
					t.Fatalf("%d critical findings", critical(e))
				}
				readings := f.readings.Load()
				f.is(starved + "gap " + c.gap + " forbidden\n")
				pass(5 * time.Second)
				for _, check := range strings.Fields(c.checks) {
					if found, ok := value(t, e, "calico_audit_findings", "check", check), value(t, e, "calico_audit_check_success", "check", check); found != -1 || ok != 0 {
						t.Errorf("without %s: %s has %v findings, success %v", c.gap, check, found, ok)
					}
					if !slices.ContainsFunc(e.Current().Report.SkippedChecks, func(s audit.Skipped) bool { return s.Check == check }) {
						t.Errorf("without %s: the report does not say that %s withheld", c.gap, check)
					}
				}
				for _, name := range []string{"pool_borrowed_addresses", "node_borrowed_addresses", "node_lent_addresses"} {
					known := c.gap != "pods" && c.gap != "nodes"
					if got := value(t, e, "calico_audit_"+name); got >= 0 != known {
						t.Errorf("without %s: %s is %v", c.gap, name, got)
					}
				}
				f.is(starved)
				pass(1500 * time.Millisecond)
				if got := value(t, e, "calico_audit_findings", "check", "pool/no-free-blocks", "severity", "critical"); got != 1 || f.readings.Load() != readings {
					t.Errorf("%s can be read again: %v critical, %d readings", c.gap, got, f.readings.Load()-readings)
				}
			})
		})
	}
}

// TestFailingCheck: a check that fails has no verdict, and the others have theirs.
func TestFailingCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(starved)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			pass(5 * time.Second)
			broken := &audit.Check{ID: "pool/broken", Run: func(*state.State, *audit.Findings) { panic("a bug") }}
			whole, err := checks.All.ByID("ip/borrowed")
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.evaluate(f.now, []*audit.Check{broken, whole})
			if err != nil || !slices.Equal(got.result.Inconclusive, []string{broken.ID}) || len(got.result.Skipped) != 1 || len(got.result.Findings) == 0 {
				t.Errorf("got %+v, %v", got, err)
			}
			for _, c := range got.checks {
				if c.evaluated != (c.id != broken.ID) {
					t.Errorf("%s counts as a success: %t", c.id, c.evaluated)
				}
			}
		})
	})
}

// TestHostViews: without host views, checks of host views have no series at all, because
// they neither have a verdict nor fail.
func TestHostViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(starved)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			pass(3 * time.Second)
			for _, c := range checks.All {
				want := 1.0
				if c.ID == "route/stray-blackhole" || c.ID == "ip/host-in-use" {
					want = -1
				}
				if got := value(t, e, "calico_audit_check_success", "check", c.ID); got != want {
					t.Errorf("%s: success %v", c.ID, got)
				}
				if got := value(t, e, "calico_audit_findings", "check", c.ID); got >= 0 != (want == 1) {
					t.Errorf("%s: %v findings", c.ID, got)
				}
			}
			f.mu.Lock()
			seen := *f.now
			seen.Hosts.Views = []blocks.HostView{{Node: "n1", TakenAt: time.Now()}}
			f.now = &seen
			f.mu.Unlock()
			f.changed <- struct{}{}
			pass(2 * time.Second)
			if got := value(t, e, "calico_audit_findings", "check", "ip/host-in-use"); got != 0 {
				t.Errorf("with a host view, ip/host-in-use has %v findings", got)
			}
		})
	})
}

// TestHostViewsPause: a confirmed finding about a host view counts at once when the views
// return, even if an audit in between had none.
func TestHostViewsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		const seen = calm + "view n1 complete\nnetns n1 42 10.0.0.9\n"
		f.is(seen)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			pass(5 * time.Second)
			readings := f.readings.Load()
			if critical(e) != 1 || readings == 0 {
				t.Fatalf("%d critical, %d readings", critical(e), readings)
			}
			f.is(calm)
			pass(5 * time.Second)
			if critical(e) != 0 {
				t.Errorf("without views: %d critical", critical(e))
			}
			f.is(seen)
			pass(1500 * time.Millisecond)
			if critical(e) != 1 || skipped(e) != 0 || f.readings.Load() != readings {
				t.Errorf("the views are back: %d critical, %d withheld, %d more readings", critical(e), skipped(e), f.readings.Load()-readings)
			}
		})
	})
}

// TestFailure: an audit that fails inside the program is counted as an error. The exporter
// continues and the state gets older.
func TestFailure(t *testing.T) {
	for what, o := range map[string]ExporterOptions{
		"the state":  {},
		"the report": {Mutes: &audit.Mutes{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFed(t)
			o.MaxAge = 3 * time.Minute
			played(t, f, o, func(e *Exporter) {
				f.is(calm)
				pass(3 * time.Second)
				at, errs := e.Current().Report.Cluster.TakenAt, value(t, e, "calico_audit_audit_errors_total")
				if o.Mutes != nil {
					o.Mutes.Baselines = []*audit.Baseline{nil}
				}
				later := known(t, calm, time.Now())
				if o.Mutes == nil {
					later.Pools[0].BlockSize = 300 // no reader would accept this
				}
				for range 50 { // only the time advances
					next := *later
					next.Cluster.TakenAt = time.Now()
					later = &next
					f.mu.Lock()
					f.now = later
					f.mu.Unlock()
					f.changed <- struct{}{}
					pass(5 * time.Second)
				}
				if got := e.Current().Report.Cluster.TakenAt; !got.Equal(at.Time) {
					t.Errorf("%s fails: the last audit was of %s, and claims to be of %s", what, at, got)
				}
				if value(t, e, "calico_audit_audit_errors_total") <= errs {
					t.Errorf("%s fails: no error is counted", what)
				}
				if status, _ := ask(e, "/readyz"); status != 503 {
					t.Errorf("%s fails for four minutes: /readyz answers %d", what, status)
				}
				if o.Mutes != nil {
					o.Mutes.Baselines = nil
				}
				f.is(unrecorded)
				pass(30 * time.Second)
				if critical(e) != 1 {
					t.Errorf("%s does not fail any more: %d critical findings", what, critical(e))
				}
			})
		})
	}
}

// loses makes kinds stale; the others are current.
func (f *fed) loses(kinds ...blocks.Resource) {
	s := known(f.t, unrecorded, time.Now())
	for _, r := range kinds {
		s.Gaps = append(s.Gaps, blocks.Gap{Resource: r, Reason: "not current since then", Stale: true})
	}
	f.mu.Lock()
	f.now = s
	f.mu.Unlock()
	f.changed <- struct{}{}
}

// TestStaggered: in an outage some kinds are stale before others, and some are back before others.
// Findings survive both. If one kind stays stale while the others are current, only the others
// count.
func TestStaggered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		found := true
		played(t, f, ExporterOptions{after: func(_ context.Context, a *Audit) {
			if found && a.Report.Summary.Critical != 1 {
				t.Errorf("%d critical findings, gaps %v", a.Report.Summary.Critical, a.Report.Gaps)
			}
		}}, func(e *Exporter) {
			f.is(unrecorded)
			pass(5 * time.Second)
			holds := func(when string, gaps int) {
				t.Helper()
				if critical(e) != 1 || value(t, e, "calico_audit_snapshot_complete") != 0 || len(e.Current().Report.Gaps) != gaps {
					t.Errorf("%s: %d critical, gaps %v", when, critical(e), e.Current().Report.Gaps)
				}
				if got := value(t, e, "calico_audit_check_success", "check", "ip/unallocated"); got != 1 {
					t.Errorf("%s: success %v", when, got)
				}
			}
			f.loses(blocks.Pods)
			pass(5 * time.Second)
			holds("one kind is stale first", 1)
			f.loses(blocks.Resources...)
			pass(time.Hour)
			holds("all are stale", len(blocks.Resources))
			f.loses(blocks.Resources[1:]...)
			pass(5 * time.Second)
			holds("one kind is back", len(blocks.Resources)-1)
			for range 4 {
				f.loses(blocks.Blocks)
				pass(20 * time.Second)
				holds("all but one are back", 1)
			}
			found = false
			for range 4 {
				f.loses(blocks.Blocks)
				pass(20 * time.Second)
			}
			if got := value(t, e, "calico_audit_check_success", "check", "ip/unallocated"); got != 0 || critical(e) != 0 {
				t.Errorf("one kind stays away: success %v, %d critical", got, critical(e))
			}
			f.is(unrecorded)
			pass(2 * time.Second)
			if critical(e) != 1 || !e.Current().Report.Complete {
				t.Errorf("all are back: %d critical, gaps %v", critical(e), e.Current().Report.Gaps)
			}
		})
	})
}
