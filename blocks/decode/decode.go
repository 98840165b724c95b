package decode

import (
	"bytes"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/blocks/decode/podspec"
)

// A Decoder decodes objects of one kind into records. It is not safe for concurrent use,
// but Strings may be shared with other decoders.
type Decoder struct {
	// Out receives the records, and determines the kind.
	Out     *Objects
	Strings *SharedStrings
	// Native is true for objects of the projectcalico.org/v3 group.
	Native bool
	// Source is the file with the objects, for gaps.
	Source string
	// Newest, if not nil, receives the newest time found in any object.
	Newest *time.Time
	// PodLabels enables decoding of pods' labels, which few callers need.
	PodLabels bool
	// Amend, if set, returns the replacement of an object of a page. It receives the fields that a
	// decoder reads, as JSON.
	Amend func(object []byte) []byte
	// inNamespace is the namespace of the current object, if its kind is namespaced.
	inNamespace string
	// Dump is true if the objects do not come from a snapshot's recording. They may then lack
	// members that the API server always returns.
	Dump bool
	// hasSpec reports whether the current object has a spec.
	hasSpec bool
	reader  *parse.Reader // of the current object
	rules   rules         // of the current pod
	recent  [64]string    // strings shared last, by a hash
	// counts holds the handle counts for a single block, which handles share.
	counts map[blocks.HandleCount][]blocks.HandleCount
}

// SharedStrings deduplicates equal values of several decoders, such as a node's name that
// appears in ten thousand objects.
type SharedStrings struct {
	mu          sync.Mutex
	texts       map[string]string
	controllers map[string]*blocks.Controller // by UID, kind and name
	sets        map[string]map[string]string  // labels, by their string form
	facts       map[string]*podspec.Facts     // by the text of [rules]
	resources   map[string]blocks.Quantities  // by their JSON
}

// Bytes returns b as a string shared by all decoders.
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

// controller returns an owner, shared by all of its pods.
func (s *SharedStrings) controller(o ownerRef) *blocks.Controller {
	return shared(s, &s.controllers, bytes.Join([][]byte{o.uid, o.kind, o.name}, []byte{0}), func() *blocks.Controller {
		return &blocks.Controller{Kind: s.text(o.kind), Name: s.text(o.name), UID: string(o.uid)}
	})
}

// labels returns l, shared by all pods with the same labels.
func (s *SharedStrings) labels(l map[string]string) map[string]string {
	if len(l) == 0 {
		return nil
	}
	return shared(s, &s.sets, []byte(labels.Set(l).String()), func() map[string]string { return l })
}

// shared returns the value of a text, and makes it when the text is new.
func shared[T any](s *SharedStrings, values *map[string]T, text []byte, made func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, known := (*values)[string(text)]
	if !known {
		if *values == nil {
			*values = map[string]T{}
		}
		have = made()
		(*values)[string(text)] = have
	}
	return have
}

// Len returns the number of shared values.
func (s *SharedStrings) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.texts) + len(s.controllers) + len(s.sets) + len(s.facts) + len(s.resources)
}

// str returns b as a shared string. Most strings have few distinct values, such as phases,
// namespaces and keys.
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

// text decodes a string and shares it; "" if there is none.
func (d *Decoder) text(r *parse.Reader) string {
	b, _ := r.Bytes()
	return d.str(b)
}

// saw records a time found in an object.
func (d *Decoder) saw(t time.Time) blocks.Time {
	if d.Newest != nil && t.After(*d.Newest) {
		*d.Newest = t
	}
	return blocks.TimeOf(t)
}
