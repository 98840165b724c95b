package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Reasons why a finding is withheld.
const (
	awaitsReading   = "it awaits a second reading that confirms it"
	seenOnce        = "seen only in the second of two readings; run again to confirm it"
	readingFailed   = "the second reading that would confirm it failed"
	readingSkipped  = "it could not be confirmed by a second reading"
	readingDisagree = "a second reading did not find it; it will be read again"
)

// unconfirmed reports whether a finding needs a second reading before it counts. Kinds are
// read one after the other, so an object that looks absent may have appeared in between.
// Files do not change between two readings.
func (r *Result) unconfirmed(f *Finding) bool { return r.live && f.Absence }

// Reads returns the resources that checks require or can use, in the order of
// [blocks.Resources].
func Reads(checks []*Check) []blocks.Resource {
	var out []blocks.Resource
	for _, r := range blocks.Resources {
		if slices.ContainsFunc(checks, func(c *Check) bool { return slices.Contains(c.Requires, r) || slices.Contains(c.Optional, r) }) {
			out = append(out, r)
		}
	}
	return out
}

// NeedsConfirmation returns the resources to read again before the findings may be
// reported. It is empty for files, and if no finding depends on an absent object.
func (r *Result) NeedsConfirmation() []blocks.Resource {
	var checks []*Check
	for i := range r.Findings {
		if f := &r.Findings[i]; r.unconfirmed(f) && !slices.Contains(checks, f.by) {
			checks = append(checks, f.by)
		}
	}
	return Reads(checks)
}

