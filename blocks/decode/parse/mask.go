package parse

// A Mask selects what a saved snapshot keeps of a value. The same tree of masks
// reduces JSON, converts protobuf to reduced JSON, and anonymizes names, so that the three
// agree. The tree must have every field that the kind's decoder reads; a test checks this.
type Mask struct {
	Key  string
	name []byte // Key as bytes
	Num  int    // number of the protobuf field, for core kinds
	Schema
	// Parts are the members of an object, or the single mask for a list's elements. A
	// member without a key is a protobuf message whose members belong to the object itself.
	Parts    []*Mask
	numbered [maxField + 1]*Mask // Parts by Num
	// Whole keeps everything below the value, including unknown fields, unless names are
	// anonymized. It is set for the specs of Calico's objects, because bug reports are about them.
	Whole bool
	// Wants selects the kept entries of a map; nil keeps all.
	Wants func(key []byte) bool
	// By has masks for a list's elements by their first protobuf member, such as their
	// kind. The mask of "" applies to all others; without it they are dropped. If By is
	// nil, all elements have the same mask.
	By map[string]*Mask
	// Requires is a piece of JSON that a list's element must contain to be kept.
	Requires string
	// Class is the meaning of the value, for anonymization.
	Class Class
	// Classes are the classes of a map's entries by key. Anonymization drops entries
	// without a class. If Classes is nil, all entries have the mask's class.
	Classes map[string]Class
}

// Class is the meaning of a value, for anonymization. Package keep lists the classes.
type Class int

// Schema is the type of a value in JSON and protobuf.
type Schema int

// The schemas.
const (
	SchemaObject     Schema = iota
	SchemaList              // values of one schema
	SchemaMap               // strings by string
	SchemaEntries           // values of one schema by string; JSON only
	SchemaText              // a string; in JSON also a number or boolean
	SchemaBool              // protobuf: a varint
	SchemaNumber            // protobuf: a varint
	SchemaTime              // protobuf: a message of seconds
	SchemaQuantities        // protobuf: messages of a string, by string
)

// maxField is the largest protobuf field number in any mask.
const maxField = 43

// repeated reports whether protobuf encodes a value as one field per entry.
func (f Schema) repeated() bool { return f == SchemaList || f == SchemaMap || f == SchemaQuantities }

// Object is a mask for an object.
func Object(key string, num int, parts ...*Mask) *Mask {
	o := &Mask{Key: key, Num: num, Schema: SchemaObject, Parts: parts}
	for _, p := range parts {
		p.name = []byte(p.Key)
		o.numbered[p.Num] = p
	}
	return o
}

// Requiring makes a list drop elements whose kept JSON lacks piece.
func Requiring(piece string, element *Mask) *Mask {
	element.Requires = piece
	return element
}

// List is a mask for a list.
func List(key string, num int, element *Mask) *Mask {
	return &Mask{Key: key, Num: num, Schema: SchemaList, Parts: []*Mask{element}}
}

// Entries is a mask for an object with values of one schema and keys of one class.
func Entries(key string, keys Class, element *Mask) *Mask {
	return &Mask{Key: key, Schema: SchemaEntries, Parts: []*Mask{element}, Class: keys}
}

// Value is a mask for a string.
func Value(key string, num int, c Class) *Mask {
	return &Mask{Key: key, Num: num, Schema: SchemaText, Class: c}
}

// Member returns the mask of an object's member; nil if the member is dropped.
func (s *Mask) Member(key []byte) *Mask {
	for _, p := range s.Parts {
		if p.Key == string(key) {
			return p
		}
		if p.Key == "" && p.Schema == SchemaObject {
			if inner := p.Member(key); inner != nil {
				return inner
			}
		}
	}
	return nil
}

// Element returns the mask of a list's element, by the element's first protobuf member; nil
// if the element is dropped.
func (s *Mask) Element(first string) *Mask {
	if s.By == nil {
		return s.Parts[0]
	}
	if e := s.By[first]; e != nil {
		return e
	}
	return s.By[""]
}

// Numbered returns the member with a number of a protobuf field; nil if it is dropped.
func (s *Mask) Numbered(num int) *Mask { return s.numbered[num] }
