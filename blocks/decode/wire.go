package decode

import (
	"iter"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A wire is a value in a message of protobuf, by which a reader reads that as the API
// server's JSON would have it, less what the kind's field mask does not keep and what is
// empty.
type wire struct {
	// mask is that of the value; nil where the reader reads JSON.
	mask  *fieldMask
	field protoField // of a list or map its first entry
	after []byte     // the message after it, where more entries may follow
}

// readWire makes the reader one of a message of protobuf.
func (r *JSONReader) readWire(message []byte, mask *fieldMask) {
	*r = JSONReader{Text: message, in: r.in, Share: r.Share, at: wire{mask: mask, field: protoField{bytes: message}}, path: r.path[:0], Faults: r.Faults[:0]}
}

// fields are those of a message, each with the message after it.
func (r *JSONReader) fields(message []byte) iter.Seq2[protoField, []byte] {
	return func(yield func(protoField, []byte) bool) {
		for len(message) > 0 && r.err == nil {
			var f protoField
			if f, message, r.err = nextField(message); r.err != nil || !yield(f, message) {
				return
			}
		}
	}
}

// wireObject is Object.
func (r *JSONReader) wireObject(at wire, fn func(key []byte)) bool {
	if at.mask.form != formObject {
		return r.wireMap(at, fn)
	}
	var last protowire.Number
	for f, after := range r.fields(at.field.bytes) {
		var p *fieldMask
		if f.num <= maxField {
			p = at.mask.numbered[f.num]
		}
		again := f.num == last // an entry of the list or map that was read
		last = f.num
		switch {
		case p == nil, again && p.form.repeated(), len(f.bytes) == 0 && (p.form == formText || p.form == formTime):
		case p.key == "":
			r.wireObject(wire{mask: p, field: f}, fn)
		default:
			r.enterWire(wire{p, f, after}, step{p.name, -1})
			fn(p.name)
			r.leaveWire()
		}
	}
	return r.err == nil
}

func (r *JSONReader) wireMap(at wire, fn func(key []byte)) bool {
	for entry := range r.entries(at) {
		var key []byte
		value := wire{mask: textMask}
		for f := range r.fields(entry) {
			switch f.num {
			case 1:
				key = f.bytes
			case 2:
				value.field = f
			default: // a map's entry has no others
			}
		}
		if at.mask.form == formQuantities {
			value.field.bytes = r.firstText(value.field.bytes)
		}
		if at.mask.wants == nil || at.mask.wants(string(key)) {
			r.enterWire(value, step{key, -1})
			fn(key)
			r.leaveWire()
		}
	}
	return r.err == nil
}

// wireArray is Array.
func (r *JSONReader) wireArray(at wire, fn func(i int)) {
	i := 0
	for entry := range r.entries(at) {
		element := at.mask.parts[0]
		if at.mask.by != nil {
			element = at.mask.element(string(r.firstText(entry)))
		}
		if element != nil {
			r.enterWire(wire{mask: element, field: protoField{bytes: entry}}, step{nil, i})
			fn(i)
			r.leaveWire()
			i++
		}
	}
}

func (r *JSONReader) enterWire(at wire, in step) {
	r.at = at
	r.path = append(r.path, in)
}

func (r *JSONReader) leaveWire() { r.path = r.path[:len(r.path)-1] }

// entries are those of a list or map, which follow one another.
func (r *JSONReader) entries(at wire) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(at.field.bytes) {
			return
		}
		for f := range r.fields(at.after) {
			if f.num != at.field.num || !yield(f.bytes) {
				return
			}
		}
	}
}

// firstText returns the text that is a message's first field, such as a kind.
func (r *JSONReader) firstText(message []byte) []byte {
	for f := range r.fields(message) {
		if f.num == 1 {
			return f.bytes
		}
	}
	return nil
}

// kind is Peek.
func (at *wire) kind() byte {
	switch at.mask.form {
	case formObject, formMap, formQuantities:
		return '{'
	case formList:
		return '['
	case formBool:
		if at.field.value == 0 {
			return 'f'
		}
		return 't'
	default:
		return '"'
	}
}

// scalar returns the value, which is no object or list, as JSON.
func (at *wire) scalar() []byte {
	switch at.mask.form {
	case formBool:
		return strconv.AppendBool(nil, at.field.value != 0)
	case formTime:
		return protoTime(at.field.bytes).AppendFormat([]byte{'"'}, time.RFC3339+`"`)
	default:
		return appendText(nil, at.field.bytes)
	}
}

// textMask is that of the values of a map.
var textMask = &fieldMask{form: formText}
