// Package explain collects everything that a State and its findings know about one subject: a node,
// pool, block, address, pod, handle or check. It prints verdicts and decides none.
package explain

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// ExplanationKind is the kind field of an [Explanation]; see [APIVersion].
const ExplanationKind = "Explanation"

// Explanation answers a query about one or several objects. Its sections are in the order that an
// engineer would ask for. The same state gives the same bytes, except for cluster.takenAt.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Query is the query as the user wrote it.
	Query   string              `json:"query"`
	Cluster audit.ReportCluster `json:"cluster"`
	// Complete is false if anything that an audit reads could not be read.
	Complete      bool            `json:"complete"`
	Gaps          []blocks.Gap    `json:"gaps"`
	SkippedChecks []audit.Skipped `json:"skippedChecks"`
	// Subjects are the objects that match the query: several if they share a name.
	Subjects []Explained `json:"subjects"`
}

// WithCommands returns the explanation with write applied to each of its commands.
func (e *Explanation) WithCommands(write func(string) string) *Explanation {
	out := *e
	out.Subjects = slices.Clone(e.Subjects)
	for i := range out.Subjects {
		s := &out.Subjects[i]
		s.Diagnoses, s.Findings, s.Related = audit.DiagnosesWith(s.Diagnoses, write), audit.FindingsWith(s.Findings, write), audit.FindingsWith(s.Related, write)
	}
	return &out
}

// AddRunway adds to each explained pool its runway from a report.
func (e *Explanation) AddRunway(pools []audit.PoolReport) {
	for i := range e.Subjects {
		s := &e.Subjects[i]
		at := slices.IndexFunc(pools, func(p audit.PoolReport) bool { return s.Subject.Kind == state.KindPool && p.Name == s.Subject.Name })
		if at < 0 || pools[at].Runway == nil {
			continue
		}
		w := pools[at].Runway
		numbers := slices.IndexFunc(s.Sections, func(x Section) bool { return x.Title == "Numbers" })
		s.Sections = slices.Insert(s.Sections, numbers+1, Section{Title: "Runway", Facts: []Fact{
			{Name: "blocks", Value: w.Blocks.Sentence("blocks")}, {Name: "addresses", Value: w.Addresses.Sentence("addresses")},
			{Name: "by", Value: w.Blocks.Basis.Source},
		}})
	}
}

// Explain gathers what is known about the subject of a query. r holds the checks' results for the
// State. An unknown name is a [NotFoundError]; addresses and CIDRs are always explained.
func Explain(st *state.State, r *audit.Result, q Query) (*Explanation, error) {
	rep := audit.NewReport(st, r)
	e := &Explanation{
		APIVersion: audit.APIVersion, Kind: ExplanationKind, Query: q.Text, Cluster: rep.Cluster,
		Complete: rep.Complete, Gaps: rep.Gaps, SkippedChecks: rep.SkippedChecks, Subjects: []Explained{},
	}
	x := &explainer{Remedies: remedies.Of(st), result: r, diagnoses: rep.Diagnoses}
	var found []candidate
	if len(q.Messages) == 0 {
		found = x.matches(q)
	}
	for _, c := range found {
		s := c.explain()
		s.Diagnoses = diagnosesOf(&s, rep.Diagnoses)
		leadOn(s.Findings, q.Text, s.Subject.ID())
		leadOn(s.Related, q.Text, s.Subject.ID())
		e.Subjects = append(e.Subjects, s)
	}
	if len(q.Messages) > 0 {
		n := x.resolve(q.Names)
		for _, m := range q.Messages {
			s := x.message(m, n)
			s.Diagnoses = diagnosesOf(&s, rep.Diagnoses)
			e.Subjects = append(e.Subjects, s)
		}
	}
	if len(e.Subjects) == 0 {
		return nil, x.notFound(q)
	}
	return e, nil
}

// leadOn replaces a finding's next step with the check's documentation, if it would only explain
// the same subject again.
func leadOn(fs []audit.Finding, explained ...string) {
	for i := range fs {
		if slices.ContainsFunc(explained, func(s string) bool { return fs[i].Fix.Command == remedies.Shell("calico-audit explain %s", s) }) {
			fs[i].Fix = audit.Look("calico-audit explain " + fs[i].Check)
		}
	}
}

// diagnosesOf returns the diagnoses that include findings about a subject, or related ones.
func diagnosesOf(s *Explained, all []audit.Diagnosis) []audit.Diagnosis {
	out := []audit.Diagnosis{}
	for _, d := range all {
		part := func(f audit.Finding) bool { return slices.Contains(d.Findings, f.Fingerprint) }
		if slices.ContainsFunc(s.Findings, part) || slices.ContainsFunc(s.Related, part) {
			out = append(out, d)
		}
	}
	return out
}
