package checks_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// viewed is a state in which host views prove many facts: two blackholes, one route that is not a
// blackhole, an address in use that is free, a second owner, a foreign blackhole.
const viewed = `
pool pods 10.0.0.0/24
bgp nomesh as=64602
peer rr ip=172.16.0.9 as=64602
node n1
node n2
block 10.0.0.0/26 n1
block 10.0.0.64/26 n2
use 10.0.0.5 shop/a n2
use 10.0.0.6 shop/b n2
use 10.0.0.7 shop/c n2
use 10.0.0.8 shop/d n1
use 10.0.0.70 shop/e n2
`

// intactViews are views of its nodes: of n1 from an agent, of n2 from a listing.
var intactViews = map[string]string{
	"n1.json": `{"apiVersion":"calico-audit/v1alpha1","kind":"HostView","node":"n1","takenAt":"2026-01-02T12:00:00Z",
"routes":[
{"dst":"0.0.0.0/0","type":"unicast","protocol":"static","table":"main","metric":0,"gateway":"172.16.0.1","dev":"eth0"},
{"dst":"10.0.0.0/26","type":"blackhole","protocol":"bird","table":"main","metric":0},
{"dst":"10.0.0.7/32","type":"unicast","protocol":"bird","table":"main","metric":0,"gateway":"172.16.0.2","dev":"eth0"},
{"dst":"10.0.0.8/32","type":"unicast","protocol":"boot","table":"main","metric":0,"dev":"cali8"},
{"dst":"10.0.0.64/26","type":"unicast","protocol":"bird","table":"main","metric":0,"gateway":"172.16.0.2","dev":"eth0"}],
"lookups":[
{"dst":"10.0.0.0/26","result":"blackhole","match":"10.0.0.0/26","table":"main"},
{"dst":"10.0.0.7/32","result":"unicast","match":"10.0.0.7/32","gateway":"172.16.0.2","dev":"eth0","table":"main"},
{"dst":"10.0.0.8/32","result":"unicast","match":"10.0.0.8/32","dev":"cali8","table":"main"}],
"namespaces":[
{"id":"4026532200","addresses":["10.0.0.8/32"],"hostInterfaces":["cali8"],"pids":[1],"states":["S"]},
{"id":"4026532300","addresses":["10.0.0.9/32"],"hostInterfaces":["cali9"],"pids":[2],"states":["D"]},
{"id":"4026532400","addresses":["10.0.0.70/32"],"hostInterfaces":["cali70"],"pids":[3],"states":["S"]},
{"id":"4026531840","host":true,"addresses":["172.16.0.11/16"],"hostInterfaces":[],"pids":[],"states":[]}]}`,
	"n2.json": `[{"dst":"default","gateway":"172.16.0.1","dev":"eth0","flags":[]},
{"type":"blackhole","dst":"10.0.0.64/26","protocol":"bird","flags":[]},
{"dst":"10.0.0.70","dev":"cali70","scope":"link","flags":[]},
{"dst":"10.0.0.5","dev":"cali5","scope":"link","flags":[]},
{"type":"blackhole","dst":"10.0.0.0/26","protocol":"bird","flags":[]},
{"type":"local","dst":"172.16.0.12","dev":"eth0","table":"local","protocol":"kernel","scope":"host","flags":[]}]`,
}

