package checks_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// reportOn returns the report on a state without some kinds, which were not read.
func reportOn(t *testing.T, text string, without ...blocks.Resource) *audit.Report {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range without {
		takeAway(s, r)
	}
	st := state.New(s, state.Options{})
	return audit.NewReport(st, audit.Run(st, checks.All))
}

// TestDiagnoses checks the diagnoses in testdata/diagnoses.txt: for each, the severity, ID,
// number of findings and message, and the remedies with their commands. Last come the findings of
// at least warning severity that no diagnosis includes.
func TestDiagnoses(t *testing.T) {
	for _, x := range casesOf(t, "diagnoses") {
		t.Run(x.name, func(t *testing.T) {
			r := reportOn(t, x.text, x.unread...)
			r.Findings = slices.DeleteFunc(r.Findings, func(f audit.Finding) bool { return f.Check == "handle/missing" }) // the states define no handles
			if d := cmp.Diff(strings.TrimSpace(x.want), diagnosed(r)); d != "" {
				t.Errorf("diagnoses (-want +got):\n%s", d)
			}
		})
	}
}

// TestRemediesAreShort: effect and risk of each remedy, in every state of the test data, fit into
// one line of a terminal of 100 columns, 13 of which the table indents.
func TestRemediesAreShort(t *testing.T) {
	read := 0
	for _, x := range slices.Concat(casesOf(t, "checks/*"), casesOf(t, "diagnoses"), casesOf(t, "incidents")) {
		for _, d := range reportOn(t, x.text, x.unread...).Diagnoses {
			for _, r := range d.Remedies {
				read++
				for _, text := range []string{r.Effect, r.Risk} {
					if n := utf8.RuneCountInString(text); n > 87 {
						t.Errorf("%s, %s: %d characters: %s", x.file, x.name, n, text)
					}
				}
			}
		}
	}
	if read < 300 {
		t.Errorf("only %d remedies were read", read)
	}
}

// TestNoUnlockInMigration: while both API groups serve blocks, no remedy unlocks the datastore.
func TestNoUnlockInMigration(t *testing.T) {
	const locked = "pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\nalloc 10.0.0.5 pod=shop/gone node=n1 handle=h\nlocked\n"
	for text, want := range map[string]bool{locked: true, locked + "bothgroups locked\n": false, locked + "migration Migrating\n": false} {
		r, got := reportOn(t, text), false
		for _, d := range r.Diagnoses {
			for _, w := range d.Remedies {
				got = got || strings.Contains(w.Title, "unlock")
			}
		}
		for _, f := range r.Findings {
			got = got || strings.Contains(f.Fix.Command, "unlock")
		}
		if got != want {
			t.Errorf("%s: unlocking is advised: %v, want %v", text, got, want)
		}
	}
}

// TestLockedDatastoreComesFirst: a locked datastore refuses every plan, so findings with a plan as
// their remedy first advise to unlock it.
func TestLockedDatastoreComesFirst(t *testing.T) {
	for drawn, want := range map[string]string{"": "repair", "locked\n": "manual"} {
		r := reportOn(t, drawn+"pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\n")
		i := slices.IndexFunc(r.Findings, func(f audit.Finding) bool { return f.Check == "block/no-affinity" })
		if i < 0 || r.Findings[i].Fix.Kind != want || want == "manual" && !strings.Contains(r.Findings[i].Fix.Command, "unlock") {
			t.Errorf("%q: %+v", drawn, r.Findings)
		}
	}
}

// diagnosed formats the diagnoses of a report.
func diagnosed(r *audit.Report) string {
	var out []string
	explained := map[string]bool{}
	for _, d := range r.Diagnoses {
		out = append(out, strings.Join([]string{d.Severity.String(), d.ID, d.Message}, " | "))
		for _, f := range d.Findings {
			explained[f] = true
		}
		var of []string
		for i := range r.Findings {
			if f := &r.Findings[i]; slices.Contains(d.Findings, f.Fingerprint) {
				of = append(of, f.Check+" "+f.Subject.ID())
			}
		}
		out = append(out, "  of "+strings.Join(of, ", "))
		for _, m := range d.Remedies {
			title := "  - " + m.Title
			if m.Manual {
				title = "  - by hand: " + m.Title
			}
			out = append(out, title)
			for _, c := range m.Commands {
				out = append(out, "    $ "+c)
			}
		}
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Severity >= state.Warning && !explained[f.Fingerprint] {
			out = append(out, "alone: "+f.Severity.String()+" "+f.Check+" "+f.Subject.ID())
		}
	}
	return strings.Join(out, "\n")
}

