package explain

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

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

func poolSource(p *state.Pool) string { return sourceOf("ippool", p.Meta) }

func blockSource(b *state.Block) string { return sourceOf("ipamblock", b.Meta) }

func nodeSource(n *blocks.Node) string { return sourceOf("node", n.Meta) }

func podSource(w *blocks.Workload) string { return "pod/" + w.FullName() }

// ownedBlock names a block and its owner.
func ownedBlock(b *state.Block) string {
	return fmt.Sprintf("block %s of %s", b.CIDR, b.Owner)
}

// unread explains, in words that continue a sentence, why a kind of object was not read completely;
// empty if it was.
func (x *explainer) unread(r blocks.Resource) string {
	if g, missing := x.Missing(r); missing {
		return "not known: " + g.String()
	}
	return ""
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
