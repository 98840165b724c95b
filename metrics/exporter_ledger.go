package metrics

import (
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// The rule by which findings that rest on something not being there become known.
// The watches of different kinds are not at the same point, so that each pod that
// starts may seem, for a moment, to use an address that no block records.
//
//  1. What does not rest on absence counts at once.
//  2. Below error it counts once it was found throughout for settle, by the API
//     server's clock: the state was then known to be current after it was first
//     found, which makes the later audit a second look.
//  3. At error or critical it counts once it was found throughout for settle, and
//     then a second reading of all that its check needs and uses, which began after
//     that, finds it too. What comes and goes with the churn of pods therefore
//     causes no reading.
//  4. A second reading is of all findings that await one. The next begins
//     readingGap after it has ended, or nine times as long as it took if that is
//     longer: at most a tenth of the time is spent on them.
//  5. What was confirmed stays so until its check, run again, does not find it. If it
//     grows to error or worse, it is shown as before until that is confirmed.
//  6. Until it counts, a finding at error or critical is named as withheld.
const (
	settle     = 2 * time.Second
	readingGap = 10 * time.Second
)

// ledger knows which findings of the last audit are confirmed.
type ledger struct {
	entries map[string]*entry
	// unsettled is true if some only have to be found for longer, and unsure counts
	// those at error or critical that are withheld.
	unsettled bool
	unsure    int
}

// entry is a finding of the last audit.
type entry struct {
	check string
	// since is the state's time at which it was first found, and seen the same by the
	// clock here.
	since, seen time.Time
	// sure is the severity up to which it is confirmed; 0 if it is not.
	sure audit.Severity
	// shown is the finding as it was last shown; nil if it was not.
	shown *audit.Finding
	// awaits is true if only a second reading can confirm it, and why says what came
	// of the last one.
	awaits bool
	why    string
}

// confirm takes all findings of a result for confirmed.
func (l *ledger) confirm(r *audit.Result, takenAt time.Time) {
	l.entries = map[string]*entry{}
	for i := range r.Findings {
		f := &r.Findings[i]
		l.entries[f.Fingerprint] = &entry{check: f.Check, since: takenAt, seen: time.Now(), sure: f.Severity, shown: f}
	}
}

// sift returns the part of a result that counts. The result is one of a state that
// was known to be current at takenAt, and judged are the checks that gave a verdict.
func (l *ledger) sift(r *audit.Result, takenAt time.Time, judged map[string]bool) *audit.Result {
	next := make(map[string]*entry, len(r.Findings))
	for print, e := range l.entries {
		if !judged[e.check] {
			e.awaits, next[print] = false, e
		}
	}
	out := &audit.Result{Skipped: slices.Clone(r.Skipped)}
	l.unsettled, l.unsure = false, 0
	for i := range r.Findings {
		f := &r.Findings[i]
		e := l.entries[f.Fingerprint]
		if e == nil {
			e = &entry{check: f.Check, since: takenAt, seen: time.Now()}
		}
		next[f.Fingerprint] = e
		if !f.Absence || f.Severity < audit.Error && takenAt.Sub(e.since) >= settle {
			e.sure = max(e.sure, f.Severity)
		}
		if e.sure >= min(f.Severity, audit.Error) {
			e.awaits, e.why, e.shown = false, "", f
			out.Findings = append(out.Findings, *f)
			continue
		}
		if e.awaits = f.Severity >= audit.Error; !e.awaits {
			l.unsettled = true
		} else {
			l.unsure++
			out.Skipped = append(out.Skipped, audit.Skipped{Check: f.Check, Reason: "withheld for " + f.Subject.ResourceName() + ": " + e.reason()})
		}
		if e.shown != nil {
			out.Findings = append(out.Findings, *e.shown)
		}
	}
	l.entries = next
	return audit.Join(out)
}

func (e *entry) reason() string {
	if e.why != "" {
		return e.why
	}
	return "it awaits a second reading that confirms it"
}

// waiting returns the fingerprints of findings that a second reading can confirm by
// now, and the checks that made them.
func (l *ledger) waiting(now time.Time) (prints []string, checks []*audit.Check) {
	for print, e := range l.entries {
		if !e.awaits || now.Sub(e.seen) < settle {
			continue
		}
		prints = append(prints, print)
		if c, err := audit.CheckByID(e.check); err == nil && !slices.Contains(checks, c) {
			checks = append(checks, c)
		}
	}
	return prints, checks
}

// next returns when the first finding can be confirmed by a reading; zero if none
// awaits one.
func (l *ledger) next() time.Time {
	var first time.Time
	for _, e := range l.entries {
		if at := e.seen.Add(settle); e.awaits && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// settleWith notes what a second reading found of findings; nil if it failed.
func (l *ledger) settleWith(prints []string, second *audit.Result) {
	if second == nil {
		for _, print := range prints {
			if e := l.entries[print]; e != nil {
				e.why = "the second reading that would confirm it failed"
			}
		}
		return
	}
	found := map[string]audit.Severity{}
	for i := range second.Findings {
		found[second.Findings[i].Fingerprint] = second.Findings[i].Severity
	}
	for _, print := range prints {
		e := l.entries[print]
		switch {
		case e == nil:
		case found[print] >= audit.Error:
			e.sure = max(e.sure, found[print])
		case slices.ContainsFunc(second.Skipped, func(s audit.Skipped) bool { return s.Check == e.check }):
			e.why = "it could not be confirmed by a second reading"
		default:
			e.why = "a second reading did not find it; it is read again"
		}
	}
}

// readsOf returns what checks need and use, in the order of reading.
func readsOf(checks []*audit.Check) []blocks.Resource {
	var out []blocks.Resource
	for _, r := range blocks.Resources {
		if slices.ContainsFunc(checks, func(c *audit.Check) bool {
			return slices.Contains(c.Needs, r) || slices.Contains(c.Uses, r)
		}) {
			out = append(out, r)
		}
	}
	return out
}