// part returns the part of testdata/diagnoses.txt that defines a state.
func part(t *testing.T, begins string) string {
	t.Helper()
	for _, x := range casesOf(t, "diagnoses") {
		if strings.HasPrefix(x.name, begins) {
			return x.text
		}
	}
	t.Fatalf("no part begins with %q", begins)
	return ""
}

// TestMutedDiagnoses: a muted finding is in no diagnosis and does not raise its severity. A
// diagnosis without findings is removed.
func TestMutedDiagnoses(t *testing.T) {
	story := part(t, "the story")
	whole := reportOn(t, story, blocks.Handles)
	rules := func(texts ...string) *audit.Mutes {
		m := &audit.Mutes{}
		for _, text := range texts {
			r, err := checks.All.ParseMuteRule(text)
			if err != nil {
				t.Fatal(err)
			}
			m.Rules = append(m.Rules, r)
		}
		return m
	}
	some := reportOn(t, story, blocks.Handles)
	some.Mute(rules("check=pool/no-free-blocks"))
	if len(some.Diagnoses) != 1 || some.Diagnoses[0].Severity != state.Error || len(some.Diagnoses[0].Findings) != len(whole.Diagnoses[0].Findings)-1 {
		t.Errorf("with pool/no-free-blocks muted: %+v", some.Diagnoses)
	}
	none := reportOn(t, story, blocks.Handles)
	none.Mute(rules("check=pool", "check=node", "check=route", "check=config", "check=ip"))
	if len(none.Findings) > 0 || len(none.Diagnoses) > 0 || none.Summary.Muted != len(whole.Findings) {
		t.Errorf("with everything muted there are %d findings, %d muted, and diagnoses %+v", len(none.Findings), none.Summary.Muted, none.Diagnoses)
	}
	if again := reportOn(t, story, blocks.Handles); !slices.Equal(again.Diagnoses[0].Findings, whole.Diagnoses[0].Findings) {
		t.Error("the same state gives other diagnoses")
	}
}

// TestAnotherPoolEndsTheShortage: once a pool with room serves the same nodes and the borrowing
// pods were restarted, no finding warns of the full pool or advises another one.
func TestAnotherPoolEndsTheShortage(t *testing.T) {
	const before = `
pool small 10.0.0.0/24
node a pods=110
node b pods=110
node c pods=110
block 10.0.0.0/26 a
affinity 10.0.0.0/26 a
fill 10.0.0.0/26 60 a
block 10.0.0.64/26 a
affinity 10.0.0.64/26 a
use 10.0.0.65 shop/a a
block 10.0.0.128/26 b
affinity 10.0.0.128/26 b
fill 10.0.0.128/26 60 b
block 10.0.0.192/26 b
affinity 10.0.0.192/26 b
use 10.0.0.193 shop/b b
`
	if r := reportOn(t, before+"use 10.0.0.194 shop/c c\n", blocks.Handles); len(r.Diagnoses) != 1 || r.Diagnoses[0].Severity != state.Critical {
		t.Fatalf("before: %s", diagnosed(r))
	}
	after := reportOn(t, before+`
pool large 10.1.0.0/20
block 10.1.0.0/26 c
affinity 10.1.0.0/26 c
use 10.1.0.1 shop/c c
`, blocks.Handles)
	if got := diagnosed(after); got != "" {
		t.Errorf("after: %s", got)
	}
	for i := range after.Findings {
		if f := &after.Findings[i]; f.Severity > state.Info || strings.Contains(f.Fix.Command, "add a pool") {
			t.Errorf("%s %s: %s; next: %s", f.Severity, f.Check, f.Message, f.Fix.Command)
		}
	}
}