// ViewsToConfirm returns the nodes whose host views must be read again before the findings
// may be reported.
func (r *Result) ViewsToConfirm() []string {
	var out []string
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Seen && r.unconfirmed(f) {
			out = append(out, f.Nodes...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Confirm returns the second of two results, without its unconfirmed findings. The second reading
// must have begun after the first had ended. A finding that depends on an absent object is
// confirmed if both results have it; if its severity is error or critical in the second, it must be
// at least error in the first. Findings that depend on host views also need those views to be read
// again. Skipped names each unconfirmed finding above warning, and each that the second reading
// could not evaluate.
func Confirm(first, second *Result) *Result {
	t := Tracker{awaits: seenOnce, entries: map[string]*tracked{}}
	for i := range first.Findings {
		f := &first.Findings[i]
		e := &tracked{check: f.by, sure: f.Severity}
		if !second.viewsAgain(first, f) {
			e.sure, e.why = 0, readingFailed
		}
		t.entries[f.Fingerprint] = e
	}
	out := t.Observe(second, time.Time{})
	found, skips := map[string]bool{}, map[string]bool{}
	for i := range second.Findings {
		found[second.Findings[i].Fingerprint] = true
	}
	for _, s := range second.Skipped {
		skips[s.Check] = true
	}
	for i := range first.Findings {
		f := &first.Findings[i]
		switch {
		case !first.unconfirmed(f) || found[f.Fingerprint]:
		case !second.viewsAgain(first, f):
			out.skipPartial(f, readingFailed)
		case skips[f.Check]:
			out.skipPartial(f, readingSkipped)
		}
	}
	out.sort()
	out.Skipped = slices.Compact(out.Skipped)
	return out
}

// viewsAgain reports whether r has a fresh copy of every host view that finding f of an
// earlier result depends on.
func (r *Result) viewsAgain(earlier *Result, f *Finding) bool {
	return !f.Seen || !slices.ContainsFunc(f.Nodes, func(node string) bool {
		_, viewed := earlier.viewed[node]
		return viewed && !r.viewed[node]
	})
}

// Unconfirmed returns the result to report after a second reading failed. It drops the
// findings that needed confirmation, names each in Skipped, and lists the unread resources
// in Unread.
func (r *Result) Unconfirmed(err error) *Result {
	out := r.SkipUnconfirmed(readingFailed)
	out.Unread = UnreadGaps(r.NeedsConfirmation(), err)
	return out
}

// UnreadGaps returns a gap for each resource that a second reading could not read.
func UnreadGaps(resources []blocks.Resource, err error) []blocks.Gap {
	out := make([]blocks.Gap, len(resources))
	for i, r := range resources {
		out[i] = blocks.Gap{Resource: r, Reason: fmt.Sprintf("the second reading failed: %v", err)}
	}
	return out
}

// SkipUnconfirmed drops the findings that need confirmation, and names each in Skipped with
// the reason.
func (r *Result) SkipUnconfirmed(reason string) *Result {
	out := r.without()
	for _, f := range r.Findings {
		if r.unconfirmed(&f) {
			out.skipPartial(&f, reason)
			continue
		}
		out.Findings = append(out.Findings, f)
	}
	out.sort()
	return out
}

// without returns a copy of the result without findings.
func (r *Result) without() *Result {
	return &Result{live: r.live, Skipped: slices.Clone(r.Skipped), Inconclusive: r.Inconclusive}
}

func (r *Result) skipPartial(f *Finding, reason string) {
	r.Skipped = append(r.Skipped, Skipped{f.Check, "withheld for " + f.Subject.ResourceName() + ": " + reason})
}

func (r *Result) skips(check string) bool {
	return slices.ContainsFunc(r.Skipped, func(s Skipped) bool { return s.Check == check })
}

// Tracker confirms findings while a cluster is watched. Watches of different kinds lag
// behind each other, so each starting pod may briefly seem to use an address that no block
// records.
//
//  1. A finding that does not depend on an absent object counts immediately.
//  2. A finding below error counts after every audit during PropagationDelay found it. The delay is
//     measured by the API server's clock. The state is then known to be newer than the first
//     finding, so the later audit counts as a second look.
//  3. A finding at error or critical must also last for PropagationDelay, in at least two audits.
//     Then a new reading of all resources that its check reads must find it again. Findings that
//     come and go while pods start therefore cause no extra reads.
//  4. A confirmed finding stays confirmed until its check runs again without finding it. If it
//     rises to error or critical, the old severity is shown until the new one is confirmed.
//  5. Until a finding at error or critical counts, Skipped names it.
type Tracker struct {
	// PropagationDelay is how long every audit must find a finding before it counts.
	PropagationDelay time.Duration
	// Unsettled is true if a finding of the last result has not yet lasted for
	// PropagationDelay. Unsure counts the withheld findings at error or critical.
	Unsettled bool
	Unsure    int

	entries map[string]*tracked
	awaits  string // reason for findings without a second reading; "" means awaitsReading
}

// tracked is a finding of the last result.
type tracked struct {
	check *Check
	// since is the time of the first state with the finding. seen is the local time when it
	// was observed.
	since, seen time.Time
	// sure is the highest confirmed severity; 0 before any confirmation.
	sure state.Severity
	// shown is the last version of the finding that Observe returned; nil if it returned
	// none.
	shown *Finding
	// pending is true if only a second reading is missing. why is the outcome of the last
	// one.
	pending bool
	why     string
	// nodes need new host views for the second reading.
	nodes []string
}

// Accept marks all findings of a result as confirmed. The result was current at takenAt.
func (t *Tracker) Accept(r *Result, takenAt time.Time) {
	t.entries = map[string]*tracked{}
	for i := range r.Findings {
		f := &r.Findings[i]
		t.entries[f.Fingerprint] = &tracked{check: f.by, since: takenAt, seen: time.Now(), sure: f.Severity, shown: f}
	}
}

// Observe returns the confirmed part of a result whose state was current at takenAt. It
// remembers the confirmed findings of checks that are inconclusive this time.
func (t *Tracker) Observe(r *Result, takenAt time.Time) *Result {
	next := make(map[string]*tracked, len(r.Findings))
	for print, e := range t.entries {
		if slices.Contains(r.Inconclusive, e.check.ID) {
			e.pending, next[print] = false, e
		}
	}
	out := r.without()
	t.Unsettled, t.Unsure = false, 0
	for i := range r.Findings {
		f := &r.Findings[i]
		e, known := t.entries[f.Fingerprint]
		if !known {
			e = &tracked{check: f.by, since: takenAt, seen: time.Now()}
		}
		next[f.Fingerprint] = e
		if !r.unconfirmed(f) || known && f.Severity < state.Error && takenAt.Sub(e.since) >= t.PropagationDelay {
			e.sure = max(e.sure, f.Severity)
		}
		if e.sure >= min(f.Severity, state.Error) {
			e.pending, e.why, e.shown = false, "", f
			out.Findings = append(out.Findings, *f)
			continue
		}
		e.pending = f.Severity >= state.Error && known && time.Since(e.seen) >= t.PropagationDelay
		t.Unsettled = t.Unsettled || !e.pending
		if f.Seen {
			e.nodes = f.Nodes
		}
		if f.Severity >= state.Error {
			t.Unsure++
			out.skipPartial(f, cmp.Or(e.why, t.awaits, awaitsReading))
		}
		if e.shown != nil {
			out.Findings = append(out.Findings, *e.shown)
		}
	}
	t.entries = next
	out.sort()
	return out
}

// Pending returns the fingerprints of the findings that are ready for a second reading, the
// checks that made them, and the nodes whose host views must be read again.
func (t *Tracker) Pending() (prints []string, checks []*Check, nodes []string) {
	for print, e := range t.entries {
		if !e.pending {
			continue
		}
		prints, nodes = append(prints, print), append(nodes, e.nodes...)
		if !slices.Contains(checks, e.check) {
			checks = append(checks, e.check)
		}
	}
	slices.Sort(nodes)
	return prints, checks, slices.Compact(nodes)
}

// Reread records the result of a second reading of pending findings; nil means that the
// reading failed. A finding that depends on a host view stays unconfirmed if the view was
// not read again.
func (t *Tracker) Reread(prints []string, second *Result) {
	found := map[string]*Finding{}
	if second != nil {
		for i := range second.Findings {
			found[second.Findings[i].Fingerprint] = &second.Findings[i]
		}
	}
	for _, print := range prints {
		e, f := t.entries[print], found[print]
		switch {
		case e == nil:
		case second == nil, f != nil && !second.viewsAgain(second, f):
			e.why = readingFailed
		case f != nil && f.Severity >= state.Error:
			e.sure = max(e.sure, f.Severity)
		case second.skips(e.check.ID):
			e.why = readingSkipped
		default:
			e.why = readingDisagree
		}
	}
}
