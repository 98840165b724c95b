package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
)

// Mutes suppress findings that people already know: by rules, and by earlier reports.
type Mutes struct {
	Rules     []MuteRule
	Baselines []*Baseline
}

// MuteRule mutes findings that match all its non-empty fields.
type MuteRule struct {
	// Text is the rule as written.
	Text string
	// Checks are IDs; empty matches every check.
	Checks []string
	// Node and Pool are names. A rule for a node matches findings whose subject is on that
	// node. If the subject has no node, the finding must involve this node and no other.
	// Pools work the same way.
	Node, Pool string
	// Until is when the rule expires; zero means never.
	Until time.Time
}

// Baseline is an earlier report; its findings are muted.
type Baseline struct {
	// Name identifies the report, such as a file's path.
	Name string

	known map[string]state.Severity // by fingerprint
}

// NewBaseline makes a baseline from a report: its findings, and the findings that its own
// baselines muted, so that a chain of baselines forgets none. Findings muted by rules are
// left out.
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
		// Also store the current fingerprint, in case the report's was computed
		// differently.
		for _, print := range []string{f.Fingerprint, Fingerprint(f.Check, f.Subject)} {
			b.known[print] = max(b.known[print], f.Severity)
		}
	}
}

// mutes reports whether the baseline has a finding with at least the same severity.
func (b *Baseline) mutes(f *Finding) bool { return b.known[f.Fingerprint] >= f.Severity }

// Expired reports whether the rule has expired at a time. If the time is unknown, every
// rule with an end counts as expired, so that no finding is muted by guess.
func (r *MuteRule) Expired(at time.Time) bool {
	return !r.Until.IsZero() && !at.Before(r.Until) || !r.Until.IsZero() && at.IsZero()
}

// NextExpiry returns when the next rule expires after a time; zero if no rule will.
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
		(r.Node == "" || concerned(f.Subject.Node, f.Nodes) == r.Node) &&
		(r.Pool == "" || f.Pool() == r.Pool)
}

// Pool returns the name of the pool that a finding is about: its subject, or else the only pool
// that it involves. It returns "" if there is no such pool, or several.
func (f *Finding) Pool() string {
	subject := ""
	if f.Subject.Kind == state.KindPool {
		subject = f.Subject.Name
	}
	return concerned(subject, f.Pools)
}

// concerned returns the subject if it is not empty, or else the only distinct non-empty
// name of the others. It returns "" if they have several.
func concerned(subject string, others []string) string {
	if subject != "" {
		return subject
	}
	for _, o := range others {
		if o != "" && subject != "" && o != subject {
			return ""
		}
		subject = cmp.Or(subject, o)
	}
	return subject
}

// Muted is a rule or baseline with the findings that it muted.
type Muted struct {
	// Rule is the rule as written, or the baseline's name.
	Rule     string `json:"rule"`
	Baseline bool   `json:"baseline,omitempty"`
	// Until is when the rule expires. Expired is true if it already has.
	Until    *Time     `json:"until,omitempty"`
	Expired  bool      `json:"expired,omitempty"`
	Count    int       `json:"count"`
	Findings []Finding `json:"findings"`
}

// Apply splits findings into those left and those muted. at is the time of the findings.
// The first matching rule takes a finding; baselines follow the rules. muted has an entry
// for every rule and baseline, even without findings. Apply does not change the findings.
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

// which returns the index of the rule or baseline that mutes a finding, or -1.
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
