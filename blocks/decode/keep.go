package decode

import (
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// A fieldMask says what a saved snapshot keeps of a value. One tree of field masks serves
// for reducing JSON, for turning protobuf into reduced JSON, and for replacing
// names, so that the three cannot drift apart. Whatever a decoder reads must
// stand in its kind's tree; a test holds the two together.
type fieldMask struct {
	key  string
	name []byte // the key again
	num  int    // of the protobuf field, for core kinds
	schema
	// parts are the members of an object, or the one field mask of a list's elements. A member
	// without a key is a message of protobuf's whose members are the object's own.
	parts    []*fieldMask
	numbered [maxField + 1]*fieldMask // parts by num
	// whole keeps everything below the value, also what this release does not
	// know, unless names are replaced. It is meant for the specs of Calico's
	// objects, which are what a bug report is about.
	whole bool
	// wants says which entries of a map are kept; nil keeps all.
	wants func(key string) bool
	// by has the field masks of a list's elements by the member that is their first in protobuf,
	// such as their kind; that of "" is for all others, which are left out if there is
	// none. nil means that all have one field mask.
	by map[string]*fieldMask
	// needs is a piece of JSON without which an element of a list is left out.
	needs string
	// class is what the value means, for replacing names.
	class class
	// classes are those of a map's entries by key. Entries without one are left
	// out when names are replaced; a nil map gives all the field mask's own.
	classes map[string]class
}

// schema is the type of a value, in JSON and in protobuf.
type schema int

const (
	schemaObject     schema = iota
	schemaList              // of values of one schema
	schemaMap               // texts by text
	schemaEntries           // values of one schema by text; JSON alone
	schemaText              // a text, or a number or boolean where JSON has one
	schemaBool              // protobuf: a varint
	schemaTime              // protobuf: a message of seconds
	schemaQuantities        // protobuf: messages of a text, by text
)

// maxField is the largest number of a protobuf field that a field mask has.
const maxField = 29

// repeated reports whether a value stands in protobuf as one field for each entry.
func (f schema) repeated() bool { return f == schemaList || f == schemaMap || f == schemaQuantities }

func object(key string, num int, parts ...*fieldMask) *fieldMask {
	o := &fieldMask{key: key, num: num, schema: schemaObject, parts: parts}
	for _, p := range parts {
		p.name = []byte(p.key)
		o.numbered[p.num] = p
	}
	return o
}

// needing has a list leave out those elements of which a piece of JSON is not kept.
func needing(piece string, element *fieldMask) *fieldMask {
	element.needs = piece
	return element
}

func listOf(key string, num int, element *fieldMask) *fieldMask {
	return &fieldMask{key: key, num: num, schema: schemaList, parts: []*fieldMask{element}}
}

// entriesOf is an object whose members have one schema and whose keys have a redaction class.
func entriesOf(key string, keys class, element *fieldMask) *fieldMask {
	return &fieldMask{key: key, schema: schemaEntries, parts: []*fieldMask{element}, class: keys}
}

func value(key string, num int, r class) *fieldMask {
	return &fieldMask{key: key, num: num, schema: schemaText, class: r}
}

// metaMask is what is kept of an object's metadata. Whose managedFields are not
// read has none of them kept.
func metaMask(name class, managed bool, extra ...*fieldMask) *fieldMask {
	parts := []*fieldMask{
		value("name", 1, name),
		value("namespace", 3, classNamespace),
		value("uid", 5, classUID),
		value("resourceVersion", 6, classWord),
		{key: "creationTimestamp", num: 8, schema: schemaTime, class: classTime},
		{key: "deletionTimestamp", num: 9, schema: schemaTime, class: classTime},
	}
	if managed {
		parts = append(parts, listOf("managedFields", 17, object("", 0,
			value("manager", 1, classManager),
			value("operation", 2, classWord),
			value("subresource", 8, classWord),
			&fieldMask{key: "time", num: 4, schema: schemaTime, class: classTime},
		)))
	}
	return object("metadata", 1, append(parts, extra...)...)
}

// calicoAnnotation reports whether an annotation or label is Calico's own. The copy
// that Calico keeps of an object's metadata is not wanted: it repeats what others
// wrote there. So is our own.
func calicoAnnotation(key string) bool {
	domain, name, found := strings.Cut(key, "/")
	return key == blocks.OursAnnotation || found && (domain == "projectcalico.org" || strings.HasSuffix(domain, ".projectcalico.org")) && name != "metadata"
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

// calicoObject is the field mask of an object of Calico's with what decoders read of
// its spec.
func calicoObject(name class, spec ...*fieldMask) *fieldMask {
	s := object("spec", 0, spec...)
	s.whole = true
	return object("", 0, metaMask(name, true, calicoLabels, annotations(map[string]class{blocks.OursAnnotation: classStub})), s)
}

// member returns the field mask of a member of an object; nil if it is not kept.
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

// element returns the field mask of an element of a list, of which the member that is its
// first in protobuf is given; nil if it is not kept.
func (s *fieldMask) element(first string) *fieldMask {
	if s.by == nil {
		return s.parts[0]
	}
	if e := s.by[first]; e != nil {
		return e
	}
	return s.by[""]
}
