package source

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// listMeta is what matters of a list's metadata.
type listMeta struct {
	next      string // continue token of the next page
	revision  string // resource version of the list
	remaining int    // objects after this page; 0 when unknown
}

// errPage means that an answer was no page of a list.
var errPage = errors.New("the answer is no list")

// page reads the objects of a page of a list, and calls took with each: its JSON or,
// for what came as protobuf, what is kept of it (reduced).
func (d *decoder) page(body []byte, took func(object []byte, reduced bool)) (listMeta, error) {
	if !bytes.HasPrefix(body, protobufMagic) || !d.out.kind.protobuf() {
		return d.pageJSON(body, took)
	}
	return protoList(body, func(object []byte) error {
		kept, err := d.protobuf(object)
		if err == nil {
			took(kept, true)
		}
		return err
	})
}

func (d *decoder) pageJSON(body []byte, took func(object []byte, reduced bool)) (listMeta, error) {
	var m listMeta
	r := newJSONReader(body)
	list, items := "", false
	r.object(func(key []byte) {
		switch string(key) {
		case "kind":
			s, _ := r.str()
			list = string(s)
		case "metadata":
			r.object(func(key []byte) {
				switch string(key) {
				case "continue":
					s, _ := r.str()
					m.next = string(s)
				case "resourceVersion":
					s, _ := r.str()
					m.revision = string(s)
				case "remainingItemCount":
					n, _ := r.int32()
					m.remaining = int(n)
				}
			})
		case "items":
			items = true
			r.array(func(int) {
				r.begin()
				from := r.pos()
				d.out.kind.json(d, r)
				if r.err == nil {
					took(r.text[from:r.in.InputOffset()], false)
				}
			})
		}
	})
	switch {
	case r.err != nil:
		return m, fmt.Errorf("%w: %w", errPage, r.err)
	case !items, !strings.HasSuffix(list, "List"):
		return m, errPage
	}
	return m, nil
}

// one reads an object by itself.
func (d *decoder) one(object []byte, proto bool) error {
	if proto && !d.out.kind.protobuf() {
		return errProtobuf
	}
	if proto {
		_, err := d.protobuf(object)
		return err
	}
	r := newJSONReader(object)
	r.begin()
	d.out.kind.json(d, r)
	return r.err
}
