package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// fed is a source that the test feeds.
type fed struct {
	t       *testing.T
	changed chan struct{}

	mu       sync.Mutex
	now      *blocks.Snapshot
	second   func() (*blocks.Snapshot, error) // result of a second reading; nil: the present snapshot
	readings atomic.Int32
	looks    atomic.Int32 // number of calls of Snapshot
}

func newFed(t *testing.T) *fed { return &fed{t: t, changed: make(chan struct{}, 1)} }

func (f *fed) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (f *fed) Changed() <-chan struct{}      { return f.changed }
func (f *fed) Restarts() map[blocks.Resource]uint64 {
	return map[blocks.Resource]uint64{blocks.Pods: 3}
}

func (f *fed) Snapshot() *blocks.Snapshot {
	f.looks.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fed) Reread(_ context.Context, _ *blocks.Snapshot, rs []blocks.Resource, _ []string) (*blocks.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readings.Add(1)
	if len(rs) == 0 {
		f.t.Error("a second reading of nothing")
	}
	if f.second != nil {
		return f.second()
	}
	return f.now, nil
}

// is sets the present state.
func (f *fed) is(text string) {
	f.mu.Lock()
	f.now = known(f.t, text, time.Now())
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// reads sets the result of a second reading.
func (f *fed) reads(second func() (*blocks.Snapshot, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.second = second
}

func known(t *testing.T, text string, at time.Time) *blocks.Snapshot {
	t.Helper()
	s, err := statedsl.Parse("at " + at.UTC().Format(time.RFC3339) + "\nlive\n" + text)
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster.TakenAt = at
	s.Sort()
	return s
}

// The states of the tests: a healthy cluster, and the same with a pod whose address no
// block records.
const (
	calm = `
controllers grace=15m
bgp
namespace default
pool pods 10.0.0.0/24 26
node n1
node n2
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
block 10.0.0.64/26 n2
affinity 10.0.0.64/26 n2
use 10.0.0.1 a n1
use 10.0.0.65 b n2
handle k8s-pod-network.a 10.0.0.0/26=1
handle k8s-pod-network.b 10.0.0.64/26=1
`
	unrecorded = calm + "pod c n1 10.0.0.9\n"
)

// played runs an exporter in a synctest bubble until the test ends.
func played(t *testing.T, f *fed, o ExporterOptions, test func(*Exporter)) {
	t.Helper()
	o.Source = f
	o.JSON = func(w io.Writer, r *audit.Report) error { return json.NewEncoder(w).Encode(r) }
	o.Text = func(w io.Writer, _ *audit.Report) error { _, err := io.WriteString(w, "for people"); return err }
	e := NewExporter(o)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	test(e)
	end()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// pass advances the clock and waits for everything that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func critical(e *Exporter) int { return e.Current().Report.Summary.Critical }

func skipped(e *Exporter) int {
	n := 0
	for _, s := range e.Current().Report.SkippedChecks {
		if strings.Contains(s.Reason, "withheld") {
			n++
		}
	}
	return n
}

func ask(e *Exporter, path string) (int, string) {
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// TestPace: the first audit follows the first listing. During changes, audits are a second
// apart, and the last change is known in less than two. Without changes they are --interval
// apart.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		var mu sync.Mutex
		var times []time.Time
		o := ExporterOptions{after: func(context.Context, *Audit) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Now())
		}}
		audits := func() []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(times)
		}
		played(t, f, o, func(e *Exporter) {
			pass(time.Minute)
			if status, why := ask(e, "/readyz"); e.Current() != nil || status != 503 || !strings.Contains(why, "not been audited yet") {
				t.Errorf("before anything was listed: %d %s", status, why)
			}
			f.is(calm)
			pass(time.Second)
			if status, why := ask(e, "/readyz"); status != 200 {
				t.Errorf("after the first audit: %d %s", status, why)
			}
			for range 1000 {
				f.is(calm)
				time.Sleep(20 * time.Millisecond)
			}
			f.is(calm + "node last\n")
			changed := time.Now()
			for e.Current().Report.Summary.Nodes != 3 {
				pass(10 * time.Millisecond)
			}
			if took := time.Since(changed); took >= 2*time.Second {
				t.Errorf("a change was known after %s", took)
			}
			began := audits()
			for i := range began[1:] {
				if gap := began[i+1].Sub(began[i]); gap < time.Second || gap > 2*time.Second {
					t.Errorf("audits are %s apart", gap)
				}
			}
			n := len(began)
			if n < 15 {
				t.Errorf("in twenty seconds of changes there were %d audits", n)
			}
			for range 10 { // time advances without a signal
				f.mu.Lock()
				f.now = known(t, calm, time.Now())
				f.mu.Unlock()
				pass(DefaultInterval)
			}
			if quiet := len(audits()) - n; quiet < 9 || quiet > 11 {
				t.Errorf("in ten intervals without a change there were %d audits", quiet)
			}
		})
	})
}

