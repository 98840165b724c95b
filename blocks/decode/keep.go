package decode

import (
	"bytes"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// A fieldMask selects what a saved snapshot keeps of a value. The same tree of masks
// reduces JSON, converts protobuf to reduced JSON, and anonymizes names, so that the three
// agree. The tree must have every field that the kind's decoder reads; a test checks this.
type fieldMask struct {
	key  string
	name []byte // key as bytes
	num  int    // number of the protobuf field, for core kinds
	schema
	// parts are the members of an object, or the single mask for a list's elements. A
	// member without a key is a protobuf message whose members belong to the object itself.
	parts    []*fieldMask
	numbered [maxField + 1]*fieldMask // parts by num
	// whole keeps everything below the value, including unknown fields, unless names are
	// anonymized. It is set for the specs of Calico's objects, because bug reports are about them.
	whole bool
	// wants selects the kept entries of a map; nil keeps all.
	wants func(key []byte) bool
	// by has masks for a list's elements by their first protobuf member, such as their
	// kind. The mask of "" applies to all others; without it they are dropped. If by is
	// nil, all elements have the same mask.
	by map[string]*fieldMask
	// needs is a piece of JSON that a list's element must contain to be kept.
	needs string
	// class is the meaning of the value, for anonymization.
	class class
	// classes are the classes of a map's entries by key. Anonymization drops entries
	// without a class. If classes is nil, all entries have the mask's class.
	classes map[string]class
}

// schema is the type of a value in JSON and protobuf.
type schema int

const (
	schemaObject     schema = iota
	schemaList              // values of one schema
	schemaMap               // strings by string
	schemaEntries           // values of one schema by string; JSON only
	schemaText              // a string; in JSON also a number or boolean
	schemaBool              // protobuf: a varint
	schemaNumber            // protobuf: a varint
	schemaTime              // protobuf: a message of seconds
	schemaQuantities        // protobuf: messages of a string, by string
)

// maxField is the largest protobuf field number in any mask.
const maxField = 43

// repeated reports whether protobuf encodes a value as one field per entry.
func (f schema) repeated() bool { return f == schemaList || f == schemaMap || f == schemaQuantities }

func object(key string, num int, parts ...*fieldMask) *fieldMask {
	o := &fieldMask{key: key, num: num, schema: schemaObject, parts: parts}
	for _, p := range parts {
		p.name = []byte(p.key)
		o.numbered[p.num] = p
	}
	return o
}

// needing makes a list drop elements whose kept JSON lacks piece.
func needing(piece string, element *fieldMask) *fieldMask {
	element.needs = piece
	return element
}

func listOf(key string, num int, element *fieldMask) *fieldMask {
	return &fieldMask{key: key, num: num, schema: schemaList, parts: []*fieldMask{element}}
}

// entriesOf is a mask for an object with values of one schema and keys of one class.
func entriesOf(key string, keys class, element *fieldMask) *fieldMask {
	return &fieldMask{key: key, schema: schemaEntries, parts: []*fieldMask{element}, class: keys}
}

func value(key string, num int, r class) *fieldMask {
	return &fieldMask{key: key, num: num, schema: schemaText, class: r}
}

func timeField(key string, num int) *fieldMask {
	return &fieldMask{key: key, num: num, schema: schemaTime, class: classTime}
}

// metaMask selects the saved metadata. It keeps managedFields only for kinds whose decoders read
// them.
func metaMask(name class, managed bool, extra ...*fieldMask) *fieldMask {
	parts := []*fieldMask{
		value("name", 1, name),
		value("namespace", 3, classNamespace),
		value("uid", 5, classUID),
		value("resourceVersion", 6, classWord),
		timeField("creationTimestamp", 8),
		timeField("deletionTimestamp", 9),
	}
	if managed {
		parts = append(parts, listOf("managedFields", 17, object("", 0,
			value("manager", 1, classManager),
			value("operation", 2, classWord),
			value("subresource", 8, classWord),
			timeField("time", 4),
		)))
	}
	return object("metadata", 1, append(parts, extra...)...)
}

// calicoAnnotation reports whether an annotation or label belongs to Calico or to this
// program. It excludes Calico's copy of the metadata, which repeats the annotations of
// others.
func calicoAnnotation(key []byte) bool {
	domain, name, found := bytes.Cut(key, []byte("/"))
	return string(key) == blocks.OursAnnotation || found && (string(domain) == "projectcalico.org" || bytes.HasSuffix(domain, []byte(".projectcalico.org"))) && string(name) != "metadata"
}

// ownersMask keeps owner references, by the owner's kind.
func ownersMask(by map[string]*fieldMask) *fieldMask {
	return &fieldMask{key: "ownerReferences", num: 13, schema: schemaList, parts: []*fieldMask{vmOwner}, by: by}
}

// ownerMask keeps an owner reference.
func ownerMask(name class, more ...*fieldMask) *fieldMask {
	return object("", 0, append(more, value("kind", 1, classWord), value("name", 3, name), value("uid", 4, classUID),
		&fieldMask{key: "controller", num: 6, schema: schemaBool, class: classNumber})...)
}

var (
	vmOwner    = ownerMask(classVM, value("apiVersion", 5, classOwnerVersion))
	otherOwner = needing(`"controller":true`, ownerMask(classController))
)

func annotations(classes map[string]class) *fieldMask {
	return &fieldMask{key: "annotations", num: 12, schema: schemaMap, wants: calicoAnnotation, classes: classes}
}

var (
	allLabels    = &fieldMask{key: "labels", num: 11, schema: schemaMap, class: classLabel}
	calicoLabels = &fieldMask{key: "labels", schema: schemaMap, wants: calicoAnnotation, classes: map[string]class{apiv3.LabelHostnameHash: classStub, apiv3.LabelAffinityType: classWord}}
)

// calicoObject returns the mask of a Calico object. spec lists the fields that the decoder
// reads.
func calicoObject(name class, spec ...*fieldMask) *fieldMask {
	s := object("spec", 0, spec...)
	s.whole = true
	return object("", 0, metaMask(name, true, calicoLabels, annotations(map[string]class{blocks.OursAnnotation: classStub})), s)
}

// member returns the mask of an object's member; nil if the member is dropped.
func (s *fieldMask) member(key []byte) *fieldMask {
	for _, p := range s.parts {
		if p.key == string(key) {
			return p
		}
		if p.key == "" && p.schema == schemaObject {
			if inner := p.member(key); inner != nil {
				return inner
			}
		}
	}
	return nil
}

// element returns the mask of a list's element, by the element's first protobuf member; nil
// if the element is dropped.
func (s *fieldMask) element(first string) *fieldMask {
	if s.by == nil {
		return s.parts[0]
	}
	if e := s.by[first]; e != nil {
		return e
	}
	return s.by[""]
}
