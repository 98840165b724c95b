package audit

import (
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
)

// Mutes are findings that somebody knows about and does not want to be told of
// again: those that rules name, and those of an earlier report.
type Mutes struct {
	Rules []MuteRule
	// Baselines are earlier reports.
	Baselines []*Baseline
}

// MuteRule mutes findings by what they are about. A finding is muted if it matches
// every part that is set.
type MuteRule struct {
	// Text is the rule as it was written.
	Text string
	// Checks are IDs; empty means every check.
	Checks []string
	// Node and Pool are names. A finding matches if it is about that node or
	// pool or, where its subject is neither, concerns no other: what is about
	// several nodes is not muted by one of them.
	Node, Pool string
	// Until is when the rule ends; zero for never.
	Until time.Time
}

// Baseline is an earlier report, whose findings are known.
type Baseline struct {
	// Name says which report it is, such as a file's path.
	Name string

	known map[string]state.Severity // by fingerprint
}

// NewBaseline makes a baseline of a report: of its findings, and of those that it
// muted by a baseline of its own, so that one made with the help of the one before
// forgets nothing. What it muted by rules is left to the rules.
func NewBaseline(name string, r *Report) *Baseline {
	b := &Baseline{Name: name, known: map[string]state.Severity{}}
	b.add(r.Findings)
	for _, m := range r.Muted {
		if m.Baseline {
			b.add(m.Findings)
		}
	}
	return b
}

func (b *Baseline) add(findings []Finding) {
	for i := range findings {
		f := &findings[i]
		// A fingerprint that was made in another way is one, too.
		for _, print := range []string{f.Fingerprint, Fingerprint(f.Check, f.Subject)} {
			b.known[print] = max(b.known[print], f.Severity)
		}
	}
}

// mutes reports whether a finding is known. One that is worse now is not.
func (b *Baseline) mutes(f *Finding) bool { return b.known[f.Fingerprint] >= f.Severity }

// Expired reports whether a rule has ended at a time. At a time that is not known,
// a rule that ends has ended: nothing is muted by guess.
func (r *MuteRule) Expired(at time.Time) bool {
	return !r.Until.IsZero() && !at.Before(r.Until) || !r.Until.IsZero() && at.IsZero()
}

// NextExpiry returns when the first of the rules ends that have not ended at a time; zero
// if none does.
func (m *Mutes) NextExpiry(at time.Time) (first time.Time) {
	for i := range m.Rules {
		if r := &m.Rules[i]; !r.Until.IsZero() && !r.Expired(at) && (first.IsZero() || r.Until.Before(first)) {
			first = r.Until
		}
	}
	return first
}

func (r *MuteRule) mutes(f *Finding) bool {
	return (len(r.Checks) == 0 || slices.Contains(r.Checks, f.Check)) &&
		(r.Node == "" || concerns(f.Subject.Node, f.Nodes, r.Node)) &&
		(r.Pool == "" || concerns(subjectPool(&f.Subject), f.Pools, r.Pool))
}

func subjectPool(s *state.Subject) string {
	if s.Kind == state.KindPool {
		return s.Name
	}
	return ""
}

// concerns reports whether a finding is about the one that is named: by its subject
// or, if that is none, by all that it concerns.
func concerns(subject string, others []string, name string) bool {
	if subject != "" {
		return subject == name
	}
	found := false
	for _, o := range others {
		if o != "" && o != name {
			return false
		}
		found = found || o == name
	}
	return found
}

// Muted is a rule, or a baseline, with the findings that it muted.
type Muted struct {
	// Rule is the rule as it was written, or the baseline's name.
	Rule     string `json:"rule"`
	Baseline bool   `json:"baseline,omitempty"`
	// Until is when the rule ends, and Expired is true if it has ended.
	Until   *Time `json:"until,omitempty"`
	Expired bool  `json:"expired,omitempty"`
	// Count is the number of Findings.
	Count    int       `json:"count"`
	Findings []Finding `json:"findings"`
}

// Apply parts findings into those that are left and those that are muted, rule by
// rule, in the order of the rules; baselines come last. What several would mute
// counts for the first. at is the time of the findings. Every rule is listed, also
// one that muted nothing. The findings are not changed.
func (m *Mutes) Apply(findings []Finding, at time.Time) (left []Finding, muted []Muted) {
	left = []Finding{}
	for _, r := range m.Rules {
		x := Muted{Rule: r.Text, Expired: r.Expired(at), Findings: []Finding{}}
		if !r.Until.IsZero() {
			x.Until = &Time{r.Until}
		}
		muted = append(muted, x)
	}
	for _, b := range m.Baselines {
		muted = append(muted, Muted{Rule: b.Name, Baseline: true, Findings: []Finding{}})
	}
	for i := range findings {
		f := &findings[i]
		if j := m.which(f, at); j >= 0 {
			muted[j].Count++
			muted[j].Findings = append(muted[j].Findings, *f)
			continue
		}
		left = append(left, *f)
	}
	return left, muted
}

// which returns the place of what mutes a finding; -1 if nothing does.
func (m *Mutes) which(f *Finding, at time.Time) int {
	for i := range m.Rules {
		if r := &m.Rules[i]; !r.Expired(at) && r.mutes(f) {
			return i
		}
	}
	for i, b := range m.Baselines {
		if b.mutes(f) {
			return len(m.Rules) + i
		}
	}
	return -1
}

// Mute takes the muted findings out of a report's findings and lists them apart.
// Findings are counted again.
func (r *Report) Mute(m *Mutes) {
	var muted []Muted
	r.Findings, muted = m.Apply(r.Findings, r.Cluster.TakenAt.Time)
	r.Muted = append(r.Muted, muted...)
	r.Summary.Muted = 0
	for _, x := range r.Muted {
		r.Summary.Muted += x.Count
	}
	r.recount()
}
