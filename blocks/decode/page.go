package decode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// ListMeta is what matters of a list's metadata.
type ListMeta struct {
	Next      string // continue token of the next page
	Revision  string // resource version of the list
	Remaining int    // objects after this page; 0 when unknown
}

// ErrPage means that an answer was no page of a list.
var ErrPage = errors.New("the answer is not a list")

// pageBuffer is how much of a page is read ahead. Most objects fit in.
const pageBuffer = 64 << 10

// Page reads the objects of a page of a list as it comes, and calls took with each, whose
// text is valid during the call.
func (d *Decoder) Page(body io.Reader, took func(Object)) (ListMeta, error) {
	one := func(o Object) error {
		err := d.One(o)
		if err == nil {
			took(o)
		}
		return err
	}
	in := bufio.NewReaderSize(body, pageBuffer)
	if !protobuf.Begins(in) || !d.Out.Kind.protobuf() {
		return pageJSON(in, one)
	}
	var m ListMeta
	err := protobuf.List(in, m.field, func(message []byte) error { return one(Object{message, true}) })
	return m, err
}

// field reads a field of ListMeta in protobuf.
func (m *ListMeta) field(f protobuf.Field) {
	switch int(f.Num) {
	case 2:
		m.Revision = string(f.Bytes)
	case 3:
		m.Next = string(f.Bytes)
	case 4:
		m.Remaining = int(f.Value)
	}
}

func pageJSON(body io.Reader, one func(Object) error) (ListMeta, error) {
	var m ListMeta
	r := &JSONReader{in: jsontext.NewDecoder(body, Lenient...)}
	list, items := "", false
	r.Fields(Members{
		"kind": &list,
		"metadata": func() {
			r.Fields(Members{"continue": &m.Next, "resourceVersion": &m.Revision, "remainingItemCount": &m.Remaining})
		},
		"items": func() {
			items = true
			r.Array(func(int) {
				if o := r.Raw(); r.err == nil {
					r.err = one(Object{Text: o})
				}
			})
		},
	})
	switch {
	case r.err != nil:
		return m, fmt.Errorf("%w: %w", ErrPage, r.err)
	case !items, !strings.HasSuffix(list, "List"):
		return m, ErrPage
	}
	return m, nil
}

// One reads an object by itself.
func (d *Decoder) One(o Object) error {
	k := d.Out.Kind
	if d.reader == nil { // one serves all objects: a new one costs more than what it reads
		d.reader = NewJSONReader(nil)
		d.reader.Share = d.str
	}
	switch {
	case o.Wire && !k.protobuf():
		return protobuf.ErrMalformed
	case o.Wire && d.PodLabels && k.labelled != nil:
		d.reader.readWire(o.Text, k.labelled)
	case o.Wire:
		d.reader.readWire(o.Text, k.keeps)
	default:
		d.reader.Reset(o.Text)
	}
	k.JSON(d, d.reader)
	return d.reader.err
}
