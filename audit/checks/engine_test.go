package checks_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

const blockless = `
pool pods 10.0.0.0/25
node old pods=110
node new pods=110
block 10.0.0.0/26 old
block 10.0.0.64/26 old
affinity 10.0.0.0/26 old
affinity 10.0.0.64/26 old
fill 10.0.0.0/26 64 old
fill 10.0.0.64/26 6 old
use 10.0.0.80 shop/a new
`

func parseState(t *testing.T, text string) *state.State {
	t.Helper()
	return stateSaying(t, text)
}

// stateSaying returns the state of a text, with the operator's confirmation that some machines are
// off.
func stateSaying(t *testing.T, text string, terminated ...string) *state.State {
	t.Helper()
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return state.New(snap, state.Options{}).WithTerminated(terminated)
}

func ids(r *audit.Result) (out []string) {
	for _, f := range r.Findings {
		out = append(out, f.Severity.String()+" "+f.Check+" "+f.Subject.ID())
	}
	return out
}

// TestConfirm simulates a cluster that changes between two readings.
func TestConfirm(t *testing.T) {
	still := audit.Run(parseState(t, "live\n"+blockless), checks.All)
	if need := still.NeedsConfirmation(); len(need) == 0 {
		t.Fatal("a grave finding that rests on a missing block needs no second reading")
	}
	// In the second reading, the node has its block: the first one saw the claim in flight.
	healed := audit.Run(parseState(t, "live\n"+strings.Replace(blockless, "10.0.0.0/25", "10.0.0.0/24", 1)+"block 10.0.0.128/26 new\naffinity 10.0.0.128/26 new\n"), checks.All)

	if got, want := ids(audit.Confirm(still, still)), ids(still); !cmp.Equal(got, want) {
		t.Errorf("two readings that agree: %s", cmp.Diff(want, got))
	}
	for _, f := range audit.Confirm(still, healed).Findings {
		if f.Check == "node/no-block" {
			t.Errorf("reported although the second reading shows a block: %s", f.Message)
		}
	}
	late := audit.Confirm(healed, still)
	for _, f := range late.Findings {
		if f.Absence && f.Severity >= state.Error {
			t.Errorf("reported although one reading only shows it: %s %s", f.Check, f.Message)
		}
	}
	if said := fmtSkipped(late); !strings.Contains(said, "node/no-block: withheld for node/new: seen only in the second of two readings") {
		t.Errorf("a withheld finding is not mentioned: %s", said)
	}
	if kept := strings.Join(ids(late), "\n"); !strings.Contains(kept, "ip/borrowed 10.0.0.80") {
		t.Errorf("a finding that rests on no absence was lost: %s", kept)
	}
}

// TestConfirmWarnings: even warnings need a second reading if they depend on an absent object.
func TestConfirmWarnings(t *testing.T) {
	const world = "live\npool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\nalloc 10.0.0.5 pod=shop/a node=n1 handle=h\nhandle h 10.0.0.0/26=1\n"
	before, without := audit.Run(parseState(t, world+"pod shop/a n1 10.0.0.5\n"), checks.All), audit.Run(parseState(t, world), checks.All)
	const leaked = "warning ip/leaked 10.0.0.5"
	if got := ids(audit.Confirm(without, without)); !slices.Contains(got, leaked) {
		t.Errorf("two readings that agree: %v", got)
	}
	if got := ids(audit.Confirm(before, without)); slices.Contains(got, leaked) {
		t.Errorf("reported although one reading only shows it: %v", got)
	}
}

func TestConfirmFailsToRead(t *testing.T) {
	still := audit.Run(parseState(t, "live\n"+blockless), checks.All)
	blind := audit.Run(parseState(t, "live\n"+blockless+"gap pods connection refused\n"), checks.All)
	out := audit.Confirm(still, blind)
	if said := fmtSkipped(out); !strings.Contains(said, "withheld for node/new: it could not be confirmed by a second reading") {
		t.Errorf("got %s", said)
	}
	for _, r := range []*audit.Result{out, still.SkipUnconfirmed("the API server went away")} {
		for _, f := range r.Findings {
			if f.Check == "node/no-block" {
				t.Errorf("reported without confirmation: %s", f.Message)
			}
		}
	}
}

