package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// jsonSplitter splits JSON text into objects: consecutive values, with or without line
// breaks, and the items of lists.
type jsonSplitter struct {
	listItems
	text     lineReader
	in       *jsontext.Decoder
	document int
	object   []byte // the top-level object without its items
}

// lineReader counts lines, and limits the number of bytes read.
type lineReader struct {
	in    io.Reader
	lines int
	left  int
	err   error // the first error other than io.EOF
}

func (r *lineReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		r.err = fmt.Errorf("an object of more than %d MiB: %w", maxObject>>20, errTooLarge)
		return 0, r.err
	}
	n, err := r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	r.lines += bytes.Count(p[:n], []byte("\n"))
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

var errJSONEnd = errors.New("unexpected end of JSON input; is the file cut off?")

func (s *jsonSplitter) run() error {
	defer s.drop()
	s.in = jsontext.NewDecoder(&s.text, parse.Lenient...)
	for {
		var err error
		switch kind := s.peek(); kind {
		case '{':
			s.document++
			err = s.top()
		case '[':
			s.document++
			err = s.items(s.emit)
		default:
			switch again, separatorErr := s.separator(); {
			case again:
				continue
			case separatorErr != nil:
				err = separatorErr
			case kind == 0:
				if _, err = s.in.ReadToken(); errors.Is(err, io.EOF) {
					return nil
				}
			default:
				s.document++
				err = fmt.Errorf("unexpected %q, wanted an object", s.unread()[0])
			}
		}
		if err != nil {
			return s.fail(err)
		}
	}
}

// peek returns the kind of the next value; 0 at the end or before an error.
func (s *jsonSplitter) peek() jsontext.Kind {
	s.text.left = maxObject
	return s.in.PeekKind()
}

// unread returns the buffered text from the next value on.
func (s *jsonSplitter) unread() []byte {
	return bytes.TrimLeft(s.in.UnreadBuffer(), " \t\r\n")
}

// line returns the decoder's current line, from 1.
func (s *jsonSplitter) line() int {
	return 1 + s.text.lines - bytes.Count(s.in.UnreadBuffer(), []byte("\n"))
}

// fail adds a position to an error without one.
func (s *jsonSplitter) fail(err error) error {
	var known *parse.FileError
	if errors.As(err, &known) {
		return err
	}
	if s.text.err != nil {
		if err = s.text.err; !errors.Is(err, errTooLarge) {
			return err // reading the file failed
		}
	}
	from, unread := int(s.in.InputOffset()), s.in.UnreadBuffer()
	at, err := parse.SyntaxError(err, errJSONEnd, from+len(unread))
	return &parse.FileError{Document: max(s.document, 1), Line: s.line() + bytes.Count(unread[:min(max(at-from, 0), len(unread))], []byte("\n")), Err: err}
}

// separator skips "---", which some tools put between JSON documents, and reports whether
// it found one.
func (s *jsonSplitter) separator() (bool, error) {
	if rest := s.unread(); len(rest) == 0 || rest[0] != '-' {
		return false, nil
	}
	ahead := bytes.Clone(s.unread())
	s.text.lines -= bytes.Count(ahead, []byte("\n"))
	s.text.in = io.MultiReader(bytes.NewReader(ahead), s.text.in)
	var dashes [3]byte
	if _, err := io.ReadFull(&s.text, dashes[:]); err != nil || string(dashes[:]) != "---" {
		return false, fmt.Errorf("unexpected %q, wanted an object", '-')
	}
	s.in.Reset(&s.text, parse.Lenient...)
	return true, nil
}

// top reads a top-level object. It emits a list's items one by one and keeps the rest.
func (s *jsonSplitter) top() error {
	_, _ = s.in.ReadToken()
	start := s.line()
	s.drop()
	s.object = append(s.object[:0], '{')
	list := false
	for s.peek() == '"' {
		mark := len(s.object)
		if mark > 1 {
			s.object = append(s.object, ',')
		}
		key, err := s.in.ReadValue()
		if err != nil {
			return err
		}
		s.object = append(append(s.object, key...), ':')
		if string(s.object[len(s.object)-len(key)-1:]) == `"items":` && s.peek() == '[' {
			s.object, list = s.object[:mark], true
			s.begin(append(bytes.Clone(s.object), '}'))
			if err := s.items(s.item); err != nil {
				return err
			}
			continue
		}
		s.text.left = maxObject - len(s.object)
		value, err := s.in.ReadValue()
		if err != nil {
			return err
		}
		s.object = append(s.object, value...)
	}
	if kind := s.peek(); kind != '}' && kind != 0 {
		return fmt.Errorf("unexpected %q, wanted a key", byte(kind))
	}
	if _, err := s.in.ReadToken(); err != nil {
		return err
	}
	s.object = append(s.object, '}')
	o := RawObject{JSON: s.object, document: s.document, line: start}
	if list {
		return s.end(o)
	}
	return s.emit(o)
}

// items reads a list and calls emit for each element.
func (s *jsonSplitter) items(emit func(RawObject) error) error {
	_, err := s.in.ReadToken()
	for err == nil && s.peek() != ']' {
		var item jsontext.Value
		if item, err = s.in.ReadValue(); err == nil {
			err = emit(RawObject{JSON: item, document: s.document, line: s.line() - bytes.Count(item, []byte("\n"))})
		}
	}
	if err == nil {
		_, err = s.in.ReadToken()
	}
	return err
}
