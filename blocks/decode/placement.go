package decode

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/calico-audit/calico-audit/blocks"
)

// nodeAffinity keeps a pod's required node affinity.
var nodeAffinity = object("affinity", 18, object("nodeAffinity", 1, object("requiredDuringSchedulingIgnoredDuringExecution", 1,
	listOf("nodeSelectorTerms", 1, object("", 0,
		listOf("matchExpressions", 1, requirement(classLabelValue)),
		listOf("matchFields", 2, requirement(classNode)))))))

func requirement(values class) *fieldMask {
	return object("", 0, value("key", 1, classLabelKey), value("operator", 2, classWord), listOf("values", 3, value("", 3, values)))
}

// tolerations keeps a pod's tolerations, without their durations.
var tolerations = listOf("tolerations", 22, object("", 0, value("key", 1, classTaint), value("operator", 2, classWord), value("value", 3, classLabelValue), value("effect", 4, classWord)))

// Markers before each part of a placement's text, by type.
const (
	aTerm        = "\x00t"
	aRequirement = "\x00r"
	aKey         = "\x00k"
	anOperator   = "\x00o"
	aValue       = "\x00v"
	aToleration  = "\x00l"
)

// placement collects a pod's scheduling constraints as text, so that equal constraints give equal
// text. Most pods have the same constraints as another, and share one [blocks.Placement].
type placement struct {
	// selector holds the requirements of nodeSelector, and terms the alternatives of the
	// node affinity; required reports whether there is a node affinity.
	selector, terms []byte
	required        bool
	// tolerates are the tolerations that the model keeps.
	tolerates []blocks.Toleration
}

// selects decodes nodeSelector.
func (p *placement) selects(r *JSONReader) {
	r.Object(func(key []byte) {
		p.selector = append(appendPart(append(p.selector, aRequirement+aKey...), key), anOperator+"In"+aValue...)
		p.selector = appendString(p.selector, r)
	})
}

func appendString(out []byte, r *JSONReader) []byte {
	s, _ := r.str()
	return appendPart(out, s)
}

// appendPart appends text without NUL, which starts a marker. Anyone who may write pods can
// put NUL into the values of a node affinity (until Kubernetes 1.32). Its replacement is
// invalid in labels, so the term becomes invalid.
func appendPart(out, text []byte) []byte {
	if bytes.IndexByte(text, 0) >= 0 {
		text = bytes.ReplaceAll(text, []byte{0}, []byte("\uFFFD"))
	}
	return append(out, text...)
}

// affinity decodes the pod's affinity.
func (p *placement) affinity(r *JSONReader) {
	r.Fields(Members{"nodeAffinity": func() {
		r.Fields(Members{"requiredDuringSchedulingIgnoredDuringExecution": func() {
			p.required = r.Fields(Members{"nodeSelectorTerms": func() {
				r.Array(func(int) {
					p.terms = append(p.terms, aTerm...)
					r.Fields(Members{"matchExpressions": func() { p.requirements(r, appendString) }, "matchFields": func() { p.requirements(r, appendName) }})
				})
			}}) || p.required
		}})
	}})
}

// tolerations decodes the tolerations that affect scheduling.
func (p *placement) tolerations(r *JSONReader) {
	r.Array(func(int) {
		var t [4][]byte
		r.Object(func(field []byte) {
			if i := slices.Index([]string{"key", "operator", "value", "effect"}, string(field)); i >= 0 {
				t[i], _ = r.str()
			}
		})
		if string(t[3]) != "NoExecute" || !bytes.HasPrefix(t[0], []byte(blocks.LifeCycleTaints)) { // skips the two that every pod has
			p.tolerates = append(p.tolerates, blocks.Toleration{Key: string(t[0]), Operator: string(t[1]), Value: string(t[2]), Effect: string(t[3])})
		}
	})
}

// appendName appends the name of a node from matchFields.
func appendName(out []byte, r *JSONReader) []byte {
	s, _ := r.str()
	return appendPart(out, []byte(blocks.PlacementName(string(s))))
}

// requirements decodes the requirements of a term. value appends their values.
func (p *placement) requirements(r *JSONReader, value func([]byte, *JSONReader) []byte) {
	r.Array(func(int) {
		p.terms = append(p.terms, aRequirement...)
		r.Object(func(key []byte) {
			switch string(key) {
			case "key":
				p.terms = appendString(append(p.terms, aKey...), r)
			case "operator":
				p.terms = appendString(append(p.terms, anOperator...), r)
			case "values":
				r.Array(func(int) { p.terms = value(append(p.terms, aValue...), r) })
			}
		})
	})
}

// placement returns the placement for p, shared by all pods with equal constraints; nil if
// there are none.
func (s *SharedStrings) placement(p *placement) *blocks.Placement {
	if len(p.selector) == 0 && !p.required && len(p.tolerates) == 0 {
		return nil
	}
	if !p.required {
		p.terms = append(p.terms, aTerm...)
	}
	text := slices.Concat(p.selector, p.terms)
	text = fmt.Appendf(text, aToleration+"%q", p.tolerates)
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.placements[string(text)]; have != nil {
		return have
	}
	if s.placements == nil {
		s.placements = map[string]*blocks.Placement{}
	}
	out := &blocks.Placement{Tolerates: p.tolerates}
	for _, term := range strings.Split(string(p.terms), aTerm)[1:] {
		if p.required && term == "" {
			continue // selects no nodes
		}
		if selects, ok := termSelector(string(p.selector) + term); ok {
			out.Terms = append(out.Terms, selects)
		}
	}
	s.placements[string(text)] = out
	return out
}

// operators are those of node affinities (k8s.io/api/core/v1, NodeSelectorOperator).
var operators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
	"Gt": selection.GreaterThan, "Lt": selection.LessThan,
}

// termSelector returns the label selector of a term; false if the term is invalid.
func termSelector(term string) (string, bool) {
	all := labels.NewSelector()
	for _, one := range strings.Split(term, aRequirement)[1:] {
		var key, operator string
		var values []string
		for _, part := range strings.Split(one, "\x00")[1:] {
			switch "\x00" + part[:1] {
			case aKey:
				key = part[1:]
			case anOperator:
				operator = part[1:]
			case aValue:
				values = append(values, part[1:])
			}
		}
		q, err := labels.NewRequirement(key, operators[operator], values)
		if err != nil {
			return "", false
		}
		all = all.Add(*q)
	}
	return all.String(), true
}