// criticals returns the critical findings of a state with views read from files; nil if the files
// are rejected as a whole.
func criticals(t *testing.T, dir string) map[string]string {
	t.Helper()
	snap, err := statedsl.Parse(viewed)
	if err != nil {
		t.Fatal(err)
	}
	snap.Hosts, err = hostviews.Read(snap, []string{dir}, hostviews.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(snap, state.Options{})
	out := map[string]string{}
	for _, f := range audit.Run(st, checks.All).Findings {
		if f.Severity == state.Critical {
			out[f.Check+" "+f.Subject.ID()+" "+f.Subject.Node] = f.Message
		}
	}
	return out
}

// TestDamagedHostViews damages files of host views in many ways. Damage must never add a critical
// finding, because damaged views prove less, never more. The damage is recognisable: bytes that
// occur in no number, address or name of these files, and missing ends. (No reader can detect that
// a digit was replaced by another one.)
func TestDamagedHostViews(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	restore := func() {
		for name, text := range intactViews {
			write(name, text)
		}
	}
	restore()
	intact := criticals(t, dir)
	for _, want := range []string{"route/blackhole 10.0.0.5 n2", "route/blackhole 10.0.0.6 n2", "route/stray-blackhole 10.0.0.0/26 n2", "ip/host-in-use 10.0.0.9 n1", "ip/duplicate 10.0.0.70 "} {
		if intact[want] == "" {
			t.Errorf("the intact views do not prove %s: %v", want, intact)
		}
	}
	if len(intact) != 5 {
		t.Errorf("the intact views prove %v", intact)
	}

	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	names := []string{"n1.json", "n2.json"}
	for range 6000 {
		name := names[random.IntN(2)]
		text := intactViews[name]
		at := random.IntN(len(text))
		var how, damaged string
		switch random.IntN(5) {
		case 0:
			how, damaged = "cut off", text[:at]
		case 1:
			how, damaged = "its start lost", text[at:]
		case 2:
			garbage := []string{"\x00", "\xff", "#", "~", "%", "?", "!", "^"}[random.IntN(8)]
			how, damaged = "a byte overwritten by "+fmt.Sprintf("%q", garbage), text[:at]+garbage+text[at+1:]
		case 3:
			end := min(len(text), at+1+random.IntN(12))
			how, damaged = "some bytes overwritten", text[:at]+strings.Repeat("#", end-at)+text[end:]
		case 4:
			how, damaged = "a value of another type", replaceValue(text, random)
		}
		write(name, damaged)
		for id, message := range criticals(t, dir) {
			if intact[id] == "" {
				t.Fatalf("seed %d: %s, at byte %d of %s, makes %s: %s\n%s", seed, how, at, name, id, message, damaged)
			}
		}
		write(name, text)
	}
}

// replaceValue replaces a string by a value of another type.
func replaceValue(text string, random *rand.Rand) string {
	parts := strings.Split(text, `"`)
	if len(parts) < 3 {
		return text
	}
	i := 1 + 2*random.IntN(len(parts)/2)
	value := []string{"7", "null", "{}", "[]", "true"}[random.IntN(5)]
	return strings.Join(parts[:i], `"`) + value + strings.Join(parts[i+1:], `"`)
}

// TestOrderOfHostViews: findings and gaps do not depend on the order of views and their parts.
func TestOrderOfHostViews(t *testing.T) {
	text := viewed + `
view n1
view n2 age=11m
route n1 10.0.0.0/26 blackhole proto=bird
route n1 10.0.0.64/26 blackhole proto=bird
route n1 10.0.0.64/27 prohibit
route n1 10.0.0.7/32 unicast via=172.16.0.2
netns n1 2 10.0.0.9 pids=1 state=S
netns n1 1 10.0.0.9,10.0.0.70 pids=2 state=S
netns n2 1 10.0.0.8,10.0.0.10
hostgap n2 none
`
	var want string
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 2))
	for i := range 20 {
		snap, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			shuffle(random, snap)
			views := snap.Hosts.Views
			random.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] })
			for k := range views {
				v := &views[k]
				random.Shuffle(len(v.Routes), func(i, j int) { v.Routes[i], v.Routes[j] = v.Routes[j], v.Routes[i] })
				random.Shuffle(len(v.Namespaces), func(i, j int) { v.Namespaces[i], v.Namespaces[j] = v.Namespaces[j], v.Namespaces[i] })
			}
		}
		st := state.New(snap, state.Options{})
		var out strings.Builder
		for _, f := range audit.Run(st, checks.All).Findings {
			fmt.Fprintf(&out, "%s %s %s %v %v\n", f.Check, f.Subject.ID(), f.Message, f.Evidence, f.Fix)
		}
		fmt.Fprintln(&out, st.Views.Gaps())
		if want == "" {
			want = out.String()
		}
		if got := out.String(); got != want {
			t.Fatalf("seed %d: another order gives\n%s\nwant\n%s", seed, got, want)
		}
	}
	if !strings.Contains(want, "route/stray-blackhole") || !strings.Contains(want, "ip/host-in-use") || !strings.Contains(want, "route/blackhole") {
		t.Errorf("the state tests too little:\n%s", want)
	}
}

