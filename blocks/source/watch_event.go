package source

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/calico-audit/calico-audit/blocks"
)

// An event is what a watch tells of one object. Its bytes are valid until the
// next event is read.
type event struct {
	what   string // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	object []byte
	proto  bool // the object is protobuf, not JSON
}

// An eventReader reads a stream of events.
type eventReader interface{ next() (event, error) }

// errEvent means that a stream is not what a watch answers.
var errEvent = errors.New("the answer is no watch event")

// jsonEvents reads events of JSON.
type jsonEvents struct {
	in  *json.Decoder
	raw json.RawMessage // used again and again
}

func (s *jsonEvents) next() (event, error) {
	if err := s.in.Decode(&s.raw); err != nil {
		return event{}, err
	}
	var e event
	r := newJSONReader(s.raw)
	r.object(func(key []byte) {
		switch string(key) {
		case "type":
			what, _ := r.str()
			e.what = string(what)
		case "object":
			e.object = r.raw()
		}
	})
	if r.err != nil || e.object == nil {
		return event{}, errors.Join(errEvent, r.err)
	}
	return e, nil
}

// protoEvents reads events of protobuf, each preceded by its length in four bytes.
type protoEvents struct {
	in  io.Reader
	buf []byte // used again and again
}

func (s *protoEvents) next() (event, error) {
	var head [4]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return event{}, err
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size > maxEvent {
		return event{}, fmt.Errorf("%w: it has %d bytes", errEvent, size)
	}
	if cap(s.buf) < size {
		s.buf = make([]byte, size)
	}
	s.buf = s.buf[:size]
	if _, err := io.ReadFull(s.in, s.buf); err != nil {
		return event{}, err
	}
	e := event{proto: true}
	var wrapped []byte
	err := protoFields(s.buf, func(f protoField) {
		switch int(f.num) {
		case 1:
			e.what = string(f.bytes)
		case 2: // a RawExtension
			wrapped = f.bytes
		}
	})
	if err != nil {
		return event{}, err
	}
	var object []byte
	if err := protoFields(wrapped, func(f protoField) {
		if f.num == 1 {
			object = f.bytes
		}
	}); err != nil {
		return event{}, err
	}
	e.object, err = protoUnwrap(object)
	return e, err
}

// maxEvent limits what one event of protobuf may hold; objects have 2 MB at most.
const maxEvent = 16 << 20

// eventMeta is what the metadata of an event's object say.
type eventMeta struct {
	key      blocks.Key
	revision string
}

func (e *event) meta() (eventMeta, error) {
	var id eventMeta
	if e.proto {
		var failed error
		within(&failed, e.object, func(f protoField) {
			if f.num != 1 {
				return
			}
			within(&failed, f.bytes, func(f protoField) {
				switch int(f.num) {
				case 1:
					id.key.Name = string(f.bytes)
				case 3:
					id.key.Namespace = string(f.bytes)
				case 6:
					id.revision = string(f.bytes)
				}
			})
		})
		return id, failed
	}
	r := newJSONReader(e.object)
	text := func(into *string) {
		s, _ := r.str()
		*into = string(s)
	}
	r.object(func(key []byte) {
		if string(key) != "metadata" {
			return
		}
		r.object(func(key []byte) {
			switch string(key) {
			case "name":
				text(&id.key.Name)
			case "namespace":
				text(&id.key.Namespace)
			case "resourceVersion":
				text(&id.revision)
			}
		})
	})
	return id, r.err
}

// err is what an ERROR event says.
func (e *event) err() error {
	var status struct {
		Code    int
		Message string
	}
	if e.proto {
		if err := protoFields(e.object, func(f protoField) {
			switch int(f.num) {
			case 3:
				status.Message = string(f.bytes)
			case 6:
				status.Code = int(f.value)
			}
		}); err != nil {
			return err
		}
	} else if err := json.Unmarshal(e.object, &status); err != nil {
		return fmt.Errorf("%w: %w", errEvent, err)
	}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return &statusError{status.Code, status.Message}
}

// decode returns what a decoder makes of the object.
func (e *event) decode(k *kind, group string, shared *sharedStrings) (*objects, error) {
	p := newObjects(k)
	d := &decoder{out: p, strings: shared, native: group == groupNative}
	if e.proto {
		_, err := d.protobuf(k, e.object)
		return p, err
	}
	r := newJSONReader(e.object)
	r.begin()
	k.json(d, r)
	return p, r.err
}