// goesOn advances the time of the present state without changing it.
func (f *fed) goesOn() {
	f.mu.Lock()
	later := *f.now
	later.Cluster.TakenAt = time.Now()
	f.now = &later
	f.mu.Unlock()
	f.changed <- struct{}{}
}

// TestTime: if only the source's time advances, the state's time follows without an audit.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			f.is(calm)
			pass(3 * time.Second)
			for range 60 {
				f.goesOn()
				at := time.Now()
				pass(5 * time.Second)
				if got := e.Current().Report.Cluster.TakenAt; !got.Equal(at) {
					t.Errorf("the state is known as of %s, and the metrics say %s", at, got)
				}
			}
			if audits := e.audits.Load(); audits > 3 {
				t.Errorf("in five minutes without a change there were %d audits", audits)
			}
			f.mu.Lock()
			later := *f.now
			later.Info.Locked = true
			f.now = &later
			f.mu.Unlock()
			f.changed <- struct{}{}
			pass(2 * time.Second)
			if value(t, e, "calico_audit_datastore_locked") != 1 {
				t.Error("a setting that was changed is not known")
			}
		})
	})
}

// TestAges: a verdict that depends on an age, or on the end of a mute rule, changes as soon
// as the source is known to be current at that time.
func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		ends := time.Now().Add(7 * time.Minute)
		o := ExporterOptions{Interval: time.Hour, Mutes: &audit.Mutes{Rules: []audit.MuteRule{{Until: ends}}}}
		played(t, f, o, func(e *Exporter) {
			began := time.Now()
			f.is(calm + "block 10.0.0.128/26 n1 age=14m\naffinity 10.0.0.128/26 n1\nblock 10.0.0.192/26 n2 age=12m30s\naffinity 10.0.0.192/26 n2\n")
			pass(time.Second)
			var releasable, muted []time.Duration
			was := [2]float64{0, 0}
			for time.Since(began) < 10*time.Minute {
				f.goesOn()
				pass(1500 * time.Millisecond)
				now := [2]float64{value(t, e, "calico_audit_pool_releasable_blocks", "ippool", "pods"), value(t, e, "calico_audit_findings_muted")}
				if now[0] != was[0] {
					releasable = append(releasable, time.Since(began))
				}
				if now[1] == 0 && was[1] > 0 {
					muted = append(muted, time.Since(began))
				}
				was = now
			}
			for _, c := range []struct {
				what      string
				got, want []time.Duration
			}{
				{"empty blocks were releasable", releasable, []time.Duration{time.Minute, 150 * time.Second}},
				{"the rule ended", muted, []time.Duration{7 * time.Minute}},
			} {
				if !slices.EqualFunc(c.got, c.want, func(got, want time.Duration) bool { return got >= want && got <= want+3*time.Second }) {
					t.Errorf("%s after %s, want %s", c.what, c.got, c.want)
				}
			}
			if audits := e.audits.Load(); audits > 6 {
				t.Errorf("there were %d audits", audits)
			}
		})
	})
}