// TestViewsSuppressNothing: a host view suppresses only findings of route/blackhole, and a gap in
// host views does not make a report incomplete.
func TestViewsSuppressNothing(t *testing.T) {
	for _, base := range []string{blockless, sound, viewed} {
		before, _ := verdicts(t, base, "")
		for _, node := range []string{"n1", "n2", "old", "new"} {
			after, _ := verdicts(t, base+"\nview "+node+"\nroute "+node+" 10.0.0.80/32 unicast via=1.2.3.4\nnetns "+node+" 1 10.0.0.2,10.0.0.80\nhostgap other none\n", "")
			for id, f := range before {
				if _, ok := after[id]; !ok && f.Check != "route/blackhole" {
					t.Errorf("a view of %s takes away %s %s", node, f.Check, f.Message)
				}
			}
		}
	}
	snap, err := statedsl.Parse(sound + "hostgap n1 none\n")
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(snap, state.Options{})
	if r := audit.NewReport(st, audit.Run(st, checks.All)); !r.Complete || len(r.HostGaps) != 1 || r.HostViews == nil {
		t.Errorf("complete %t, host gaps %v, views %v", r.Complete, r.HostGaps, r.HostViews)
	}
}

// TestHostUse: every use in a host view may retain an address, whether it is proven or not.
func TestHostUse(t *testing.T) {
	st := parseState(t, `
pool pods 10.0.0.0/24
node n1
node n2
block 10.0.0.0/26 n1
alloc 10.0.0.5 pod=shop/gone node=n1 handle=h
view n1
netns n1 1 10.0.0.5 pids=4 cmd=java state=D
netns n1 2 10.0.0.6 host
view n2 age=1h
netns n2 3 10.0.0.5/24
netns n2 4 10.0.0.7
`)
	var got []string
	for _, u := range st.Views.Uses(st.IPBlocks[0].Address(5)) {
		got = append(got, fmt.Sprintf("%s %t %t", u, u.View.Stale(), u.Owner()))
	}
	want := "namespace 1 on n1, with process 4 java (state D: uninterruptible sleep, it cannot be killed) false true; namespace 3 on n2, without any process true false"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	got = nil
	for _, u := range st.Views.ContradictFree(st.IPBlocks[0].Block) {
		got = append(got, u.Addr.String()+" "+u.View.Node)
	}
	if text := strings.Join(got, ", "); text != "10.0.0.6 n1, 10.0.0.7 n2" {
		t.Errorf("in use though free: %s", text)
	}
}

// TestHostGapTexts: the facts that a view does not prove become one gap, which names their number,
// one of them, and both times.
func TestHostGapTexts(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"newer allocations", `
pool pods 10.0.0.0/24 vxlan=Always
node n1
node n2
block 10.0.0.0/26 n1
alloc 10.0.0.5 pod=shop/a node=n2 handle=a age=1m
pod shop/a n2 10.0.0.5
alloc 10.0.0.6 pod=shop/b node=n2 handle=b age=30s
pod shop/b n2 10.0.0.6
view n1 age=3m
`, "[n1 (views/n1.json): it was taken at 2026-01-02T11:57:00Z, and proves nothing about 2 facts that are newer, such as the allocation of 10.0.0.5, since 2026-01-02T11:59:00Z]"},
		{"too old", "node n1\nview n1 age=10m1s\n", "[n1 (views/n1.json): it was taken at 2026-01-02T11:49:59Z, more than 10 minutes before the cluster was read (2026-01-02T12:00:00Z), and proves nothing]"},
		{"in the future", "node n1\nview n1 age=-61s\n", "in the future"},
		{"just ahead", "node n1\nview n1 age=-60s\n", "[]"},
	} {
		st := parseState(t, c.text)
		if got := fmt.Sprint(st.Views.Gaps()); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestGapsWithViews is TestGapsMakeNoVerdicts for states with host views.
func TestGapsWithViews(t *testing.T) {
	text := viewed + `
view n1
route n1 10.0.0.0/26 blackhole proto=bird
route n1 10.0.0.7/32 unicast via=172.16.0.2 proto=bird
netns n1 1 10.0.0.8 pids=1 state=S
netns n1 2 10.0.0.9 pids=2 state=S
netns n1 3 10.0.0.70 pids=3 state=S
view n2 routes
route n2 10.0.0.0/26 blackhole proto=bird
`
	whole, _ := verdicts(t, text, "")
	if len(whole) < 8 {
		t.Errorf("the state has %d findings only", len(whole))
	}
	for _, res := range blocks.Resources {
		found, _ := verdicts(t, text, res)
		for id, f := range found {
			before, ok := whole[id]
			if !ok || f.Severity > before.Severity {
				t.Errorf("without %s: new, or worse: %s %s %s", res, f.Severity, f.Check, f.Message)
			}
		}
	}
}
