package decode

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// ListMeta is what matters of a list's metadata.
type ListMeta struct {
	Next      string // continue token of the next page
	Revision  string // resource version of the list
	Remaining int    // objects after this page; 0 when unknown
}

// ErrPage means that an answer was no page of a list.
var ErrPage = errors.New("the answer is no list")

// Page reads the objects of a page of a list, and calls took with each.
func (d *Decoder) Page(body []byte, took func(Object)) (ListMeta, error) {
	if !bytes.HasPrefix(body, protobufMagic) || !d.Out.Kind.protobuf() {
		return d.pageJSON(body, took)
	}
	return protoList(body, func(message []byte) error {
		o := Object{message, true}
		err := d.One(o)
		if err == nil {
			took(o)
		}
		return err
	})
}

func (d *Decoder) pageJSON(body []byte, took func(Object)) (ListMeta, error) {
	var m ListMeta
	r := NewJSONReader(body)
	r.Share = d.str
	list, items := "", false
	r.Object(func(key []byte) {
		switch string(key) {
		case "kind":
			s, _ := r.str()
			list = string(s)
		case "metadata":
			r.Object(func(key []byte) {
				switch string(key) {
				case "continue":
					s, _ := r.str()
					m.Next = string(s)
				case "resourceVersion":
					s, _ := r.str()
					m.Revision = string(s)
				case "remainingItemCount":
					n, _ := r.Int32()
					m.Remaining = int(n)
				}
			})
		case "items":
			items = true
			r.Array(func(int) {
				r.Begin()
				from := r.pos()
				d.Out.Kind.JSON(d, r)
				if r.err == nil {
					took(Object{Text: r.Text[from:r.in.InputOffset()]})
				}
			})
		}
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
		return errProtobuf
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
