package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// lines formats a comparison, one finding a line.
func lines(d *audit.Diff) (out []string) {
	for i := range d.Findings {
		f := &d.Findings[i]
		text := fmt.Sprintf("%s %s %s %s", f.Change, f.Severity, f.Check, f.Subject.ID())
		if f.OldSeverity != nil {
			text += " was " + f.OldSeverity.String()
		}
		if f.Reason != "" {
			text += ": " + f.Reason
		}
		out = append(out, text)
	}
	return out
}

func expectDiff(t *testing.T, from, to *audit.Report, want ...string) *audit.Diff {
	t.Helper()
	d := audit.Compare(reread(t, from), reread(t, to))
	if diff := cmp.Diff(want, lines(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	return d
}

var (
	poolGold   = state.Subject{Kind: state.KindPool, Name: "gold"}
	poolTin    = state.Subject{Kind: state.KindPool, Name: "tin"}
	nodeOne    = state.Subject{Kind: state.KindNode, Name: "n1", Node: "n1"}
	address    = state.Subject{Kind: state.KindIP, IP: "10.0.0.10", Node: "n1"}
	address9   = state.Subject{Kind: state.KindIP, IP: "10.0.0.9", Node: "n1"}
	inTrouble  = finding("pool/no-free-blocks", state.Critical, poolGold)
	inTroubleW = finding("pool/no-free-blocks", state.Warning, poolGold)
)

func TestCompare(t *testing.T) {
	from := report(inTroubleW, finding("pool/undersized", state.Warning, poolTin), finding("node/no-block", state.Error, nodeOne), finding("ip/borrowed", state.Warning, address))
	to := report(inTrouble, finding("pool/undersized", state.Info, poolTin), finding("ip/borrowed", state.Warning, address9), finding("ip/borrowed", state.Warning, address),
		finding("ip/leaked", state.Warning, address))
	d := expectDiff(t, from, to,
		"new warning ip/borrowed 10.0.0.9",
		"new warning ip/leaked 10.0.0.10",
		"changed critical pool/no-free-blocks gold was warning",
		"changed info pool/undersized tin was warning",
		"fixed error node/no-block n1",
		"unchanged warning ip/borrowed 10.0.0.10")
	if d.Summary != (audit.DiffSummary{New: 2, Changed: 2, Fixed: 1, Unchanged: 1}) {
		t.Errorf("%+v", d.Summary)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"AuditDiff"`, `"change":"changed","oldSeverity":"warning","check":"pool/no-free-blocks"`, `"fixed":1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the data lack %s: %s", want, text)
		}
	}
	expectDiff(t, to, to, "unchanged critical pool/no-free-blocks gold", "unchanged warning ip/borrowed 10.0.0.9", "unchanged warning ip/borrowed 10.0.0.10",
		"unchanged warning ip/leaked 10.0.0.10", "unchanged info pool/undersized tin")
	if d := audit.Compare(report(), report()); d.Findings == nil || len(d.Findings) > 0 {
		t.Errorf("two empty reports: %+v", d)
	}
}

// TestDiffFails: only new findings, and findings that rose to the severity, count.
func TestDiffFails(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to *audit.Report
		at       state.Severity
		want     bool
	}{
		{"new", report(), report(inTrouble), state.Critical, true},
		{"new, but less severe", report(), report(inTroubleW), state.Error, false},
		{"old", report(inTrouble), report(inTrouble), state.Info, false},
		{"fixed", report(inTrouble), report(), state.Info, false},
		{"rose to it", report(inTroubleW), report(inTrouble), state.Error, true},
		{"rose above it", report(inTroubleW), report(inTrouble), state.Warning, false},
		{"fell", report(inTrouble), report(inTroubleW), state.Warning, false},
	} {
		if got := audit.Compare(c.from, c.to).AtOrAbove(c.at); got != c.want {
			t.Errorf("%s, at or above %s: %t", c.name, c.at, got)
		}
	}
}

