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

// nodeAffinity keeps the node affinity that a pod requires.
var nodeAffinity = object("affinity", 18, object("nodeAffinity", 1, object("requiredDuringSchedulingIgnoredDuringExecution", 1,
	listOf("nodeSelectorTerms", 1, object("", 0,
		listOf("matchExpressions", 1, requirement(classLabelValue)),
		listOf("matchFields", 2, requirement(classNode)))))))

func requirement(values class) *fieldMask {
	return object("", 0, value("key", 1, classLabelKey), value("operator", 2, classWord), listOf("values", 3, value("", 3, values)))
}

// tolerations keeps a pod's tolerations, but not for how long.
var tolerations = listOf("tolerations", 22, object("", 0, value("key", 1, classTaint), value("operator", 2, classWord), value("value", 3, classLabelValue), value("effect", 4, classWord)))

// Before each part of a placement stands what it is.
const (
	aTerm        = "\x00t"
	aRequirement = "\x00r"
	aKey         = "\x00k"
	anOperator   = "\x00o"
	aValue       = "\x00v"
	aToleration  = "\x00l"
)

// placement is where a pod may run, as text that differs where its fields do: most pods
// have what another one has, of which more need not be made.
type placement struct {
	// selector are the requirements of nodeSelector, terms the alternatives of the node
	// affinity; required is true if there is one.
	selector, terms []byte
	required        bool
	// tolerates are the tolerations that the model keeps.
	tolerates []blocks.Toleration
}

// selects reads nodeSelector.
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

// appendPart appends a text in which no part begins: anybody who may write pods can write
// NUL into the values of a node affinity (until Kubernetes 1.32). What stands for it is in no
// label either, so that the term makes no sense.
func appendPart(out, text []byte) []byte {
	if bytes.IndexByte(text, 0) >= 0 {
		text = bytes.ReplaceAll(text, []byte{0}, []byte("\uFFFD"))
	}
	return append(out, text...)
}

// affinity reads affinity.
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

// tolerations reads those tolerations that decide where the scheduler puts a pod.
func (p *placement) tolerations(r *JSONReader) {
	r.Array(func(int) {
		var t [4][]byte
		r.Object(func(field []byte) {
			if i := slices.Index([]string{"key", "operator", "value", "effect"}, string(field)); i >= 0 {
				t[i], _ = r.str()
			}
		})
		if string(t[3]) != "NoExecute" || !bytes.HasPrefix(t[0], []byte(blocks.LifeCycleTaints)) { // as every pod has two of
			p.tolerates = append(p.tolerates, blocks.Toleration{Key: string(t[0]), Operator: string(t[1]), Value: string(t[2]), Effect: string(t[3])})
		}
	})
}

// appendName appends the name of a node, of which matchFields is.
func appendName(out []byte, r *JSONReader) []byte {
	s, _ := r.str()
	return appendPart(out, []byte(blocks.PlacementName(string(s))))
}

// requirements reads those of a term, with their values as a function appends them.
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

// placement returns where a pod may run, as what all pods share that may run there; nil
// if nothing limits it.
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
			continue // which selects nothing
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

// termSelector returns the label selector of a term; false if it makes no sense.
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
