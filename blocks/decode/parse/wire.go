package parse

import (
	"iter"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// A wire is a value in a protobuf message. It lets a Reader read the message as the API
// server's JSON, without empty values and without fields that the kind's mask drops.
type wire struct {
	// mask is the value's mask; nil if the reader reads JSON.
	mask  *Mask
	field protobuf.Field // the first entry of a list or map
	after []byte         // the message after field, which may hold more entries
}

// ResetWire makes the reader read a protobuf message.
func (r *Reader) ResetWire(message []byte, mask *Mask) {
	*r = Reader{Text: message, in: r.in, Share: r.Share, at: wire{mask: mask, field: protobuf.Field{Bytes: message}}, path: r.path[:0], Faults: r.Faults[:0]}
}

// fields yields the fields of a message, each with the message after it.
func (r *Reader) fields(message []byte) iter.Seq2[protobuf.Field, []byte] {
	return func(yield func(protobuf.Field, []byte) bool) {
		for len(message) > 0 && r.err == nil {
			var f protobuf.Field
			if f, message, r.err = protobuf.Next(message); r.err != nil || !yield(f, message) {
				return
			}
		}
	}
}

// wireObject implements Object.
func (r *Reader) wireObject(at wire, fn func(key []byte)) bool {
	if at.mask.Schema != SchemaObject {
		return r.wireMap(at, fn)
	}
	var last protowire.Number
	for f, after := range r.fields(at.field.Bytes) {
		var p *Mask
		if f.Num <= maxField {
			p = at.mask.numbered[f.Num]
		}
		again := f.Num == last // another entry of a list or map, which was read already
		last = f.Num
		switch {
		case p == nil, again && p.Schema.repeated(), len(f.Bytes) == 0 && (p.Schema == SchemaText || p.Schema == SchemaTime):
		case p.Key == "":
			r.wireObject(wire{mask: p, field: f}, fn)
		default:
			r.enterWire(wire{p, f, after}, step{p.name, -1})
			fn(p.name)
			r.leaveWire()
		}
	}
	return r.err == nil
}

func (r *Reader) wireMap(at wire, fn func(key []byte)) bool {
	for entry := range r.entries(at) {
		var key []byte
		value := wire{mask: textMask}
		for f := range r.fields(entry) {
			switch f.Num {
			case 1:
				key = f.Bytes
			case 2:
				value.field = f
			default: // not part of a map's entry
			}
		}
		if at.mask.Schema == SchemaQuantities {
			value.field.Bytes = r.firstText(value.field.Bytes)
		}
		if at.mask.Wants == nil || at.mask.Wants(key) {
			r.enterWire(value, step{key, -1})
			fn(key)
			r.leaveWire()
		}
	}
	return r.err == nil
}

// wireArray implements Array.
func (r *Reader) wireArray(at wire, fn func(i int)) {
	i := 0
	for entry := range r.entries(at) {
		element := at.mask.Parts[0]
		if at.mask.By != nil {
			element = at.mask.Element(string(r.firstText(entry)))
		}
		if element != nil {
			r.enterWire(wire{mask: element, field: protobuf.Field{Bytes: entry}}, step{nil, i})
			fn(i)
			r.leaveWire()
			i++
		}
	}
}

func (r *Reader) enterWire(at wire, in step) {
	r.at = at
	r.path = append(r.path, in)
}

func (r *Reader) leaveWire() { r.path = r.path[:len(r.path)-1] }

// entries yields the entries of a list or map, which follow one another.
func (r *Reader) entries(at wire) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(at.field.Bytes) {
			return
		}
		for f := range r.fields(at.after) {
			if f.Num != at.field.Num || !yield(f.Bytes) {
				return
			}
		}
	}
}

// firstText returns a message's first field, a string such as a kind.
func (r *Reader) firstText(message []byte) []byte {
	for f := range r.fields(message) {
		if f.Num == 1 {
			return f.Bytes
		}
	}
	return nil
}

// kind implements Peek.
func (at *wire) kind() byte {
	switch at.mask.Schema {
	case SchemaObject, SchemaMap, SchemaQuantities:
		return '{'
	case SchemaList:
		return '['
	case SchemaBool:
		if at.field.Value == 0 {
			return 'f'
		}
		return 't'
	case SchemaNumber:
		return '0'
	default:
		return '"'
	}
}

// appendScalar appends a value other than an object or list as JSON.
func (at *wire) appendScalar(out []byte) []byte {
	switch at.mask.Schema {
	case SchemaBool:
		return strconv.AppendBool(out, at.field.Value != 0)
	case SchemaNumber:
		return strconv.AppendUint(out, at.field.Value, 10)
	case SchemaTime:
		return protobuf.Time(at.field.Bytes).AppendFormat(append(out, '"'), time.RFC3339+`"`)
	default:
		out, _ = jsontext.AppendQuote(out, at.field.Bytes) // invalid UTF-8 is replaced
		return out
	}
}

// textMask is the mask of a map's values.
var textMask = &Mask{Schema: SchemaText}
