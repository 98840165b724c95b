package decode

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/calico-audit/calico-audit/blocks/alias"
)

// appendKept appends the kept part of the current value to out, as JSON without white
// space. If n is not nil, names are anonymized: see [class.anonymize].
//
// A value that does not match the mask's schema becomes an empty value of its own type.
// Decoders then report the same fault, and the content is dropped.
func appendKept(out []byte, r *JSONReader, s *fieldMask, n *alias.Aliases) []byte {
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
	case schemaText, schemaTime, schemaBool, schemaNumber:
		types := cmp.Or(map[schema]string{schemaBool: "tf", schemaNumber: "0"}[s.schema], `"`)
		if c != '{' && c != '[' {
			if c != 'n' && strings.IndexByte(types, c) < 0 {
				r.odd++
			}
			return appendScalar(out, r, s.class, nil, n)
		}
	}
	if c != 'n' { // null is as good as absent
		r.odd++
	}
	return appendEmpty(out, r)
}

func appendObject(out []byte, r *JSONReader, s *fieldMask, n *alias.Aliases) []byte {
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
			out = out[:mark] // the map or list is empty
		}
	})
	return append(out, '}')
}

func appendEntries(out []byte, r *JSONReader, s *fieldMask, n *alias.Aliases) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		if n != nil {
			key = []byte(s.class.anonymizeKey(n, string(key)))
		}
		out = appendKey(out, key)
		out = appendKept(out, r, s.parts[0], n)
	})
	return append(out, '}')
}

func appendList(out []byte, r *JSONReader, s *fieldMask, n *alias.Aliases) []byte {
	out = append(out, '[')
	r.Array(func(int) {
		element := s.parts[0]
		switch {
		case r.at.mask != nil:
			element = r.at.mask
		case s.by != nil:
			element = s.element(textAt(r, element.numbered[1].key))
		}
		wanted := element != nil
		if !wanted {
			element = s.parts[0]
		}
		mark, odd := len(out), r.odd
		out = appendComma(out)
		from := len(out)
		out = appendKept(out, r, element, n)
		// Decoders report an odd element.
		if wanted = wanted && bytes.Contains(out[from:], []byte(element.needs)); !wanted && r.odd == odd {
			out = out[:mark]
		}
	})
	return append(out, ']')
}

// textAt returns a string member of the current object, without consuming the object.
func textAt(r *JSONReader, member string) (text string) {
	ahead := NewJSONReader(r.Text[r.pos():])
	ahead.Fields(Members{member: &text})
	return text
}

func appendMap(out []byte, r *JSONReader, s *fieldMask, n *alias.Aliases) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		class := s.class
		if s.classes != nil {
			class = s.classes[string(key)]
		}
		c := r.Peek()
		if s.wants != nil && !s.wants(key) || n != nil && class == classNone {
			if c == '"' || c == 'n' {
				return
			}
			// Keep a value of the wrong type, so that decoders report it.
			class = classNone
		}
		if n == nil {
			out = appendKey(out, key)
		} else {
			out = appendKey(out, class.anonymizeKey(n, string(key)))
		}
		if c == '{' || c == '[' {
			out = appendEmpty(out, r)
			return
		}
		out = appendScalar(out, r, class, key, n)
	})
	return append(out, '}')
}

// appendScalar appends a string, number, boolean or null. key is its key in a map, else nil.
func appendScalar(out []byte, r *JSONReader, class class, key []byte, n *alias.Aliases) []byte {
	if n == nil {
		return appendRaw(out, r)
	}
	switch c := r.Peek(); {
	case c == '"':
		text, ok := r.str()
		if !ok {
			return out
		}
		return appendText(out, class.anonymize(n, string(key), string(text)))
	case class == classAS && c <= '9':
		raw := r.Raw()
		if as := class.anonymize(n, string(key), string(raw)); as != alias.Bad {
			raw = []byte(as)
		}
		return append(out, raw...) // an invalid number stays, so that decoders report it
	case c == 'n', class.plain():
		return appendRaw(out, r)
	}
	return appendEmpty(out, r)
}

// appendEmpty skips the current value and appends an empty one of the same type.
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

// asWritten preserves the spelling of strings.
var asWritten = append(slices.Clone(Lenient), jsontext.PreserveRawStrings(true))

// appendRaw appends the current value as written, without white space.
func appendRaw(out []byte, r *JSONReader) []byte {
	if r.at.mask != nil {
		return r.at.appendScalar(out)
	}
	raw := r.Raw()
	if r.err == nil {
		out, r.err = jsontext.AppendFormat(out, raw, asWritten...)
	}
	return out
}

// appendComma appends a comma between two members or elements.
func appendComma(out []byte) []byte {
	if last := out[len(out)-1]; last == '{' || last == '[' {
		return out
	}
	return append(out, ',')
}

func appendKey[T ~string | ~[]byte](out []byte, key T) []byte {
	return append(appendText(appendComma(out), key), ':')
}

// appendText appends a JSON string. Invalid UTF-8 is replaced.
func appendText[T ~string | ~[]byte](out []byte, s T) []byte {
	out, _ = jsontext.AppendQuote(out, s)
	return out
}

// An Object is an object as read: JSON, or a protobuf message.
type Object struct {
	Text []byte
	Wire bool
}

// AppendSaved appends the saved form of an object of an API version.
func (k *Kind) AppendSaved(out []byte, version string, o Object, n *alias.Aliases) []byte {
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
