// Package explain collects everything that a State and its findings know about one subject: a node,
// pool, block, address, pod, handle or check. It prints verdicts and decides none.
package explain

import (
	"fmt"
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

// Explained is everything known about one subject.
type Explained struct {
	Subject state.Subject `json:"subject"`
	// Summary is the answer in a sentence or two.
	Summary  string    `json:"summary"`
	Sections []Section `json:"sections"`
	// Diagnoses explain at least one finding of Findings or Related.
	Diagnoses []audit.Diagnosis `json:"diagnoses"`
	// Findings are those about the subject itself, worst first.
	Findings []audit.Finding `json:"findings"`
	// Related are the findings about objects that the subject depends on or contains: the block and
	// the pool of an address, the addresses of a block.
	Related []audit.Finding `json:"related"`
	// Remedies lists remedies by verdict, except those of the diagnoses.
	Remedies []Remedy `json:"outlook"`
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

// Section is a part of an explanation that answers one question.
type Section struct {
	Title string `json:"title"`
	Facts []Fact `json:"facts"`
	// List is true for a section that enumerates similar items. A view may show only the first
	// ones.
	List bool `json:"list,omitempty"`
}

// Fact is one known fact. Facts with the same name are adjacent.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Source is the object that states the fact, such as "node/worker-1"; empty if it is derived
	// from several objects.
	Source string `json:"source,omitempty"`
}

// Remedy is a remedy for a verdict.
type Remedy struct {
	// Verdict is a check's ID, or "waiting".
	Verdict string `json:"verdict"`
	// Change is the remedy's title and effect.
	Change string `json:"change"`
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

// explainer makes the explanations of one State.
type explainer struct {
	*remedies.Remedies
	result    *audit.Result
	diagnoses []audit.Diagnosis
}

// builder is an explanation under construction.
type builder struct {
	Explained
}

func newBuilder(s state.Subject) *builder {
	return &builder{Explained{Subject: s, Sections: []Section{}, Findings: []audit.Finding{}, Related: []audit.Finding{}, Remedies: []Remedy{}}}
}

// section starts a section; done drops it if it stays empty.
func (s *builder) section(format string, args ...any) {
	s.Sections = append(s.Sections, Section{Title: fmt.Sprintf(format, args...), Facts: []Fact{}})
}

// listed starts a section that enumerates.
func (s *builder) listed(format string, args ...any) {
	s.section(format, args...)
	s.Sections[len(s.Sections)-1].List = true
}

// fact adds a fact to the current section, unless value is empty.
func (s *builder) fact(source, name string, value any) {
	if text := state.Value(value); text != "" {
		sec := &s.Sections[len(s.Sections)-1]
		sec.Facts = append(sec.Facts, Fact{name, text, source})
	}
}

// factf is fact with a format.
func (s *builder) factf(source, name, format string, args ...any) {
	s.fact(source, name, fmt.Sprintf(format, args...))
}

// remedies adds the remedies for a verdict, each once.
func (s *builder) remedies(verdict string, ways []remedies.Remedy) {
	for _, r := range ways {
		if x := (Remedy{verdict, r.Title + ": " + r.Effect}); !slices.Contains(s.Remedies, x) {
			s.Remedies = append(s.Remedies, x)
		}
	}
}

// done returns the explanation without empty sections.
func (s *builder) done() Explained {
	kept := s.Sections[:0]
	for _, sec := range s.Sections {
		if len(sec.Facts) > 0 {
			kept = append(kept, sec)
		}
	}
	s.Sections = kept
	return s.Explained
}

// sourceOf names an object as "kubectl get -o name" does.
func sourceOf(kind string, m blocks.Meta) string {
	if m.Name == "" {
		return ""
	}
	return kind + "/" + m.Name
}

func poolSource(p *state.Pool) string     { return sourceOf("ippool", p.Meta) }
func blockSource(b *state.Block) string   { return sourceOf("ipamblock", b.Meta) }
func nodeSource(n *blocks.Node) string    { return sourceOf("node", n.Meta) }
func podSource(w *blocks.Workload) string { return "pod/" + w.FullName() }

// ownedBlock names a block and its owner.
func ownedBlock(b *state.Block) string {
	return fmt.Sprintf("block %s of %s", b.CIDR, b.Owner)
}

// unread explains, as part of a sentence for a fact, why a kind of object was not read completely;
// empty if it was.
func (x *explainer) unread(r blocks.Resource) string {
	if g, missing := x.Missing(r); missing {
		return "not known: " + g.String()
	}
	return ""
}