// TestHostViewsNotReadAgain: a finding from a node's kernel needs two host views of the node. If the
// second one is missing, the rest of the second reading still counts.
func TestHostViewsNotReadAgain(t *testing.T) {
	const world = "live\n" + blockless + `
view new
netns new 100 10.0.0.100 pids=5 state=S
`
	earlier := func(st *state.State) *state.State {
		for i := range st.Hosts.Views {
			st.Hosts.Views[i].Earlier = true
		}
		return st
	}
	first := audit.Run(parseState(t, world), checks.All)
	const seen = "critical ip/host-in-use 10.0.0.100"
	if got := ids(audit.Confirm(first, first)); !slices.Contains(got, seen) {
		t.Fatalf("two readings that agree: %v", got)
	}
	one := parseState(t, world+"view new source=again\nnetns new 100 10.0.0.100 pids=5 state=S\n")
	one.Hosts.Views[0].Earlier = true
	for name, second := range map[string]*state.State{
		"view of the first reading": earlier(parseState(t, world)),
		"one of two views":          one,
		"no view":                   parseState(t, "live\n"+blockless),
	} {
		out := audit.Confirm(first, audit.Run(second, checks.All))
		got := ids(out)
		if slices.Contains(got, seen) || !slices.Contains(got, "error node/no-block new") {
			t.Errorf("%s: %v", name, got)
		}
		if said := fmtSkipped(out); !strings.Contains(said, "withheld for ip/10.0.0.100: the second reading that would confirm it failed") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// TestTrackedHostViewsNotReadAgain is TestHostViewsNotReadAgain for a watched cluster.
func TestTrackedHostViewsNotReadAgain(t *testing.T) {
	const world = "live\n" + blockless + "\nview new\nnetns new 100 10.0.0.100 pids=5 state=S\n"
	const seen = "critical ip/host-in-use 10.0.0.100"
	st := parseState(t, world)
	result := audit.Run(st, checks.All)
	if nodes := result.ViewsToConfirm(); !slices.Equal(nodes, []string{"new"}) {
		t.Errorf("views to be read again: %v", nodes)
	}
	tracker := audit.Tracker{}
	look := func() *audit.Result { return tracker.Observe(result, st.Cluster.TakenAt) }
	look()
	look()
	for _, earlier := range []bool{true, false} {
		second := parseState(t, world)
		second.Hosts.Views[0].Earlier = earlier
		prints, _, nodes := tracker.Pending()
		if !slices.Contains(nodes, "new") {
			t.Fatalf("nodes to be asked again: %v", nodes)
		}
		tracker.Reread(prints, audit.Run(second, checks.All))
		if got := look(); slices.Contains(ids(got), seen) == earlier {
			t.Errorf("a second reading with an earlier view: %t; found %v", earlier, ids(got))
		} else if earlier && !strings.Contains(fmtSkipped(got), "withheld for ip/10.0.0.100: the second reading that would confirm it failed") {
			t.Errorf("skipped %s", fmtSkipped(got))
		}
	}
}

func fmtSkipped(r *audit.Result) string {
	var out []string
	for _, s := range r.Skipped {
		out = append(out, s.Check+": "+s.Reason)
	}
	return strings.Join(out, "\n")
}

// TestFilesNeedNoConfirmation: files do not change, so findings from files need no second reading.
func TestFilesNeedNoConfirmation(t *testing.T) {
	if need := audit.Run(parseState(t, blockless), checks.All).NeedsConfirmation(); len(need) > 0 {
		t.Errorf("got %v", need)
	}
}

// TestOrderOfObjects: the report does not depend on the order of objects.
func TestOrderOfObjects(t *testing.T) {
	text := blockless + `
pool more 10.1.0.0/24 nodes=rack=='b'
pool over 10.1.0.0/16 disabled
namespace shop pools=more
namespace other label=team=blue
bgp nomesh as=64602
peer tor ip=10.64.0.1 as=14907
peer spine ip=10.64.0.2 as=14907 nodes=rack=='a'
reserve 10.1.0.192/26
reserve 10.1.0.128/27
handle lonely 10.0.0.0/26=1
handle lost
block 10.1.0.0/26 gone
block 10.1.0.64/26 gone
pod shop/w new phase=Pending
filter out export=Reject,In,10.0.0.0/8
filter in import=Accept
vm shop/db
vm shop/cache
vmi shop/db
vmi shop/cache ofvm
alloc 10.0.0.90 pod=shop/virt-launcher-gone node=new vmi=gone
alloc 10.0.0.91 pod=shop/virt-launcher-db node=new vmi=db
wpool storage-10.9.0.0-24 10.9.0.0/24
wpool storage-10.9.1.0-24 10.9.1.0/24
walloc storage-10.9.0.0-24 10.9.0.5 shop/gone id=c if=net1
walloc storage-10.9.0.0-24 10.9.0.6 shop/gone id=d if=net1
walloc storage-10.9.1.0-24 10.9.1.7 shop/gone id=e if=net1
wres storage-10.9.0.5 shop/gone id=c if=net1
wres storage-10.9.0.9 shop/gone id=f if=net1
wslices storage new@10.9.0.0/25 gone@10.9.0.128/25
wslices other new@10.8.0.0/25
nad shop/storage 10.9.0.0/24 network=storage
nad other/storage 10.9.1.0/24 network=storage
budget shop/web match=app=web allows=0
budget shop/all allows=1
gap bgppeers forbidden
gap felixconfigurations forbidden
`
	var want []byte
	seed := uint64(rand.Int64())
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range 20 {
		snap, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			shuffle(r, snap)
		}
		st := state.New(snap, state.Options{})
		got, err := json.MarshalIndent(audit.NewReport(st, audit.Run(st, checks.All)), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d: another order gives another report:\n%s", seed, cmp.Diff(string(want), string(got)))
		}
	}
}

// shuffle reorders every list of a snapshot.
func shuffle(r *rand.Rand, s *blocks.Snapshot) {
	for v, i := reflect.ValueOf(s).Elem(), 0; i < v.NumField(); i++ {
		if list := v.Field(i); list.Kind() == reflect.Slice {
			r.Shuffle(list.Len(), reflect.Swapper(list.Interface()))
		}
	}
}

// sound is a state in which every object depends on others: without one kind, verdicts about the
// rest could be false.
const sound = `
config strict
controllers grace=15m lb=on
bgp nomesh as=64602
peer reflector reflectors=has(rr)
namespace shop pools=pods
pool pods 10.0.0.0/24
pool six fd00::/64
reserve 10.0.0.192/26
node n1 pods=60 tunnel=vxlan@10.0.0.2
node n2 pods=60 windows
block 10.0.0.0/26 n1
block 10.0.0.64/26 n2
block 10.0.0.128/26 n2
block fd00::/122 n1
affinity 10.0.0.0/26 n1
affinity 10.0.0.64/26 n2
affinity 10.0.0.128/26 n2
affinity fd00::/122 n1
alloc 10.0.0.2 node=n1 type=vxlanTunnelAddress handle=vxlan-tunnel-addr-n1
handle vxlan-tunnel-addr-n1 10.0.0.0/26=1
alloc 10.0.0.5 pod=shop/a node=n1 handle=a
alloc fd00::5 pod=shop/a node=n1 handle=a
pod shop/a n1 10.0.0.5,fd00::5
handle a 10.0.0.0/26=1 fd00::/122=1
alloc 10.0.0.70 pod=shop/b node=n2 handle=b
pod shop/b n2 10.0.0.70
handle b 10.0.0.64/26=1
`

// TestGapsMakeNoVerdicts: a reading without a kind of object has no additional finding, except the
// one about objects that were not read.
func TestGapsMakeNoVerdicts(t *testing.T) {
	for name, text := range map[string]string{"open": sound, "locked": "locked\n" + sound, "starving": blockless} {
		whole, releasable := verdicts(t, text, "")
		for _, res := range blocks.Resources {
			found, released := verdicts(t, text, res)
			for id, f := range found {
				if _, before := whole[id]; !before {
					t.Errorf("%s without %s: new finding %s %s", name, res, f.Check, f.Message)
				}
			}
			for cidr := range released {
				if !releasable[cidr] {
					t.Errorf("%s without %s: block %s is called releasable", name, res, cidr)
				}
			}
		}
		if name == "open" && len(releasable) != 1 {
			t.Errorf("the state has %v to release; it tests nothing unless it has one block", releasable)
		}
	}
}

// verdicts returns the findings by fingerprint, and the releasable blocks, of a state without one
// kind of object.
func verdicts(t *testing.T, text string, without blocks.Resource) (map[string]audit.Finding, map[string]bool) {
	t.Helper()
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if without != "" {
		drop(snap, without)
		snap.Gaps = append(snap.Gaps, blocks.Gap{Resource: without, Reason: "forbidden"})
	}
	st := state.New(snap, state.Options{})
	found, released := map[string]audit.Finding{}, map[string]bool{}
	for _, f := range audit.Run(st, checks.All).Findings {
		found[f.Fingerprint] = f
	}
	for _, b := range st.IPBlocks {
		if b.Releasability.OK {
			released[b.CIDR.String()] = true
		}
	}
	return found, released
}

// TestLostVerdictsAreSaid: a check is listed as skipped for each missing read that it requires.
func TestLostVerdictsAreSaid(t *testing.T) {
	for _, c := range checks.All {
		for _, res := range c.Requires {
			snap, err := statedsl.Parse(sound)
			if err != nil {
				t.Fatal(err)
			}
			drop(snap, res)
			snap.Gaps = append(snap.Gaps, blocks.Gap{Resource: res, Reason: "forbidden"})
			r := audit.Run(state.New(snap, state.Options{}), []*audit.Check{c})
			if len(r.Findings) > 0 || !strings.Contains(fmtSkipped(r), c.ID+": "+string(res)+": forbidden") {
				t.Errorf("%s without %s: findings %v, skipped %v", c.ID, res, ids(r), r.Skipped)
			}
		}
	}
}

// TestOneFindingASubject: a report never has two findings with one fingerprint, because diffs and
// mutes identify findings by it.
func TestOneFindingASubject(t *testing.T) {
	st := parseState(t, sound+`
pool a 10.5.0.0/24 size=28
pool b 10.5.0.0/25 size=28
pool c 10.5.0.0/26 size=28
block 10.5.0.0/28 n1
block 10.5.0.16/28 n1
block 10.5.0.128/28 n1
block 10.5.0.144/28 n1
block 10.0.0.0/25 n2
block 10.0.0.0/24 n2
config max=1 strict
`)
	seen := map[string]audit.Finding{}
	for _, f := range audit.Run(st, checks.All).Findings {
		if other, twice := seen[f.Fingerprint]; twice {
			t.Errorf("one fingerprint for %q and %q", other.Message, f.Message)
		}
		seen[f.Fingerprint] = f
	}
	if len(seen) < 10 {
		t.Errorf("only %d findings: the state tests nothing", len(seen))
	}
}

// TestUnrelatedObjects: unrelated objects neither add nor remove findings, one by one and all
// together.
func TestUnrelatedObjects(t *testing.T) {
	unrelated := []string{
		"namespace far label=team=green",
		"reserve 172.30.0.0/24",
		"pool asked 172.31.0.0/24 manual",
		"pool lb 172.29.0.0/24 uses=LoadBalancer\nblock 172.29.0.0/26 virtual:load-balancer\naffinity 172.29.0.0/26 virtual:load-balancer\n" +
			"alloc 172.29.0.1 type=LoadBalancer service=far/web",
		"pool off 172.28.0.0/24 disabled",
		"pod kube-system/proxy old 192.168.7.7 hostnet",
		"pod far/done old 192.168.9.9 phase=Succeeded",
		"peer else ip=192.0.2.1 as=64999 nodes=has(nothing)",
	}
	for _, base := range []string{blockless, sound} {
		before, _ := verdicts(t, base, "")
		for _, extra := range append(unrelated, strings.Join(unrelated, "\n")) {
			after, _ := verdicts(t, base+"\n"+extra+"\n", "")
			for id, f := range after {
				if _, ok := before[id]; !ok {
					t.Errorf("with %q: new finding %s %s", extra, f.Check, f.Message)
				}
			}
			for id, f := range before {
				if _, ok := after[id]; !ok {
					t.Errorf("with %q: lost finding %s %s", extra, f.Check, f.Message)
				}
			}
		}
	}
}

// TestReportNumbers compares the report's rows of pools and nodes with the state.
func TestReportNumbers(t *testing.T) {
	st := parseState(t, blockless)
	r := audit.NewReport(st, audit.Run(st, checks.All))
	got, err := json.Marshal(struct{ P, N, S any }{r.Pools, r.Nodes, r.Summary})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"P":[{"name":"pods","cidr":"10.0.0.0/25","blockSize":26,"disabled":false,` +
		`"addresses":{"capacity":128,"inUse":71,"reserved":0,"available":57},` +
		`"blocks":{"capacity":2,"claimed":2,"free":0,"reserved":0,"allocatable":0,"releasable":0,"needed":4}}],` +
		`"N":[{"name":"new","blocks":[],"emptyBlocks":0,"addresses":0,"borrowedFrom":["old"],"borrowed":1,"lentTo":[],"lent":0},` +
		`{"name":"old","blocks":["10.0.0.0/26","10.0.0.64/26"],"emptyBlocks":0,"addresses":71,"borrowedFrom":[],"borrowed":0,"lentTo":["new"],"lent":1}],` +
		`"S":{"critical":1,"error":1,"warning":4,"info":0,"nodes":2,"pools":1,"blocks":2,"affinities":2,"allocations":71,"handles":0}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFilter(t *testing.T) {
	st := parseState(t, blockless+"locked\npool other 10.9.0.0/31 size=31 uses=LoadBalancer\nblock 10.9.0.0/31 virtual:load-balancer\nfill 10.9.0.0/31 2 old\n")
	r := audit.NewReport(st, audit.Run(st, checks.All))
	r.Filter([]string{"other"}, nil)
	for _, f := range r.Findings {
		if f.Subject.Name != "other" && f.Check != "config/datastore-locked" {
			t.Errorf("--pool other keeps %s %s", f.Check, f.Message)
		}
	}
	if len(r.Pools) != 1 || len(r.Findings) == 0 || r.Summary.Critical != 0 {
		t.Errorf("pools %v, findings %d, critical %d", r.Pools, len(r.Findings), r.Summary.Critical)
	}
	r = audit.NewReport(st, audit.Run(st, checks.All))
	r.Filter(nil, []string{"old"})
	var checks []string
	for _, f := range r.Findings {
		checks = append(checks, f.Check)
	}
	if got := strings.Join(checks, " "); !strings.Contains(got, "ip/borrowed") || !strings.Contains(got, "node/many-blocks") || strings.Contains(got, "node/no-block") {
		t.Errorf("--node old keeps %s", got)
	}
}

func TestSelectChecks(t *testing.T) {
	for pattern, want := range map[string]int{"ip/borrowed": 1, "node": 6, "node/*": 6} {
		got, err := checks.All.Select([]string{pattern})
		if err != nil || len(got) != want {
			t.Errorf("%s: %d checks, %v", pattern, len(got), err)
		}
	}
	if _, err := checks.All.Select([]string{"pool/no-blocks"}); err == nil || !strings.Contains(err.Error(), "did you mean") || !strings.Contains(err.Error(), "pool/no-free-blocks") {
		t.Errorf("got %v", err)
	}
}

// TestFingerprints changes the check or one field of the subject at a time. Each change gives another
// fingerprint.
func TestFingerprints(t *testing.T) {
	of := func(s state.Subject) string { return audit.Fingerprint("block/empty", s) }
	seen := map[string]string{of(state.Subject{}): "none", audit.Fingerprint("block/corrupt", state.Subject{}): "check"}
	for i := range reflect.TypeFor[state.Subject]().NumField() {
		var s state.Subject
		name := reflect.TypeOf(s).Field(i).Name
		reflect.ValueOf(&s).Elem().Field(i).SetString("x")
		if other, twice := seen[of(s)]; twice {
			t.Errorf("one fingerprint for subjects that differ in %s and %s", name, other)
		}
		seen[of(s)] = name
	}
	if len(seen) < 7 {
		t.Errorf("only %d fingerprints", len(seen))
	}
}
