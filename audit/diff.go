package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// DiffKind is the kind of a comparison of two reports.
const DiffKind = "AuditDiff"

// Change classifies a finding of a comparison.
type Change string

// The changes, in display order.
const (
	// Added: only in the new report.
	Added Change = "new"
	// Changed: in both reports, with different severities.
	Changed Change = "changed"
	// Fixed: only in the old report.
	Fixed Change = "fixed"
	// NotEvaluated: only in the old report, but the new report did not look for it.
	NotEvaluated Change = "notJudged"
	// Unchanged: in both reports.
	Unchanged Change = "unchanged"
	// MutedNow: muted in the new report.
	MutedNow Change = "muted"
)

// Changes lists all changes in display order.
var Changes = []Change{Added, Changed, Fixed, NotEvaluated, Unchanged, MutedNow}

// Diff is the comparison of two reports.
type Diff struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Old        DiffSide      `json:"old"`
	New        DiffSide      `json:"new"`
	Summary    DiffSummary   `json:"summary"`
	Findings   []DiffFinding `json:"findings"`
}

// DiffSide describes one of the two reports.
type DiffSide struct {
	// Source is the origin of the report, such as a file's path.
	Source   string        `json:"source"`
	Cluster  ReportCluster `json:"cluster"`
	Complete bool          `json:"complete"`
	Summary  Summary       `json:"summary"`
}

// DiffSummary counts findings by change.
type DiffSummary struct {
	New          int `json:"new"`
	Changed      int `json:"changed"`
	Fixed        int `json:"fixed"`
	NotEvaluated int `json:"notJudged"`
	Unchanged    int `json:"unchanged"`
	Muted        int `json:"muted"`
}

// DiffFinding is a finding and its change. The finding is copied from the new report or, if
// only the old report has it, from there.
type DiffFinding struct {
	Change Change `json:"change"`
	// OldSeverity is the severity in the old report; set only if it changed.
	OldSeverity *state.Severity `json:"oldSeverity,omitempty"`
	// Reason explains why the new report could not evaluate the finding, or which rule
	// mutes it. For a new finding it explains why the old report may have missed it.
	Reason string `json:"reason,omitempty"`
	Finding
}

// Rose reports whether the severity has risen.
func (f *DiffFinding) Rose() bool { return f.Change == Changed && f.Severity > *f.OldSeverity }

// Compare compares two reports by the fingerprints of their findings. Findings that the old
// report muted count as old. A finding that is missing from the new report is fixed only if
// the new report looked for it: if the report is incomplete, was narrowed, or skipped the
// check, the finding counts as not evaluated.
func Compare(from, to *Report) *Diff {
	d := &Diff{
		APIVersion: APIVersion, Kind: DiffKind, Findings: []DiffFinding{},
		Old: DiffSide{Cluster: from.Cluster, Complete: from.Complete, Summary: from.Summary},
		New: DiffSide{Cluster: to.Cluster, Complete: to.Complete, Summary: to.Summary},
	}
	before, after := from.byFingerprint(), map[string]bool{}
	for _, f := range to.Findings {
		after[fingerprint(&f)] = true
		x := DiffFinding{Change: Unchanged, Finding: f}
		old, was := before[fingerprint(&f)]
		switch {
		case !was:
			x.Change = Added
			if reason := from.blind(&f, to.Scope); reason != "" {
				x.Reason = "not evaluated in the old report: " + reason
			}
		case old.Severity != f.Severity:
			x.Change, x.OldSeverity = Changed, &old.Severity
		}
		d.Findings = append(d.Findings, x)
	}
	for _, m := range to.Muted {
		for _, f := range m.Findings {
			if print := fingerprint(&f); !after[print] {
				after[print] = true
				d.Findings = append(d.Findings, DiffFinding{Change: MutedNow, Reason: m.text(), Finding: f})
			}
		}
	}
	for _, f := range from.Findings {
		if after[fingerprint(&f)] {
			continue
		}
		x := DiffFinding{Change: Fixed, Finding: f}
		if x.Reason = to.blind(&f, from.Scope); x.Reason != "" {
			x.Change = NotEvaluated
		}
		d.Findings = append(d.Findings, x)
	}
	d.finish()
	return d
}

