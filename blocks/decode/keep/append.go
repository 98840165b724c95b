package keep

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// Append appends the kept part of the current value to out, as JSON without white
// space. If n is not nil, names are anonymized: see [class.anonymize].
//
// A value that does not match the mask's schema becomes an empty value of its own type.
// Decoders then report the same fault, and the content is dropped.
func Append(out []byte, r *parse.Reader, s *parse.Mask, n *alias.Aliases) []byte {
	c := r.Peek()
	if s.Whole && n == nil {
		return r.AppendRaw(out)
	}
	switch s.Schema {
	case parse.SchemaObject:
		if c == '{' {
			return appendObject(out, r, s, n)
		}
	case parse.SchemaList:
		if c == '[' {
			return appendList(out, r, s, n)
		}
	case parse.SchemaEntries:
		if c == '{' {
			return appendEntries(out, r, s, n)
		}
	case parse.SchemaMap, parse.SchemaQuantities:
		if c == '{' {
			return appendMap(out, r, s, n)
		}
	case parse.SchemaText, parse.SchemaTime, parse.SchemaBool, parse.SchemaNumber:
		types := cmp.Or(map[parse.Schema]string{parse.SchemaBool: "tf", parse.SchemaNumber: "0"}[s.Schema], `"`)
		if c != '{' && c != '[' {
			if c != 'n' && strings.IndexByte(types, c) < 0 {
				r.Odd++
			}
			return appendScalar(out, r, s.Class, nil, n)
		}
	}
	if c != 'n' { // null is as good as absent
		r.Odd++
	}
	return appendEmpty(out, r)
}

func appendObject(out []byte, r *parse.Reader, s *parse.Mask, n *alias.Aliases) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		p := s.Member(key)
		if p == nil || n != nil && p.Class == None && p.Schema == parse.SchemaText {
			return
		}
		mark := len(out)
		out = appendKey(out, p.Key)
		out = Append(out, r, p, n)
		if p.Schema == parse.SchemaMap && bytes.HasSuffix(out, []byte("{}")) ||
			p.Schema == parse.SchemaList && (p.By != nil || p.Parts[0].Requires != "") && bytes.HasSuffix(out, []byte("[]")) {
			out = out[:mark] // the map or list is empty
		}
	})
	return append(out, '}')
}

func appendEntries(out []byte, r *parse.Reader, s *parse.Mask, n *alias.Aliases) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		if n != nil {
			key = []byte(anonymizeKey(s.Class, n, string(key)))
		}
		out = appendKey(out, key)
		out = Append(out, r, s.Parts[0], n)
	})
	return append(out, '}')
}

func appendList(out []byte, r *parse.Reader, s *parse.Mask, n *alias.Aliases) []byte {
	out = append(out, '[')
	r.Array(func(int) {
		element := s.Parts[0]
		switch {
		case r.Mask() != nil:
			element = r.Mask()
		case s.By != nil:
			element = s.Element(r.Ahead(element.Numbered(1).Key))
		}
		wanted := element != nil
		if !wanted {
			element = s.Parts[0]
		}
		mark, odd := len(out), r.Odd
		out = appendComma(out)
		from := len(out)
		out = Append(out, r, element, n)
		// Decoders report an odd element.
		if wanted = wanted && bytes.Contains(out[from:], []byte(element.Requires)); !wanted && r.Odd == odd {
			out = out[:mark]
		}
	})
	return append(out, ']')
}

func appendMap(out []byte, r *parse.Reader, s *parse.Mask, n *alias.Aliases) []byte {
	out = append(out, '{')
	r.Object(func(key []byte) {
		class := s.Class
		if s.Classes != nil {
			class = s.Classes[string(key)]
		}
		c := r.Peek()
		if s.Wants != nil && !s.Wants(key) || n != nil && class == None {
			if c == '"' || c == 'n' {
				return
			}
			// Keep a value of the wrong type, so that decoders report it.
			class = None
		}
		if n == nil {
			out = appendKey(out, key)
		} else {
			out = appendKey(out, anonymizeKey(class, n, string(key)))
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
func appendScalar(out []byte, r *parse.Reader, class Class, key []byte, n *alias.Aliases) []byte {
	if n == nil {
		return r.AppendRaw(out)
	}
	switch c := r.Peek(); {
	case c == '"':
		text, ok := r.Bytes()
		if !ok {
			return out
		}
		return AppendText(out, anonymize(class, n, string(key), string(text)))
	case class == AS && c <= '9':
		raw := r.Raw()
		if as := anonymize(class, n, string(key), string(raw)); as != alias.Bad {
			raw = []byte(as)
		}
		return append(out, raw...) // an invalid number stays, so that decoders report it
	case c == 'n', plain(class):
		return r.AppendRaw(out)
	}
	return appendEmpty(out, r)
}

// appendEmpty skips the current value and appends an empty one of the same type.
func appendEmpty(out []byte, r *parse.Reader) []byte {
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

// appendComma appends a comma between two members or elements.
func appendComma(out []byte) []byte {
	if last := out[len(out)-1]; last == '{' || last == '[' {
		return out
	}
	return append(out, ',')
}

func appendKey[T ~string | ~[]byte](out []byte, key T) []byte {
	return append(AppendText(appendComma(out), key), ':')
}

// AppendText appends a JSON string. Invalid UTF-8 is replaced.
func AppendText[T ~string | ~[]byte](out []byte, s T) []byte {
	out, _ = jsontext.AppendQuote(out, s)
	return out
}
