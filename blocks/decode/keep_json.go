package decode

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// appendKept appends what a field mask keeps of the value at hand to out, as JSON
// without white space. With names it is written for others to read: see
// [Anonymizer.text].
//
// A value that is not of the field mask's schema is replaced by an empty one of its own
// type: what decoders say of it stays the same, and nothing else is kept.
func appendKept(out []byte, r *JSONReader, s *fieldMask, n *Anonymizer) []byte {
	c := r.Peek()
	if s.whole && n == nil {
		return appendRaw(out, r)
	}
	switch s.schema {
	case schemaObject:
		if c == '{' {
			return appendObject(out, r, s, n)
		}
	case schemaList:
		if c == '[' {
			return appendList(out, r, s, n)
		}
	case schemaEntries:
		if c == '{' {
			return appendEntries(out, r, s, n)
		}
	case schemaMap, schemaQuantities:
		if c == '{' {
			return appendMap(out, r, s, n)
		}
	case schemaText, schemaBool, schemaTime:
		if c != '{' && c != '[' {
			return appendScalar(out, r, s.class, "", n)
		}
	}
	return appendEmpty(out, r)
}

func appendObject(out []byte, r *JSONReader, s *fieldMask, n *Anonymizer) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		p := s.member(key)
		if p == nil || n != nil && p.class == classNone && p.schema == schemaText {
			return
		}
		mark := len(out)
		out = appendKey(out, p.key)
		out = appendKept(out, r, p, n)
		if p.schema == schemaMap && bytes.HasSuffix(out, []byte("{}")) ||
			p.schema == schemaList && (p.by != nil || p.parts[0].needs != "") && bytes.HasSuffix(out, []byte("[]")) {
			out = out[:mark] // nothing of the map or list is kept
		}
	})
	return append(out, '}')
}

func appendEntries(out []byte, r *JSONReader, s *fieldMask, n *Anonymizer) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		name := string(key)
		if n != nil {
			name = n.key(s.class, name)
		}
		out = appendKey(out, name)
		out = appendKept(out, r, s.parts[0], n)
	})
	return append(out, '}')
}

func appendList(out []byte, r *JSONReader, s *fieldMask, n *Anonymizer) []byte {
	out = append(out, '[')
	r.Array(func(int) {
		element := s.parts[0]
		switch {
		case r.at.mask != nil:
			element = r.at.mask
		case s.by != nil:
			element = s.element(textAt(r, element.numbered[1].key))
		}
		if element == nil {
			return
		}
		mark := len(out)
		out = appendComma(out)
		from := len(out)
		if out = appendKept(out, r, element, n); !bytes.Contains(out[from:], []byte(element.needs)) {
			out = out[:mark]
		}
	})
	return append(out, ']')
}

// textAt returns a member of the object at hand, without reading that.
func textAt(r *JSONReader, member string) (text string) {
	ahead := NewJSONReader(r.Text[r.pos():])
	ahead.Fields(Members{member: &text})
	return text
}

func appendMap(out []byte, r *JSONReader, s *fieldMask, n *Anonymizer) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		name, class := string(key), s.class
		if s.classes != nil {
			class = s.classes[name]
		}
		c := r.Peek()
		if s.wants != nil && !s.wants(name) || n != nil && class == classNone {
			if c == '"' || c == 'n' {
				return
			}
			// A value that should be a text is told of, whatever it belongs to.
			class = classNone
		}
		if n != nil {
			name = n.key(class, name)
		}
		out = appendKey(out, name)
		if c == '{' || c == '[' {
			out = appendEmpty(out, r)
			return
		}
		out = appendScalar(out, r, class, string(key), n)
	})
	return append(out, '}')
}

// appendScalar appends a text, number, boolean or null; in a map, that of a key.
func appendScalar(out []byte, r *JSONReader, class class, key string, n *Anonymizer) []byte {
	if n == nil {
		return appendRaw(out, r)
	}
	switch c := r.Peek(); {
	case c == '"':
		text, ok := r.str()
		if !ok {
			return out
		}
		return appendText(out, n.text(class, key, string(text)))
	case class == classAS && c >= '0' && c <= '9':
		raw := r.Raw()
		if as := n.text(class, key, string(raw)); as != bad {
			raw = []byte(as)
		}
		return append(out, raw...) // a number that is none goes on being told of
	case c == 'n', class.plain():
		return appendRaw(out, r)
	}
	return appendEmpty(out, r)
}

// appendEmpty appends an empty value of the same type as the one at hand, and
// steps over that.
func appendEmpty(out []byte, r *JSONReader) []byte {
	c := r.Peek()
	r.Skip()
	switch c {
	case '{':
		return append(out, "{}"...)
	case '[':
		return append(out, "[]"...)
	case '"':
		return append(out, `""`...)
	case 't', 'f':
		return append(out, "false"...)
	case 'n':
		return append(out, "null"...)
	}
	return append(out, '0')
}

// asWritten has a value written as it was, white space aside.
var asWritten = append(slices.Clone(Lenient), jsontext.PreserveRawStrings(true))

// appendRaw appends the value at hand as it stands, white space aside.
func appendRaw(out []byte, r *JSONReader) []byte {
	raw := r.Raw()
	if r.err == nil {
		out, r.err = jsontext.AppendFormat(out, raw, asWritten...)
	}
	return out
}

// appendComma appends what comes between two members or elements.
func appendComma(out []byte) []byte {
	if last := out[len(out)-1]; last == '{' || last == '[' {
		return out
	}
	return append(out, ',')
}

func appendKey(out []byte, key string) []byte { return append(appendText(appendComma(out), key), ':') }

// appendText appends a text as a JSON string; of what is not UTF-8 the bytes are replaced.
func appendText[T ~string | ~[]byte](out []byte, s T) []byte {
	out, _ = jsontext.AppendQuote(out, s)
	return out
}

// An Object is an object as it was read: JSON, or a message of protobuf.
type Object struct {
	Text []byte
	Wire bool
}

// AppendSaved appends what a snapshot keeps of an object of an API version.
func (k *Kind) AppendSaved(out []byte, version string, o Object, n *Anonymizer) []byte {
	var r *JSONReader
	if o.Wire {
		r = new(JSONReader)
		r.readWire(o.Text, k.keeps)
	} else {
		r = NewJSONReader(o.Text)
	}
	out = appendText(append(out, `{"apiVersion":`...), version)
	out = appendText(append(out, `,"kind":`...), k.Name(version))
	members := len(out)
	if out = appendKept(out, r, k.keeps, n); len(out) > members+2 && out[members] == '{' {
		out[members] = ','
		return out
	}
	return append(out[:members], '}')
}

// Claimant returns the field spec.node of an affinity.
func Claimant(object []byte) (node string) {
	r := NewJSONReader(object)
	r.Fields(Members{"spec": func() { r.Fields(Members{"node": &node}) }})
	return node
}