// finish sorts the findings and counts them.
func (d *Diff) finish() {
	for i := range d.Findings {
		f := &d.Findings[i]
		f.order = subjectOrder(f.Subject)
		switch f.Change {
		case Added:
			d.Summary.New++
		case Changed:
			d.Summary.Changed++
		case Fixed:
			d.Summary.Fixed++
		case NotEvaluated:
			d.Summary.NotEvaluated++
		case Unchanged:
			d.Summary.Unchanged++
		case MutedNow:
			d.Summary.Muted++
		}
	}
	slices.SortStableFunc(d.Findings, func(a, b DiffFinding) int {
		return cmp.Or(slices.Index(Changes, a.Change)-slices.Index(Changes, b.Change), compareFindings(a.Finding, b.Finding))
	})
}

// AtOrAbove reports whether a finding is new at severity s or above, or rose to it.
func (d *Diff) AtOrAbove(s state.Severity) bool {
	return slices.ContainsFunc(d.Findings, func(f DiffFinding) bool {
		return f.Severity >= s && (f.Change == Added || f.Rose() && *f.OldSeverity < s)
	})
}

// fingerprint returns a finding's fingerprint, and computes it if the report has none.
func fingerprint(f *Finding) string { return cmp.Or(f.Fingerprint, Fingerprint(f.Check, f.Subject)) }

// byFingerprint returns the findings of a report, including muted ones. Of several findings
// with one fingerprint it returns the most severe.
func (r *Report) byFingerprint() map[string]Finding {
	out := map[string]Finding{}
	add := func(findings []Finding) {
		for _, f := range findings {
			if have, ok := out[fingerprint(&f)]; !ok || have.Severity < f.Severity {
				out[fingerprint(&f)] = f
			}
		}
	}
	for _, m := range r.Muted {
		add(m.Findings)
	}
	add(r.Findings)
	return out
}

// blind explains why a report may have missed a finding: it was narrowed, skipped the check, or is
// incomplete. It returns "" if the report would contain the finding. other is the scope of the
// report that has the finding.
func (r *Report) blind(f *Finding, other *Scope) string {
	if other == nil {
		other = &Scope{}
	}
	if s := r.Scope; s != nil {
		switch {
		case len(s.Checks) > 0 && !slices.Contains(s.Checks, f.Check):
			return "the check was not requested"
		case !covers(s.Pools, other.Pools):
			return "only findings about " + strings.Join(s.Pools, ", ") + " were requested"
		case !covers(s.Nodes, other.Nodes):
			return "only findings about " + strings.Join(s.Nodes, ", ") + " were requested"
		}
	}
	var skipped, gaps []string
	for _, s := range r.SkippedChecks {
		if s.Check == f.Check {
			skipped = append(skipped, s.Reason)
		}
	}
	for _, g := range blocks.Untolerated(r.Gaps) {
		gaps = append(gaps, g.String())
	}
	switch {
	case len(skipped) > 0:
		return firstOf(skipped)
	case r.Complete:
		return ""
	case len(gaps) == 0:
		return "incomplete"
	}
	return "incomplete: " + firstOf(gaps)
}

// firstOf returns the first of several reasons and the number of the others.
func firstOf(reasons []string) string {
	if len(reasons) == 1 {
		return reasons[0]
	}
	return fmt.Sprintf("%s; and %d more", reasons[0], len(reasons)-1)
}

// covers reports whether one filter includes everything that another one includes. An empty filter
// includes everything.
func covers(these, others []string) bool {
	return len(these) == 0 || len(others) > 0 && !slices.ContainsFunc(others, func(o string) bool { return !slices.Contains(these, o) })
}

// Keep removes the results of all other checks from a report, and updates the counts.
func (r *Report) Keep(checks []*Check) {
	other := func(id string) bool {
		return !slices.ContainsFunc(checks, func(c *Check) bool { return c.ID == id })
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return other(f.Check) })
	r.SkippedChecks = slices.DeleteFunc(r.SkippedChecks, func(s Skipped) bool { return other(s.Check) })
	r.Summary.Muted = 0
	for i := range r.Muted {
		m := &r.Muted[i]
		m.Findings = slices.DeleteFunc(m.Findings, func(f Finding) bool { return other(f.Check) })
		m.Count = len(m.Findings)
		r.Summary.Muted += m.Count
	}
	r.recount()
}

// text names the rule or baseline.
func (m *Muted) text() string {
	if m.Baseline {
		return "baseline " + m.Rule
	}
	return m.Rule
}
