package explain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/errortext"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestExplain explains subjects of the states in testdata/explain. A file holds
// cases, and a case one or more questions about its state:
//
//	== name of the case
//	a state in few lines (see internal/statedsl)
//	-- explain SUBJECT [KIND], or 'ERROR TEXT'
//	~ text                      a line of the explanation holds it
//	!~ text                     no line holds it
//	not found: text             there is no such subject, and the error holds it
//
// A line of the explanation is one of
//
//	KIND NAME
//	summary: TEXT
//	SECTION | NAME: VALUE [SOURCE]
//	finding: SEVERITY CHECK SUBJECT
//	beside: SEVERITY CHECK SUBJECT
//	change: VERDICT: TEXT
func TestExplain(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "explain", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			name, rest, _ := strings.Cut(text, "\n")
			parts := strings.Split(rest, "-- explain ")
			if len(parts) < 2 {
				t.Fatalf("%s: case %q asks nothing", file, name)
			}
			for _, q := range parts[1:] {
				subject, want, _ := strings.Cut(q, "\n")
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+name+"/"+subject, func(t *testing.T) {
					explainCase(t, parts[0], subject, want)
				})
			}
		}
	}
}

func explainCase(t *testing.T, state, subject, want string) {
	text, kind, _ := strings.Cut(subject, " ")
	if message, ok := strings.CutPrefix(subject, "'"); ok {
		text, kind = strings.TrimSuffix(message, "'"), ""
	}
	q, err := explain.ParseQuery(text, kind)
	if err != nil {
		t.Fatal(err)
	}
	e, err := explainText(t, state, q)
	lines := []string{}
	if err != nil {
		lines = append(lines, "not found: "+err.Error())
	} else {
		lines = explanationLines(e)
	}
	asked := 0
	for _, w := range strings.Split(strings.TrimSpace(want), "\n") {
		switch {
		case w == "":
		case strings.HasPrefix(w, "~ "), strings.HasPrefix(w, "!~ "):
			asked++
			sign, text, _ := strings.Cut(w, "~ ")
			if holds(lines, text) != (sign == "") {
				t.Errorf("want %q", w)
			}
		case strings.HasPrefix(w, "not found: "):
			asked++
			if !holds(lines, "not found: ") || !holds(lines, strings.TrimPrefix(w, "not found: ")) {
				t.Errorf("want %q", w)
			}
		default:
			t.Fatalf("line %q of the test data means nothing", w)
		}
	}
	if asked == 0 {
		t.Error("the case expects nothing")
	}
	if t.Failed() {
		t.Logf("have\n%s", strings.Join(lines, "\n"))
	}
}

func explainText(t *testing.T, text string, q explain.Query) (*explain.Explanation, error) {
	t.Helper()
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(snap, state.Options{})
	return explain.Explain(st, audit.Run(st, checks.All), q)
}

func holds(lines []string, text string) bool {
	for _, l := range lines {
		if strings.Contains(l, text) {
			return true
		}
	}
	return false
}

func explanationLines(e *explain.Explanation) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, s := range e.Subjects {
		add("%s %s", s.Subject.Kind, s.Subject.ID())
		add("summary: %s", s.Summary)
		for _, sec := range s.Sections {
			for _, f := range sec.Facts {
				add("%s | %s: %s [%s]", sec.Title, f.Name, f.Value, f.Source)
			}
		}
		for _, d := range s.Diagnoses {
			add("diagnosis: %s %s: %s", d.Severity, d.ID, d.Message)
			for _, r := range d.Remedies {
				add("way out: %s", r.Title)
			}
		}
		for _, f := range s.Findings {
			add("finding: %s %s %s", f.Severity, f.Check, f.Subject.ID())
		}
		for _, f := range s.Related {
			add("beside: %s %s %s", f.Severity, f.Check, f.Subject.ID())
		}
		for _, o := range s.Remedies {
			add("change: %s: %s", o.Verdict, o.Change)
		}
	}
	return out
}

