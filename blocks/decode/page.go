package decode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// ListMeta holds the relevant metadata of a list.
type ListMeta struct {
	Next      string // continue token of the next page
	Revision  string // resourceVersion of the list
	Remaining int    // objects after this page; 0 if unknown
}

// ErrPage means that a response was not a page of a list.
var ErrPage = errors.New("the answer is not a list")

// pageBuffer is the size of the read buffer in bytes. Most objects fit.
const pageBuffer = 64 << 10

// Page decodes the objects of a page of a list while it arrives. It calls took for each
// object, whose text is only valid during the call.
func (d *Decoder) Page(body io.Reader, took func(Object)) (ListMeta, error) {
	one := func(o Object) error {
		if d.Amend != nil {
			o = Object{Text: d.Amend(d.reduced(o))}
		}
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

// field decodes a field of ListMeta in protobuf.
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
	r := parse.NewStream(body)
	list, items := "", false
	r.Fields(parse.Members{
		"kind": &list,
		"metadata": func() {
			r.Fields(parse.Members{"continue": &m.Next, "resourceVersion": &m.Revision, "remainingItemCount": &m.Remaining})
		},
		"items": func() {
			items = true
			r.Array(func(int) {
				if o := r.Raw(); r.Err() == nil {
					r.Stop(one(Object{Text: o}))
				}
			})
		},
	})
	switch {
	case r.Err() != nil:
		return m, fmt.Errorf("%w: %w", ErrPage, r.Err())
	case !items, !strings.HasSuffix(list, "List"):
		return m, ErrPage
	}
	return m, nil
}

// reduced returns the fields of an object that its decoder reads, as JSON.
func (d *Decoder) reduced(o Object) []byte {
	k := *d.Out.Kind
	if d.PodLabels && k.labelled != nil {
		k.keeps = k.labelled
	}
	return k.AppendSaved(nil, k.Version(""), o, nil)
}

// One decodes a single object.
func (d *Decoder) One(o Object) error {
	k := d.Out.Kind
	if d.reader == nil { // reused, because a new reader costs more than reading an object
		d.reader = parse.New(nil)
		d.reader.Share = d.str
	}
	switch {
	case o.Wire && !k.protobuf():
		return protobuf.ErrMalformed
	case o.Wire && d.PodLabels && k.labelled != nil:
		d.reader.ResetWire(o.Text, k.labelled)
	case o.Wire:
		d.reader.ResetWire(o.Text, k.keeps)
	default:
		d.reader.Reset(o.Text)
	}
	k.JSON(d, d.reader)
	return d.reader.Err()
}
