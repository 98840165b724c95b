package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Why findings are withheld.
const (
	awaitsReading   = "it awaits a second reading that confirms it"
	seenOnce        = "seen in the second of two readings only; run again to confirm it"
	readingFailed   = "the second reading that would confirm it failed"
	readingSkipped  = "it could not be confirmed by a second reading"
	readingDisagree = "a second reading did not find it; it is read again"
)

// unconfirmed reports whether a finding counts only once a second reading agrees:
// objects of different kinds are read one after the other, and what looks absent may
// have appeared in between. A file does not change between two looks at it.
func (r *Result) unconfirmed(f *Finding) bool { return r.live && f.Absence }

// Reads returns what checks need and use, in the order of [blocks.Resources].
func Reads(checks []*Check) []blocks.Resource {
	var out []blocks.Resource
	for _, r := range blocks.Resources {
		if slices.ContainsFunc(checks, func(c *Check) bool { return slices.Contains(c.Requires, r) || slices.Contains(c.Optional, r) }) {
			out = append(out, r)
		}
	}
	return out
}

// NeedsConfirmation returns the resources that must be read again before the
// findings may be reported. It is empty for files and where no finding rests on
// absence.
func (r *Result) NeedsConfirmation() []blocks.Resource {
	var checks []*Check
	for i := range r.Findings {
		if f := &r.Findings[i]; r.unconfirmed(f) && !slices.Contains(checks, f.by) {
			checks = append(checks, f.by)
		}
	}
	return Reads(checks)
}

// ViewsToConfirm returns the nodes whose host views must be read again for that, too.
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

// Confirm joins two results, the second made from a reading that began after
// the first had ended. It is the second, less the findings that rest on absence
// and that the first does not have, or has only below error where the second
// says error or worse, and less those that rest on host views that could not be read
// again. Of those that are graver than a warning, and of those that the second cannot
// evaluate, it says that they are withheld.
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

// viewsAgain reports whether the host views that a finding of an earlier result rests on,
// if it rests on any, were read again.
func (r *Result) viewsAgain(earlier *Result, f *Finding) bool {
	return !f.Seen || !slices.ContainsFunc(f.Nodes, func(node string) bool {
		_, viewed := earlier.viewed[node]
		return viewed && !r.viewed[node]
	})
}

// Unconfirmed returns the result without the findings that would have needed
// confirmation, saying so of each, and with what could not be read: for when a second
// reading failed.
func (r *Result) Unconfirmed(err error) *Result {
	out := r.SkipUnconfirmed(readingFailed)
	out.Unread = UnreadGaps(r.NeedsConfirmation(), err)
	return out
}

// UnreadGaps says of resources that they could not be read a second time.
func UnreadGaps(resources []blocks.Resource, err error) []blocks.Gap {
	out := make([]blocks.Gap, len(resources))
	for i, r := range resources {
		out[i] = blocks.Gap{Resource: r, Reason: fmt.Sprintf("the second reading failed: %v", err)}
	}
	return out
}

// SkipUnconfirmed returns the result without the findings that would have needed
// confirmation, saying why of each.
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

// without returns the result without its findings.
func (r *Result) without() *Result {
	return &Result{live: r.live, Skipped: slices.Clone(r.Skipped), Inconclusive: r.Inconclusive}
}

func (r *Result) skipPartial(f *Finding, reason string) {
	r.Skipped = append(r.Skipped, Skipped{f.Check, "withheld for " + f.Subject.ResourceName() + ": " + reason})
}

func (r *Result) skips(check string) bool {
	return slices.ContainsFunc(r.Skipped, func(s Skipped) bool { return s.Check == check })
}

// Tracker knows which findings are confirmed while a cluster is watched. Watches of
// different kinds are not at the same point, so that each pod that starts may seem,
// for a moment, to use an address that no block records.
//
//  1. What does not rest on absence counts at once.
//  2. Below error it counts once it was found throughout for Settle, by the API
//     server's clock: the state was then known to be current after it was first
//     found, which makes the later audit a second look.
//  3. At error or critical it counts once it was found throughout for Settle, by two
//     audits at least, and then a second reading of all that its check needs and uses,
//     which began after that, finds it too. What comes and goes with the churn of pods
//     therefore causes no reading.
//  4. What was confirmed stays so until its check, run again, does not find it. If it
//     grows to error or worse, it is shown as before until that is confirmed.
//  5. Until it counts, a finding at error or critical is named as withheld.
type Tracker struct {
	// PropagationDelay is how long a finding must have been found throughout.
	PropagationDelay time.Duration
	// Unsettled is true if findings of the last result have to be found again, for
	// longer, and Unsure counts those at error or critical that are withheld.
	Unsettled bool
	Unsure    int

	entries map[string]*tracked
	awaits  string // what is said of findings that no second reading was made for; "" for [awaitsReading]
}

// tracked is a finding of the last result.
type tracked struct {
	check *Check
	// since is the state's time at which it was first found, and seen the same by the
	// clock here.
	since, seen time.Time
	// sure is the severity up to which it is confirmed; 0 if it is not.
	sure state.Severity
	// shown is the finding as it was last shown; nil if it was not.
	shown *Finding
	// pending is true if a second reading is all that it lacks, and why says what came
	// of the last one.
	pending bool
	why     string
	// nodes are to be asked again for that.
	nodes []string
}

// Accept takes all findings of a result that was current at takenAt for confirmed.
func (t *Tracker) Accept(r *Result, takenAt time.Time) {
	t.entries = map[string]*tracked{}
	for i := range r.Findings {
		f := &r.Findings[i]
		t.entries[f.Fingerprint] = &tracked{check: f.by, since: takenAt, seen: time.Now(), sure: f.Severity, shown: f}
	}
}

// Observe returns the part of a result that counts. The result is one of a state that
// was known to be current at takenAt. What was confirmed of a check that gave no
// verdict now is remembered.
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

// Pending returns the fingerprints of findings that a second reading can confirm by
// now, the checks that made them, and the nodes that are to be asked again.
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

// Reread takes in what a second reading found of pending findings; nil if it failed. What
// it found by host views that were not read again confirms nothing.
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
