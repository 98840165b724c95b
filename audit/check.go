package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Check is one question asked of a State.
type Check struct {
	// ID is "group/name", such as "pool/no-free-blocks".
	ID string
	// Title says in one line when the check fires.
	Title string
	// Severities are those that its findings may have, the gravest first.
	Severities []state.Severity
	// Graded says in words what the severity depends on, where there are several.
	Graded string
	// Why says what a finding means for the people who use the cluster.
	Why string
	// Confirm says how to see the same by read-only means.
	Confirm string
	// Remedies are the ways out of its findings in general, the preferred one first;
	// a finding has those of its state.
	Remedies []remedies.Remedy
	// RemediesAt are those of a severity, where each has its own; else nil.
	RemediesAt map[state.Severity][]remedies.Remedy
	// Never says what not to do.
	Never string
	// Verify says how to see, beyond a report without the finding, that what
	// people suffered has ended; empty if the report says it all.
	Verify string
	// Misread is the mistake most often made about it; empty if there is none.
	Misread string
	// Requires are the resources without which there is no verdict: if one was not
	// read whole, the check is skipped and the report says so.
	Requires []blocks.Resource
	// Optional are resources that a part of the verdict needs. If one was not read
	// whole, that part is withheld; to confirm a finding, they are read again
	// with Needs.
	Optional []blocks.Resource
	// HostViews is true if all that the check evaluates is what host views show: where
	// there is none, it finds nothing, which says nothing about the cluster.
	HostViews bool
	// Run returns the findings. It must not keep or change the State.
	Run func(*state.State, *Findings)
}

// SeverityText says in words which severities the findings have, and when.
func (c *Check) SeverityText() string { return cmp.Or(c.Graded, c.Severities[0].String()) }

// Verification says how to see that the finding's cause is mended.
func (c *Check) Verification() string {
	text := "calico-audit report --check " + c.ID + " no longer lists it."
	if c.Verify != "" {
		text += " " + c.Verify
	}
	return text
}

// Checks are some checks, ordered by ID.
type Checks []*Check

// ByID returns a check, or an error that names the ones closest to it.
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

// Select returns the checks that patterns name: an ID, a group ("pool" or
// "pool/*"), or nothing for all. A pattern that names no check is an error.
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

// Skipped says that a check gave no verdict, or withheld some.
type Skipped struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Findings collects what a check finds.
type Findings struct {
	Check   *Check
	state   *state.State
	all     []Finding
	skipped []Skipped
	// said are those of skipped.
	said map[Skipped]bool
	// inconclusive is true if what was found is no verdict.
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
		x.Fix = Look("calico-audit explain " + phrase.Arg(x.Subject.ID()))
	}
	if x.Evidence == nil {
		x.Evidence = []state.Evidence{}
	}
	x.order = subjectOrder(x.Subject)
	f.all = append(f.all, x)
}

// SkipPartial records that the running check left out a part of its verdict, such as
// that on one object, and why.
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

// Inconclusive records that the running check gave no verdict as a whole, and why:
// that it found nothing, or nothing grave, does not mean that nothing is there.
func (f *Findings) Inconclusive(format string, args ...any) {
	f.inconclusive = true
	f.SkipPartial(format, args...)
}
