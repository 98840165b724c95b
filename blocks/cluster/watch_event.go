package cluster

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// An event is one event of a watch.
type event struct {
	what   watch.EventType
	object []byte
	proto  bool // the object is protobuf, not JSON
	meta   metav1.ObjectMeta
}

// errEvent means that a stream does not contain watch events.
var errEvent = errors.New("the answer is not a watch event")

// eventReader reads a stream of events in JSON or protobuf, with client-go's framing.
type eventReader struct {
	body  *bufio.Reader
	in    streaming.Decoder
	proto bool
}

func newEventReader(body io.Reader) *eventReader { return &eventReader{body: bufio.NewReader(body)} }

// next returns the next event. An ERROR event is returned as an error.
func (s *eventReader) next() (*event, error) {
	if s.in == nil {
		// A protobuf frame starts with its length in four bytes. The first is always zero,
		// because frames are not that long.
		first, err := s.body.Peek(1)
		if err != nil {
			return nil, err
		}
		mediaType := runtime.ContentTypeJSON
		if s.proto = first[0] == 0; s.proto {
			mediaType = runtime.ContentTypeProtobuf
		}
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
		frames := info.StreamSerializer.NewFrameReader(io.NopCloser(s.body))
		s.in = streaming.NewDecoder(frames, info.StreamSerializer.Serializer)
	}
	var got metav1.WatchEvent
	if _, _, err := s.in.Decode(nil, &got); err != nil {
		return nil, err
	}
	e := &event{what: watch.EventType(got.Type), object: got.Object.Raw, proto: s.proto}
	var err error
	if e.proto {
		e.object, err = protobuf.Unwrap(e.object)
	}
	if err == nil && e.what == watch.Error {
		var status metav1.Status
		if err = e.read(&status, status.Unmarshal); err == nil {
			failed := request.StatusError(status)
			failed.Code = cmp.Or(failed.Code, http.StatusInternalServerError)
			return nil, &failed
		}
	}
	if err == nil {
		var object metav1.PartialObjectMetadata
		err = e.read(&object, object.Unmarshal)
		e.meta = object.ObjectMeta
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEvent, err)
	}
	return e, nil
}

// read decodes the object into an API type; proto is the type's Unmarshal method.
func (e *event) read(into any, proto func([]byte) error) error {
	if e.proto {
		return proto(e.object)
	}
	return json.Unmarshal(e.object, into)
}

func (e *event) decode(k *decode.Kind, group string, shared *decode.SharedStrings) (*decode.Objects, error) {
	d := &decode.Decoder{Out: decode.NewObjects(k), Strings: shared, Native: group == decode.GroupNative}
	return d.Out, d.One(decode.Object{Text: e.object, Wire: e.proto})
}
