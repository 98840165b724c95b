package audit

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Result is what the checks of one run found.
type Result struct {
	Findings []Finding
	// Skipped are the checks that gave no verdict, and verdicts withheld.
	Skipped []Skipped
	// Unjudged are the IDs of the checks that gave no verdict as a whole. What they
	// found nevertheless stands, and what they did not find may be there.
	Unjudged []string

	live bool
}

// Run runs checks over a State; nil runs all.
func Run(st *State, checks []*Check) *Result {
	if checks == nil {
		checks = Checks()
	}
	r := &Result{live: st.Cluster.Live}
	for _, c := range checks {
		if g := st.firstMissing(c.Needs); g != nil {
			r.Skipped = append(r.Skipped, Skipped{c.ID, g.String()})
			r.Unjudged = append(r.Unjudged, c.ID)
			continue
		}
		f := Findings{check: c}
		c.Run(st, &f)
		r.Findings = append(r.Findings, f.all...)
		r.Skipped = append(r.Skipped, f.skipped...)
		if f.unjudged {
			r.Unjudged = append(r.Unjudged, c.ID)
		}
	}
	r.sort()
	return r
}

// Join makes one result of several that were made from the same State.
func Join(results ...*Result) *Result {
	out := &Result{}
	for _, r := range results {
		out.live = out.live || r.live
		out.Findings = append(out.Findings, r.Findings...)
		out.Skipped = append(out.Skipped, r.Skipped...)
		out.Unjudged = append(out.Unjudged, r.Unjudged...)
	}
	out.sort()
	return out
}

func (r *Result) sort() {
	slices.SortStableFunc(r.Findings, compareFindings)
	slices.SortStableFunc(r.Skipped, func(a, b Skipped) int {
		if c := strings.Compare(a.Check, b.Check); c != 0 {
			return c
		}
		return strings.Compare(a.Reason, b.Reason)
	})
}

// unconfirmed tells whether a finding counts only once a second reading agrees.
func (r *Result) unconfirmed(f *Finding) bool { return r.live && f.Absence }

// NeedsConfirmation returns the resources that must be read again before the
// findings may be reported: objects of different kinds are read one after the
// other, and what looks absent may have appeared in between. It is empty for
// files and where no finding rests on absence.
func (r *Result) NeedsConfirmation() []blocks.Resource {
	need := map[blocks.Resource]bool{}
	for i := range r.Findings {
		if f := &r.Findings[i]; r.unconfirmed(f) {
			c := registry[f.Check]
			for _, res := range slices.Concat(c.Needs, c.Uses) {
				need[res] = true
			}
		}
	}
	var out []blocks.Resource
	for _, res := range blocks.Resources {
		if need[res] {
			out = append(out, res)
		}
	}
	return out
}

// Confirm joins two results, the second made from a reading that began after
// the first had ended. It is the second, less the findings that rest on absence
// and that the first does not have, or has only below error where the second
// says error or worse. Of those that are graver than a warning, and of those that
// the second cannot judge, it says that they are withheld.
func Confirm(first, second *Result) *Result {
	seen := map[string]Severity{}
	for i := range first.Findings {
		f := &first.Findings[i]
		seen[f.Fingerprint] = f.Severity
	}
	out := &Result{live: second.live, Skipped: slices.Clone(second.Skipped), Unjudged: second.Unjudged}
	for _, f := range second.Findings {
		if before := seen[f.Fingerprint]; second.unconfirmed(&f) && (before == 0 || f.Severity >= Error && before < Error) {
			if f.Severity >= Error {
				out.Skipped = append(out.Skipped, Skipped{f.Check, "withheld for " + f.Subject.ResourceName() + ": seen in the second of two readings only; run again to confirm it"})
			}
			continue
		}
		out.Findings = append(out.Findings, f)
	}
	for _, f := range first.Findings {
		if first.unconfirmed(&f) && !second.has(f.Fingerprint) && skips(second, f.Check) {
			out.Skipped = append(out.Skipped, Skipped{f.Check, "withheld for " + f.Subject.ResourceName() + ": it could not be confirmed by a second reading"})
		}
	}
	out.sort()
	out.Skipped = slices.Compact(out.Skipped)
	return out
}

func (r *Result) has(fingerprint string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Fingerprint == fingerprint })
}

func skips(r *Result, check string) bool {
	return slices.ContainsFunc(r.Skipped, func(s Skipped) bool { return s.Check == check })
}

// Withhold returns the result without the findings that would have needed
// confirmation, saying so of each: for when a second reading failed.
func (r *Result) Withhold(reason string) *Result {
	out := &Result{live: r.live, Skipped: slices.Clone(r.Skipped), Unjudged: r.Unjudged}
	for _, f := range r.Findings {
		if r.unconfirmed(&f) {
			out.Skipped = append(out.Skipped, Skipped{f.Check, "withheld for " + f.Subject.ResourceName() + ": " + reason})
			continue
		}
		out.Findings = append(out.Findings, f)
	}
	out.sort()
	return out
}

func subjectOrder(s Subject) netip.Prefix {
	if a, err := netip.ParseAddr(s.IP); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, _ := netip.ParsePrefix(s.CIDR)
	return p
}
