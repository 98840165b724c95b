package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Check is one check of a State, with its documentation. A check needs an ID, Title,
// Severities, Why, Confirm, Remedies, Never, Requires and Run.
type Check struct {
	// ID is "group/name", such as "pool/no-free-blocks".
	ID string
	// Title describes the problem in one line.
	Title string
	// Severities are the possible severities of its findings, the highest first.
	Severities []state.Severity
	// Graded describes how the severity is chosen, if there are several.
	Graded string
	// Why explains what a finding means for users of the cluster.
	Why string
	// Confirm explains how to verify a finding with read-only commands.
	Confirm string
	// Remedies are the general remedies, the preferred one first. Each finding has the
	// remedies that fit its state.
	Remedies []remedies.Remedy
	// RemediesAt are the remedies by severity; nil if they do not depend on it.
	RemediesAt map[state.Severity][]remedies.Remedy
	// Never warns of a mistake that makes matters worse.
	Never string
	// Verify explains how users see that the problem is over, if the absence of the finding
	// does not show it.
	Verify string
	// Misread is the most common misunderstanding of the finding; empty if there is none.
	Misread string
	// Requires are the resources that the check cannot do without. If one of them has a
	// gap, the check is skipped and the report says so.
	Requires []blocks.Resource
	// Optional are resources that only a part of the verdict needs. If one of them has a
	// gap, that part is skipped. To confirm a finding, they are read again together with
	// Requires.
	Optional []blocks.Resource
	// HostViews is true if the check evaluates only host views. Without host views it finds
	// nothing and counts as inconclusive.
	HostViews bool
	// Run adds the findings. It must not keep or change the State.
	Run func(*state.State, *Findings)
}

// SeverityText describes the severities of the findings and when each applies.
func (c *Check) SeverityText() string { return cmp.Or(c.Graded, c.Severities[0].String()) }

// Verification explains how to see that the problem is fixed.
func (c *Check) Verification() string {
	text := "calico-audit report --check " + c.ID + " no longer lists it."
	if c.Verify != "" {
		text += " " + c.Verify
	}
	return text
}

// Checks is a list of checks, ordered by ID.
type Checks []*Check

// ByID returns the check with the given ID. The error for an unknown ID suggests similar
// ones.
func (cs Checks) ByID(id string) (*Check, error) {
	group, _, _ := strings.Cut(id, "/")
	var near []string
	for _, c := range cs {
		if c.ID == id {
			return c, nil
		}
		if strings.HasPrefix(c.ID, group+"/") || strings.HasSuffix(c.ID, "/"+id) {
			near = append(near, c.ID)
		}
	}
	if len(near) > 0 {
		return nil, fmt.Errorf("unknown check %q: did you mean %s?", id, strings.Join(near, ", "))
	}
	return nil, fmt.Errorf("unknown check %q: \"calico-audit checks\" lists them all", id)
}

// Select returns the checks that match any of the patterns: an ID or a group ("pool" or
// "pool/*"). Without patterns it returns all checks. A pattern that matches no check is an
// error.
func (cs Checks) Select(patterns []string) (Checks, error) {
	if len(patterns) == 0 {
		return cs, nil
	}
	var out Checks
	for _, p := range patterns {
		group := strings.TrimSuffix(p, "/*")
		found := false
		for _, c := range cs {
			if c.ID == p || strings.HasPrefix(c.ID, group+"/") {
				found = true
				if !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
		}
		if !found {
			_, err := cs.ByID(p)
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b *Check) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Skipped records that a check gave no verdict or left out a part of it, and why.
type Skipped struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Findings collects the findings of a check while it runs.
type Findings struct {
	Check   *Check
	state   *state.State
	all     []Finding
	skipped []Skipped
	// said holds the entries of skipped, to avoid duplicates.
	said map[Skipped]bool
	// inconclusive is true if the check has no complete verdict.
	inconclusive bool
}

// Add records a finding of the running check.
func (f *Findings) Add(x Finding) {
	x.Check, x.by = f.Check.ID, f.Check
	x.Fingerprint = Fingerprint(x.Check, x.Subject)
	if root := remedies.Of(f.state).Root(x.Root); root != nil && len(x.Remedies) == 0 {
		x.Remedies = root.Remedies()
	}
	switch {
	case len(x.Remedies) > 0:
		x.Fix = FixOf(x.Remedies)
	case x.Fix.Command == "":
		x.Fix = Look("calico-audit explain %s", x.Subject.ID())
	}
	if x.Evidence == nil {
		x.Evidence = []state.Evidence{}
	}
	x.order = subjectOrder(x.Subject)
	f.all = append(f.all, x)
}

// SkipPartial records that the running check left out a part of its verdict, such as one
// object, and why.
func (f *Findings) SkipPartial(format string, args ...any) {
	s := Skipped{f.Check.ID, fmt.Sprintf(format, args...)}
	if !f.said[s] {
		if f.said == nil {
			f.said = map[Skipped]bool{}
		}
		f.said[s] = true
		f.skipped = append(f.skipped, s)
	}
}

// Inconclusive records that the running check has no complete verdict, and why. The absence
// of findings then proves nothing.
func (f *Findings) Inconclusive(format string, args ...any) {
	f.inconclusive = true
	f.SkipPartial(format, args...)
}
