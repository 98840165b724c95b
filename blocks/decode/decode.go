package decode

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/calico-audit/calico-audit/blocks"
)

// A Decoder turns objects of one kind into records. It may be used by one
// goroutine at a time; strings may be shared with other decoders.
type Decoder struct {
	// Out takes the records, and tells the kind.
	Out     *Objects
	Strings *SharedStrings
	// Native is true for objects of the projectcalico.org/v3 group.
	Native bool
	// Source is the file that the objects stand in, for gaps.
	Source string
	// Newest is where the newest time met in an object is kept; nil if no one
	// asks for it.
	Newest *time.Time
	// PodLabels has pods' labels read, for which few ask.
	PodLabels bool
	// inNamespace is the namespace of the object at hand, if its kind is namespaced.
	inNamespace string
	reader      *JSONReader // of the object at hand
	recent      [64]string  // texts that were shared last, by a hash
	// counts are those of the handles that count for one block, which share them.
	counts map[blocks.HandleCount][]blocks.HandleCount
}

// SharedStrings has several decoders keep equal values once, such as a node's name that
// stands in ten thousand objects.
type SharedStrings struct {
	mu          sync.Mutex
	texts       map[string]string
	controllers map[string]*blocks.Controller // by UID
	sets        map[string]map[string]string  // labels, by their text
	placements  map[string]*blocks.Placement  // by what [placement] writes
}

// Bytes returns a text as the string that all decoders share.
func (s *SharedStrings) Bytes(b []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text(b)
}

func (s *SharedStrings) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	text, known := s.texts[string(b)]
	if !known {
		if s.texts == nil {
			s.texts = map[string]string{}
		}
		text = string(b)
		s.texts[text] = text
	}
	return text
}

// controller returns an owner as the one that all pods of it share.
func (s *SharedStrings) controller(o ownerRef) *blocks.Controller {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.controllers[string(o.uid)]; c != nil && c.Kind == string(o.kind) && c.Name == string(o.name) {
		return c
	}
	c := &blocks.Controller{Kind: s.text(o.kind), Name: s.text(o.name), UID: string(o.uid)}
	if s.controllers == nil {
		s.controllers = map[string]*blocks.Controller{}
	}
	s.controllers[c.UID] = c
	return c
}

// labels returns labels as those that all pods with the same share.
func (s *SharedStrings) labels(l map[string]string) map[string]string {
	if len(l) == 0 {
		return nil
	}
	key := labels.Set(l).String()
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.sets[key]; have != nil {
		return have
	}
	if s.sets == nil {
		s.sets = map[string]map[string]string{}
	}
	s.sets[key] = l
	return l
}

// Len is how many values are shared.
func (s *SharedStrings) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.texts) + len(s.controllers) + len(s.sets) + len(s.placements)
}

// str shares a text. Most are one of a few, such as a phase, a namespace or a key.
func (d *Decoder) str(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	last := &d.recent[(len(b)*31+int(b[0])*7+int(b[len(b)-1]))%len(d.recent)]
	if *last != string(b) {
		*last = d.Strings.Bytes(b)
	}
	return *last
}

// text reads a string and shares it; "" if there is none.
func (d *Decoder) text(r *JSONReader) string {
	b, _ := r.str()
	return d.str(b)
}

// saw records a time in an object.
func (d *Decoder) saw(t time.Time) blocks.Time {
	if d.Newest != nil && t.After(*d.Newest) {
		*d.Newest = t
	}
	return blocks.TimeOf(t)
}

// noName stands for the name of an object that has none, which a gap must not
// lack: a gap without a name concerns all objects of its kind.
const noName = "(no name)"

// gap records that the object at hand could not be understood whole.
func (d *Decoder) gap(m *blocks.Meta, f fault) *blocks.Gap {
	k, key := d.Out.Kind, blocks.Key{Namespace: d.inNamespace, Name: cmp.Or(m.Name, noName)}
	d.Out.Gaps = append(d.Out.Gaps, blocks.Gap{
		Resource: k.Resource, Name: key.String(), Field: f.Field, Source: d.Source, Reason: f.Reason,
		Tolerated: m.Name != "" && k.tolerates != nil && k.tolerates(f.Field),
	})
	return &d.Out.Gaps[len(d.Out.Gaps)-1]
}

// checkName is a fault if the object has no name.
func checkName(r *JSONReader, m *blocks.Meta) {
	if m.Name == "" {
		r.faultAt("metadata.name", "is missing")
	}
}

// object reads an object: its metadata, and the members of its spec and status with
// functions that are nil where nothing of them is wanted. It returns whether there is
// an object at all.
func (d *Decoder) object(r *JSONReader, m *blocks.Meta, hooks metaHooks, spec, status func(key []byte)) (found bool) {
	return r.Object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, m, hooks)
		case "spec":
			if spec != nil {
				r.Object(spec)
			}
		case "status":
			if status != nil {
				r.Object(status)
			}
		}
	})
}

// anywhere has [Decoder.whole] keep an object whatever is wrong with it, if it has a name.
const anywhere = "*"

// whole reports whether the object that was read is to be kept. One that is not is a
// gap: it has a fault other than in an entry of the list or map that partial names.
// Faults in those are gaps of their own.
func (d *Decoder) whole(r *JSONReader, m *blocks.Meta, partial string) bool {
	if r.err != nil {
		return false
	}
	checkName(r, m)
	for _, f := range r.Faults {
		if m.Name == "" || partial != anywhere && !inside(f.Field, partial) {
			d.gap(m, f)
			return false
		}
	}
	for _, f := range r.Faults {
		d.gap(m, f)
	}
	return true
}

// inside reports whether a field is an entry of a list or map, or lies in one.
func inside(field, list string) bool {
	rest, found := strings.CutPrefix(field, list)
	return found && list != "" && rest != "" && (rest[0] == '[' || rest[0] == '.')
}

// cidr reads a CIDR as [blocks.ParseCIDR] does.
func (d *Decoder) cidr(r *JSONReader) (netip.Prefix, bool) {
	s, ok := r.str()
	if !ok {
		return netip.Prefix{}, false
	}
	p, ok := blocks.ParseCIDR(string(s))
	if !ok {
		r.Fault(NotA("CIDR", s))
	}
	return p, ok
}

// NotA says that a text is not what it should be.
func NotA[T string | []byte](what string, s T) string {
	article := "a"
	if strings.ContainsRune("aAeio", rune(what[0])) {
		article = "an"
	}
	if len(s) == 0 {
		return "is empty, not " + article + " " + what
	}
	return fmt.Sprintf("%q is not %s %s", Clip(s), article, what)
}