// TestNotEvaluated: a finding is not fixed if the new report did not look for it.
func TestNotEvaluated(t *testing.T) {
	from := report(inTrouble, finding("ip/borrowed", state.Warning, address))
	incomplete := report()
	incomplete.Complete, incomplete.Gaps = false, []blocks.Gap{{Resource: blocks.Pods, Reason: "forbidden"}}
	expectDiff(t, from, incomplete, "notJudged critical pool/no-free-blocks gold: incomplete: pods: forbidden",
		"notJudged warning ip/borrowed 10.0.0.10: incomplete: pods: forbidden")

	skipped := report()
	skipped.SkippedChecks = []audit.Skipped{{"ip/borrowed", "pods: forbidden"}}
	expectDiff(t, from, skipped, "fixed critical pool/no-free-blocks gold", "notJudged warning ip/borrowed 10.0.0.10: pods: forbidden")
	skipped.SkippedChecks = append(skipped.SkippedChecks, audit.Skipped{"ip/borrowed", "10.0.0.10: of a pod that could not be read"})
	expectDiff(t, from, skipped, "fixed critical pool/no-free-blocks gold", "notJudged warning ip/borrowed 10.0.0.10: pods: forbidden; and 1 more")
	skipped.SkippedChecks = skipped.SkippedChecks[:1]

	narrowed := report()
	narrowed.Scope = &audit.Scope{Checks: []string{"ip/borrowed"}}
	expectDiff(t, from, narrowed, "fixed warning ip/borrowed 10.0.0.10", "notJudged critical pool/no-free-blocks gold: the check was not requested")
	narrowed.Scope = &audit.Scope{Nodes: []string{"n2"}}
	expectDiff(t, from, narrowed, "notJudged critical pool/no-free-blocks gold: only findings about n2 were requested",
		"notJudged warning ip/borrowed 10.0.0.10: only findings about n2 were requested")

	// A report with the same filter did look for it.
	same := report(from.Findings...)
	same.Scope = &audit.Scope{Nodes: []string{"n2"}}
	expectDiff(t, same, narrowed, "fixed critical pool/no-free-blocks gold", "fixed warning ip/borrowed 10.0.0.10")
	same.Scope = &audit.Scope{Nodes: []string{"n1", "n2"}}
	expectDiff(t, same, narrowed, "notJudged critical pool/no-free-blocks gold: only findings about n2 were requested",
		"notJudged warning ip/borrowed 10.0.0.10: only findings about n2 were requested")

	// In the other direction the finding is new, but may be older than it looks.
	expectDiff(t, skipped, from, "new critical pool/no-free-blocks gold", "new warning ip/borrowed 10.0.0.10: not evaluated in the old report: pods: forbidden")
}

// TestDiffOfMuted: a muted finding is not fixed, and is not new once it is no longer muted.
func TestDiffOfMuted(t *testing.T) {
	open := report(inTrouble)
	muted := report(inTrouble)
	rule, err := checks.All.ParseMuteRule("pool=gold")
	if err != nil {
		t.Fatal(err)
	}
	muted.Mute(&audit.Mutes{Rules: []audit.MuteRule{rule}})
	expectDiff(t, open, muted, "muted critical pool/no-free-blocks gold: pool=gold")
	expectDiff(t, muted, open, "unchanged critical pool/no-free-blocks gold")
	expectDiff(t, muted, muted, "muted critical pool/no-free-blocks gold: pool=gold")
	based := report(inTrouble)
	based.Mute(&audit.Mutes{Baselines: []*audit.Baseline{audit.NewBaseline("base.json", open)}})
	expectDiff(t, open, based, "muted critical pool/no-free-blocks gold: baseline base.json")
}

// TestDiffWithoutFingerprints: reports that were written or edited by hand may have no
// fingerprints.
func TestDiffWithoutFingerprints(t *testing.T) {
	bare := report(inTrouble)
	bare.Findings[0].Fingerprint = ""
	expectDiff(t, bare, report(inTrouble), "unchanged critical pool/no-free-blocks gold")
}
