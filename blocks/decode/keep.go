package decode

import (
	"strings"

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
	form
	// parts are the members of an object, or the one shape of a list's elements. A member
	// without a key is a message of protobuf's whose members are the object's own.
	parts    []*fieldMask
	numbered [maxField + 1]*fieldMask // parts by num
	// whole keeps everything below the value, also what this release does not
	// know, unless names are replaced. It is meant for the specs of Calico's
	// objects, which are what a bug report is about.
	whole bool
	// wants tells which entries of a map are kept; nil keeps all.
	wants func(key string) bool
	// by has the shapes of a list's elements by the member that is their first in protobuf,
	// such as their kind; that of "" is for all others, which are left out if there is
	// none. nil means that all have one shape.
	by map[string]*fieldMask
	// needs is a piece of JSON without which an element of a list is left out.
	needs string
	// role is what the value means, for replacing names.
	role role
	// roles are those of a map's entries by key. Entries without one are left
	// out when names are replaced; a nil map gives all the field mask's own.
	roles map[string]role
}

// form is the form of a value.
type form int

const (
	formObject     form = iota
	formList            // of values of one shape
	formMap             // texts by text
	formEntries         // values of one shape by text; JSON alone
	formText            // a text, or a number or boolean where JSON has one
	formBool            // protobuf: a varint
	formTime            // protobuf: a message of seconds
	formQuantities      // protobuf: messages of a text, by text
)

// maxField is the largest number of a protobuf field that a field mask has.
const maxField = 29

// repeated reports whether a value stands in protobuf as one field for each entry.
func (f form) repeated() bool { return f == formList || f == formMap || f == formQuantities }

func object(key string, num int, parts ...*fieldMask) *fieldMask {
	o := &fieldMask{key: key, num: num, form: formObject, parts: parts}
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
	return &fieldMask{key: key, num: num, form: formList, parts: []*fieldMask{element}}
}

// entriesOf is an object whose members have one shape and keys of a role.
func entriesOf(key string, keys role, element *fieldMask) *fieldMask {
	return &fieldMask{key: key, form: formEntries, parts: []*fieldMask{element}, role: keys}
}

func value(key string, num int, r role) *fieldMask {
	return &fieldMask{key: key, num: num, form: formText, role: r}
}

// metaMask is what is kept of an object's metadata. Whose managedFields are not
// read has none of them kept.
func metaMask(name role, managed bool, extra ...*fieldMask) *fieldMask {
	parts := []*fieldMask{
		value("name", 1, name),
		value("namespace", 3, roleNamespace),
		value("uid", 5, roleUID),
		value("resourceVersion", 6, roleWord),
		{key: "creationTimestamp", num: 8, form: formTime, role: roleTime},
		{key: "deletionTimestamp", num: 9, form: formTime, role: roleTime},
	}
	if managed {
		parts = append(parts, listOf("managedFields", 17, object("", 0,
			value("manager", 1, roleManager),
			value("operation", 2, roleWord),
			value("subresource", 8, roleWord),
			&fieldMask{key: "time", num: 4, form: formTime, role: roleTime},
		)))
	}
	return object("metadata", 1, append(parts, extra...)...)
}

// calicoAnnotation tells whether an annotation or label is Calico's own. The copy
// that Calico keeps of an object's metadata is not wanted: it repeats what others
// wrote there. So is our own.
func calicoAnnotation(key string) bool {
	domain, name, found := strings.Cut(key, "/")
	return key == blocks.OursAnnotation || found && (domain == "projectcalico.org" || strings.HasSuffix(domain, ".projectcalico.org")) && name != "metadata"
}

// ownersMask keeps owner references, by the owner's kind.
func ownersMask(by map[string]*fieldMask) *fieldMask {
	return &fieldMask{key: "ownerReferences", num: 13, form: formList, parts: []*fieldMask{vmOwner}, by: by}
}

// ownerMask keeps an owner reference.
func ownerMask(name role, more ...*fieldMask) *fieldMask {
	return object("", 0, append(more, value("kind", 1, roleWord), value("name", 3, name), value("uid", 4, roleUID),
		&fieldMask{key: "controller", num: 6, form: formBool, role: roleNumber})...)
}

var (
	vmOwner    = ownerMask(roleVM, value("apiVersion", 5, roleOwnerVersion))
	otherOwner = needing(`"controller":true`, ownerMask(roleController))
)

func annotations(roles map[string]role) *fieldMask {
	return &fieldMask{key: "annotations", num: 12, form: formMap, wants: calicoAnnotation, roles: roles}
}

var (
	allLabels    = &fieldMask{key: "labels", num: 11, form: formMap, role: roleLabel}
	calicoLabels = &fieldMask{key: "labels", form: formMap, wants: calicoAnnotation, roles: map[string]role{hostnameHashLabel: roleStub}}
)

// calicoObject is the field mask of an object of Calico's with what decoders read of
// its spec.
func calicoObject(name role, spec ...*fieldMask) *fieldMask {
	s := object("spec", 0, spec...)
	s.whole = true
	return object("", 0, metaMask(name, true, calicoLabels, annotations(map[string]role{blocks.OursAnnotation: roleStub})), s)
}

// member returns the field mask of a member of an object; nil if it is not kept.
func (s *fieldMask) member(key []byte) *fieldMask {
	for _, p := range s.parts {
		if p.key == string(key) {
			return p
		}
		if p.key == "" && p.form == formObject {
			if inner := p.member(key); inner != nil {
				return inner
			}
		}
	}
	return nil
}

// element returns the shape of an element of a list, of which the member that is its
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