// TestLongAudits: during changes, long audits take at most a twentieth of the time, unless
// a change would wait too long. A change after a quiet period does not wait.
func TestLongAudits(t *testing.T) {
	for _, c := range []struct{ took, share, latest time.Duration }{ // share of a hundred seconds
		{100 * time.Millisecond, 5 * time.Second, 2300 * time.Millisecond},
		{300 * time.Millisecond, 5 * time.Second, 6600 * time.Millisecond},
		{500 * time.Millisecond, 8 * time.Second, 7200 * time.Millisecond},
		{3 * time.Second, 20 * time.Second, 18200 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFed(t)
			var spent atomic.Int64
			o := ExporterOptions{after: func(context.Context, *Audit) {
				time.Sleep(c.took)
				spent.Add(int64(c.took))
			}}
			played(t, f, o, func(e *Exporter) {
				f.is(calm)
				node := 0
				// known renames a node, and returns how long it took until the report shows
				// it.
				known := func() time.Duration {
					node++
					name := fmt.Sprintf("renamed-%d", node)
					f.is(calm + "node " + name + "\n")
					changed := time.Now()
					for !slices.ContainsFunc(e.Current().Report.Nodes, func(n audit.NodeReport) bool { return n.Name == name }) {
						pass(20 * time.Millisecond)
					}
					return time.Since(changed)
				}
				pass(time.Minute)
				for range 3 {
					if took := known(); took > debounce+20*time.Millisecond {
						t.Errorf("audits of %s: after a quiet spell, a change is known after %s", c.took, took)
					}
					pass(time.Minute)
				}
				spent.Store(0)
				began, latest := time.Now(), time.Duration(0)
				for time.Since(began) < 10*time.Minute {
					latest = max(latest, known())
				}
				if share := time.Duration(float64(spent.Load()) / time.Since(began).Seconds() * 100); share > c.share+c.share/8 {
					t.Errorf("audits of %s took %s of a hundred seconds", c.took, share)
				}
				if latest > c.latest {
					t.Errorf("audits of %s: a change was known after %s", c.took, latest)
				}
			})
		})
	}
}

// TestSecondReading: a finding about an absent object is withheld and named until a second
// reading confirms it. Once confirmed it causes no more readings, and it ends with its
// cause.
func TestSecondReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			f.is(calm)
			pass(10 * time.Second)
			f.is(unrecorded)
			pass(1500 * time.Millisecond)
			if critical(e) != 0 || skipped(e) != 1 || f.readings.Load() != 0 {
				t.Errorf("when it is new: %d critical, %d withheld, %d readings", critical(e), skipped(e), f.readings.Load())
			}
			if got := value(t, e, "calico_audit_findings_unconfirmed"); got != 1 {
				t.Errorf("%v findings count as unconfirmed", got)
			}
			pass(3 * time.Second)
			if critical(e) != 1 || skipped(e) != 0 || f.readings.Load() != 1 || !e.Current().Report.Complete {
				t.Errorf("after a second reading: %d critical, %d withheld, %d readings", critical(e), skipped(e), f.readings.Load())
			}
			for range 120 {
				f.is(unrecorded)
				pass(time.Second)
			}
			if critical(e) != 1 || f.readings.Load() != 1 {
				t.Errorf("after two minutes: %d critical, %d readings", critical(e), f.readings.Load())
			}
			f.is(calm)
			pass(2 * time.Second)
			if critical(e) != 0 || skipped(e) != 0 {
				t.Errorf("when it is gone: %d critical, %d withheld", critical(e), skipped(e))
			}
		})
	})
}

// TestPassing: pods come and go, each briefly without a record. None of them is reported or
// causes a second reading, however far apart the audits are.
func TestPassing(t *testing.T) {
	for _, took := range []time.Duration{0, 600 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := newFed(t)
			played(t, f, ExporterOptions{after: func(_ context.Context, a *Audit) {
				time.Sleep(took)
				if n := a.Report.Summary.Critical; n > 0 {
					t.Errorf("%d critical findings", n)
				}
			}}, func(*Exporter) {
				f.is(calm)
				pass(5 * time.Second)
				for i := range 300 {
					f.is(fmt.Sprintf("%spod c n1 10.0.0.%d\n", calm, 2+i%50))
					pass(time.Second)
				}
				if f.readings.Load() > 0 {
					t.Errorf("audits of %s: %d readings", took, f.readings.Load())
				}
			})
		})
	}
}

// TestDoubtful: a second reading that disagrees keeps a finding back. A second reading that
// fails makes the report incomplete. Readings are far apart.
func TestDoubtful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			f.is(calm)
			pass(10 * time.Second)
			f.reads(func() (*blocks.Snapshot, error) { time.Sleep(3 * time.Second); return known(t, calm, time.Now()), nil })
			f.is(unrecorded)
			pass(time.Minute)
			if critical(e) != 0 || skipped(e) != 1 || f.readings.Load() < 2 || f.readings.Load() > 3 {
				t.Errorf("not found again: %d critical, %d withheld, %d readings", critical(e), skipped(e), f.readings.Load())
			}
			f.reads(func() (*blocks.Snapshot, error) { return nil, errors.New("forbidden") })
			pass(time.Minute)
			r := e.Current().Report
			if critical(e) != 0 || r.Complete || !slices.ContainsFunc(r.Gaps, func(g blocks.Gap) bool { return strings.Contains(g.Reason, "second reading failed: forbidden") }) {
				t.Errorf("not read again: %d critical, complete %t, gaps %v", critical(e), r.Complete, r.Gaps)
			}
			if value(t, e, "calico_audit_audit_errors_total") < 1 || value(t, e, "calico_audit_snapshot_complete") != 0 {
				t.Error("the metrics do not tell that a reading failed")
			}
			f.reads(nil)
			pass(time.Minute)
			if critical(e) != 1 || !e.Current().Report.Complete {
				t.Errorf("read again: %d critical, gaps %v", critical(e), e.Current().Report.Gaps)
			}
		})
	})
}