// TestExplanationIsData: an explanation is versioned, has empty lists instead of null, and survives
// a round trip through JSON.
func TestExplanationIsData(t *testing.T) {
	q, err := explain.ParseQuery("8.8.8.8", "")
	if err != nil {
		t.Fatal(err)
	}
	e, err := explainText(t, "pool pods 10.0.0.0/24\nnode n1", q)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"apiVersion":"calico-audit/v1alpha1","kind":"Explanation","query":"8.8.8.8","cluster":{`, `"findings":[]`, `"related":[]`, `"outlook":[]`, `"gaps":[]`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the JSON lacks %s:\n%s", want, raw)
		}
	}
	if strings.Contains(string(raw), "null") {
		t.Errorf("the JSON holds null:\n%s", raw)
	}
	var back explain.Explanation
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(explanationLines(e), explanationLines(&back)); diff != "" {
		t.Errorf("it comes back otherwise (-written +read):\n%s", diff)
	}
}

// TestParseQuery: an impossible subject is rejected, with the reason, before anything is read.
func TestParseQuery(t *testing.T) {
	for _, c := range []struct{ text, kind, want string }{
		{"", "", "cannot explain \"\": want"},
		{"a b", "", "contains no known error message about addresses"},
		{"10.0.0.0/33", "", "prefix length out of range"},
		{"fe80::1%eth0", "", "zone"},
		{"ip/10.0.0.0/99", "", "prefix length out of range"},
		{"worker-1", "ip", "not an address"},
		{"a/b/c", "pod", "not NAMESPACE/POD"},
		{"worker-1", "service", "want one of ip, block, node"},
		{"ip/lost", "check", "did you mean"},
		{"ipamconfig/default", "", "report -o wide --check config"},
	} {
		if _, err := explain.ParseQuery(c.text, c.kind); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q of kind %q: %v, want %q", c.text, c.kind, err, c.want)
		}
	}
	q, err := explain.ParseQuery("ip/borrowed", "")
	if err != nil || q.Check == nil || q.Check.ID != "ip/borrowed" {
		t.Errorf("ip/borrowed: %+v, %v", q.Check, err)
	}
	if q, err := explain.ParseQuery("ip/borrowed", "pod"); err != nil || q.Check != nil {
		t.Errorf("the pod ip/borrowed: check %+v, %v", q.Check, err)
	}
}

// TestNotFoundNames: the error lists the existing names.
func TestNotFoundNames(t *testing.T) {
	q, err := explain.ParseQuery("nodes-1", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = explainText(t, "pool pods 10.0.0.0/24\nnode node-1\npod shop/web node-1 10.0.0.1", q)
	var unknown *explain.NotFoundError
	if !errors.As(err, &unknown) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"node-1", "pods", "shop/web", "ip/borrowed"} {
		if !holds(unknown.Names, want) {
			t.Errorf("the names lack %s: %v", want, unknown.Names)
		}
	}
}

// crowded is a state with every kind of object, including corrupt blocks.
const crowded = `
pool v4 10.0.0.0/24 size=26
pool v6 fd00::/120 size=122
pool lb 192.0.2.0/26 size=28 uses=LoadBalancer
node n1 tunnel=vxlan@10.0.0.9
node n2
namespace shop
block 10.0.0.0/26 n1
block 10.0.0.64/26 n1 age=5m
block 10.0.0.128/26 n9
block 10.0.0.128/25 -
block fd00::/122 n2
block 192.0.2.0/28 virtual:load-balancer
affinity 10.0.0.0/26 n2 state=pendingDeletion
affinity 10.0.0.192/26 n1
alloc 10.0.0.9 node=n1 type=vxlanTunnelAddress handle=t
alloc 10.0.0.5 pod=shop/web node=n1 handle=h1
alloc fd00::5 pod=shop/web node=n1 handle=h1
alloc 10.0.0.130 pod=shop/gone node=n9 handle=h2
alloc 192.0.2.1 service=web type=LoadBalancer
pod shop/web n2 10.0.0.5
pod shop/new n2 phase=Pending
handle h1 10.0.0.0/26=3
handle h3
reserve 10.0.0.60/30
gap ipamblocks name=bad cidr=10.0.0.192/26 broken
`

// subjects are queries about objects in the crowded state, and about missing ones.
var subjects = []string{
	"10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.9", "10.0.0.61", "10.0.0.130", "10.0.0.200", "fd00::5", "fd00::30", "fd00::80", "192.0.2.1", "9.9.9.9",
	"10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.128/25", "10.0.0.192/26", "10.0.0.0/24", "10.0.0.0/8", "fd00::40/122", "192.0.2.0/28", "::/0", "0.0.0.0/0",
	"n1", "n2", "n9", "shop/web", "shop/new", "shop/gone", "v4", "v6", "lb", "h1", "h2", "h3",
}

// crowdedState builds the crowded state with two blocks that are broken in ways that Calico never
// writes: a reference to a missing attribute, and missing addresses.
func crowdedState(t *testing.T) (*state.State, *audit.Result) {
	t.Helper()
	snap, err := statedsl.Parse(crowded)
	if err != nil {
		t.Fatal(err)
	}
	for i := range snap.Blocks {
		switch b := &snap.Blocks[i]; b.CIDR.String() {
		case "10.0.0.0/26":
			b.Ordinals[7] = 99
		case "fd00::/122":
			b.Ordinals = b.Ordinals[:6]
		}
	}
	st := state.New(snap, state.Options{})
	return st, audit.Run(st, checks.All)
}

// TestExplainChangesNothing: explaining does not change the State, even concurrently, and gives the
// same result each time, for any content of the blocks.
func TestExplainChangesNothing(t *testing.T) {
	st, r := crowdedState(t)
	ask := func() string {
		var out []string
		for _, s := range subjects {
			q, err := explain.ParseQuery(s, "")
			if err != nil {
				return err.Error()
			}
			e, err := explain.Explain(st, r, q)
			if err != nil {
				return err.Error()
			}
			out = append(out, explanationLines(e)...)
		}
		return strings.Join(out, "\n")
	}
	first := ask()
	if !strings.Contains(first, "allocated to attributes that do not exist") || !strings.Contains(first, "records fewer addresses than its CIDR has") {
		t.Errorf("what is broken is not said:\n%s", first)
	}
	again := make(chan string)
	for range 3 {
		go func() { again <- ask() }()
	}
	for range 3 {
		if diff := cmp.Diff(first, <-again); diff != "" {
			t.Errorf("asked again, it says otherwise:\n%s", diff)
		}
	}
	if diff := cmp.Diff(fmt.Sprint(r.Findings), fmt.Sprint(audit.Run(st, checks.All).Findings)); diff != "" {
		t.Errorf("explaining changed what the checks find:\n%s", diff)
	}
}

// TestExplainBlockThatIsNotUnderstood: a block that could not be parsed is not reported as missing.
func TestExplainBlockThatIsNotUnderstood(t *testing.T) {
	for _, asked := range []string{"10.0.0.200", "10.0.0.192/26"} {
		q, err := explain.ParseQuery(asked, "")
		if err != nil {
			t.Fatal(err)
		}
		e, err := explainText(t, strings.Replace(crowded, "block 10.0.0.128/25 -\n", "", 1), q)
		if err != nil {
			t.Fatal(err)
		}
		lines := explanationLines(e)
		for _, want := range []string{"block: not known", "state: a block that cannot be read may hold it", "node n1, confirmed; its block may be among those that cannot be read"} {
			if !holds(lines, want) {
				t.Errorf("%s: it lacks %q:\n%s", asked, want, strings.Join(lines, "\n"))
			}
		}
		for _, wrong := range []string{"block: does not exist", "no such block"} {
			if holds(lines, wrong) {
				t.Errorf("%s: it says %q:\n%s", asked, wrong, strings.Join(lines, "\n"))
			}
		}
	}
}

// TestExplainNumbersAreBounds: if a block could not be decoded, the numbers of its pool and its
// node are bounds.
func TestExplainNumbersAreBounds(t *testing.T) {
	for asked, wants := range map[string][]string{
		"pool/pods":  {"at least 2 in use", "at most ", "at least 2 claimed"},
		"node/n1":    {"owns blocks (at least 1, addresses in use: at least "},
		"10.0.0.200": {"at least 2 of 4 claimed", "at most "},
	} {
		kind, name, found := strings.Cut(asked, "/")
		if !found {
			kind, name = "", asked
		}
		q, err := explain.ParseQuery(name, kind)
		if err != nil {
			t.Fatal(err)
		}
		e, err := explainText(t, bounded, q)
		if err != nil {
			t.Fatal(err)
		}
		lines := explanationLines(e)
		for _, want := range wants {
			if !holds(lines, want) {
				t.Errorf("%s: it lacks %q:\n%s", asked, want, strings.Join(lines, "\n"))
			}
		}
	}
}

// bounded is a cluster with a block that could not be decoded.
const bounded = `
pool pods 10.0.0.0/24 /26
node n1
node n2
block 10.0.0.0/26 n1
alloc 10.0.0.1 pod=shop/a@n1
pod shop/a@n1 10.0.0.1
block 10.0.0.64/26 n2
alloc 10.0.0.65 pod=shop/b@n2
pod shop/b@n2 10.0.0.65
gap ipamblocks cannot be decoded name=x
`

// TestMessagesNameChecks: the checks of the known error messages exist.
func TestMessagesNameChecks(t *testing.T) {
	for _, m := range errortext.All {
		for _, id := range m.Checks {
			if _, err := checks.All.ByID(id); err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
	}
}
