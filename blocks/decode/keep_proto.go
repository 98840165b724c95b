package decode

import (
	"bytes"
	"strconv"
	"time"
)

// appendProto appends what a field mask keeps of a protobuf message to out, as the
// API server's JSON would have it. Fields that are empty are left out, as in JSON,
// but for those of a map.
func appendProto(out []byte, msg []byte, s *fieldMask) ([]byte, error) {
	first := true
	out, err := appendProtoMembers(append(out, '{'), msg, s, &first)
	return append(out, '}'), err
}

func appendProtoMembers(out []byte, msg []byte, s *fieldMask, first *bool) ([]byte, error) {
	var open *fieldMask // the list or map whose entries are being written
	var failed error
	err := protoFields(msg, func(f protoField) {
		p := s.field(int(f.num))
		if open != nil && p != open {
			out, open = append(out, open.end()), nil
		}
		switch {
		case p == nil || failed != nil:
		case p.form == formObject && p.key == "":
			out, failed = appendProtoMembers(out, f.bytes, p, first)
		case p.form == formObject:
			out, failed = appendProto(appendKey(out, first, p.key), f.bytes, p)
		case p.form == formBool:
			out = append(appendKey(out, first, p.key), strconv.FormatBool(f.value != 0)...)
		case p.form == formTime:
			if t := protoTime(f.bytes); !t.IsZero() {
				out = append(t.AppendFormat(append(appendKey(out, first, p.key), '"'), time.RFC3339), '"')
			}
		case p.form == formText:
			if len(f.bytes) > 0 {
				out = appendText(appendKey(out, first, p.key), f.bytes)
			}
		default:
			out, failed = appendProtoEntry(out, f.bytes, p, first, &open)
		}
	})
	if open != nil {
		out = append(out, open.end())
	}
	if failed == nil {
		failed = err
	}
	return out, failed
}

// appendProtoEntry appends an entry of a list or map, if it is wanted. open is the
// list or map that is being written.
func appendProtoEntry(out []byte, msg []byte, p *fieldMask, first *bool, open **fieldMask) ([]byte, error) {
	var key, value []byte // the first field of an element tells its kind
	err := protoFields(msg, func(f protoField) {
		switch int(f.num) {
		case 1:
			key = f.bytes
		case 2:
			value = f.bytes
		}
	})
	var element *fieldMask
	if p.form == formList {
		element = p.element(string(key))
	}
	if err != nil || p.wants != nil && !p.wants(string(key)) || p.form == formList && element == nil {
		return out, err
	}
	mark, alone, before := len(out), *first, *open
	if *open == nil {
		out = append(appendKey(out, first, p.key), p.end()-2) // '[' or '{'
		*open = p
	} else {
		out = append(out, ',')
	}
	if p.form == formList {
		from := len(out)
		if out, err = appendProto(out, msg, element); !bytes.Contains(out[from:], []byte(element.needs)) {
			out, *first, *open = out[:mark], alone, before
		}
		return out, err
	}
	if p.form == formQuantities {
		if value, err = protoText(value); err != nil {
			return out, err
		}
	}
	return appendText(append(appendText(out, key), ':'), value), nil
}

// field returns the part with the number of a protobuf field; nil for none.
func (s *fieldMask) field(num int) *fieldMask {
	for _, p := range s.parts {
		if p.num == num {
			return p
		}
	}
	return nil
}

// end is what closes a list or map in JSON.
func (s *fieldMask) end() byte {
	if s.form == formList {
		return ']'
	}
	return '}'
}

// protoText returns the text that a message holds first, such as its kind.
func protoText(msg []byte) (text []byte, err error) {
	err = protoFields(msg, func(f protoField) {
		if int(f.num) == 1 {
			text = f.bytes
		}
	})
	return text, err
}

// protobuf reads an object that came as protobuf by way of what its kind's field mask
// keeps of it, which it returns as JSON, valid until the next call.
func (d *Decoder) protobuf(msg []byte) ([]byte, error) {
	mask := d.Out.Kind.keeps
	if d.PodLabels && d.Out.Kind.labelled != nil {
		mask = d.Out.Kind.labelled
	}
	var err error
	if d.kept, err = appendProto(d.kept[:0], msg, mask); err != nil {
		return nil, err
	}
	if d.reader == nil { // one serves all objects: a new one costs more than what it reads
		d.reader = NewJSONReader(nil)
	}
	d.reader.reset(d.kept)
	d.Out.Kind.JSON(d, d.reader)
	return d.kept, d.reader.err
}