// TestDoubtfulForLong: a finding at error or critical never counts without a second
// reading, however long the watches show it.
func TestDoubtfulForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			f.is(calm)
			pass(10 * time.Second)
			f.reads(func() (*blocks.Snapshot, error) { return known(t, calm, time.Now()), nil })
			for range 60 {
				f.is(unrecorded)
				pass(time.Second)
				if critical(e) != 0 {
					t.Fatalf("%d critical after %d readings", critical(e), f.readings.Load())
				}
			}
			if f.readings.Load() < 2 || skipped(e) != 1 {
				t.Errorf("%d readings, %d withheld", f.readings.Load(), skipped(e))
			}
		})
	})
}

// TestFirst: the first audit is confirmed, so that a restart of the exporter does not
// resolve an alert for a moment.
func TestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		f.is(unrecorded)
		played(t, f, ExporterOptions{after: func(_ context.Context, a *Audit) {
			if n := a.Report.Summary.Critical; n != 1 {
				t.Errorf("%d critical findings", n)
			}
		}}, func(e *Exporter) {
			pass(3 * time.Second)
			if e.Current() == nil || f.readings.Load() != 1 {
				t.Errorf("%d readings", f.readings.Load())
			}
		})
	})
}

// TestChangesBeforeTheFirstAudit: changes before the first possible audit are collected,
// and that audit then starts at once.
func TestChangesBeforeTheFirstAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		played(t, f, ExporterOptions{}, func(e *Exporter) {
			for range 100 {
				f.changed <- struct{}{}
				pass(20 * time.Millisecond)
			}
			if n := f.looks.Load(); n > 25 {
				t.Errorf("it looked %d times in two seconds", n)
			}
			f.is(calm)
			pass(debounce)
			if e.Current() == nil {
				t.Error("nothing is served yet")
			}
		})
	})
}

// TestOutage: while the API server is unreachable, the last state is served with its time
// and marked incomplete. After MaxAge the exporter is not ready. After the outage,
// confirmed findings are still confirmed.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(t)
		played(t, f, ExporterOptions{MaxAge: 3 * time.Minute}, func(e *Exporter) {
			f.is(unrecorded)
			pass(5 * time.Second)
			at := value(t, e, "calico_audit_snapshot_timestamp_seconds")
			readings := f.readings.Load()
			f.mu.Lock()
			stale := *f.now
			stale.Gaps = []blocks.Gap{{Resource: blocks.Pods, Reason: "not known to be current"}}
			f.now = &stale
			f.mu.Unlock()
			f.changed <- struct{}{}
			pass(time.Minute)
			if critical(e) != 1 || value(t, e, "calico_audit_snapshot_complete") != 0 || value(t, e, "calico_audit_snapshot_gaps") != 1 {
				t.Errorf("in the outage: %d critical, gaps %v", critical(e), e.Current().Report.Gaps)
			}
			if now := value(t, e, "calico_audit_snapshot_timestamp_seconds"); now != at {
				t.Errorf("the time moved from %v to %v", at, now)
			}
			if status, _ := ask(e, "/readyz"); status != 200 {
				t.Errorf("after a minute: %d", status)
			}
			pass(3 * time.Minute)
			if status, why := ask(e, "/readyz"); status != 503 || !strings.Contains(why, "the data is from") {
				t.Errorf("after four minutes: %d %s", status, why)
			}
			if _, body := ask(e, "/report.json"); !strings.Contains(body, `"complete":false`) || !strings.Contains(body, "the data is from") {
				t.Errorf("the report does not tell: %s", body)
			}
			f.is(unrecorded)
			pass(time.Second)
			if critical(e) != 1 || !e.Current().Report.Complete || f.readings.Load() != readings {
				t.Errorf("after the outage: %d critical, gaps %v, %d readings", critical(e), e.Current().Report.Gaps, f.readings.Load()-readings)
			}
			if status, _ := ask(e, "/readyz"); status != 200 {
				t.Errorf("after the outage: %d", status)
			}
		})
	})
}
