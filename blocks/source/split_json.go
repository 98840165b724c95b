package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// jsonSplitter cuts JSON text into objects: values one after the other, with or
// without lines between them, and the items of lists. It finds where values end;
// their syntax is checked when they are decoded.
type jsonSplitter struct {
	in       *bufio.Reader
	emit     func(rawObject) error
	endList  func(rawObject) error
	document int
	line     int

	object  []byte // the top-level object without its items
	members int    // how many of its members object holds
	item    []byte
	inTop   bool // whether newlines are kept in object, for the lines of errors
	list    bool
	early   []rawObject // items before the list's kind was known
	kind    string
	api     string
}

var errJSONEnd = errors.New("unexpected end of JSON input; is the file cut off?")

func (s *jsonSplitter) run() error {
	for {
		c, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.document++
		switch c {
		case '{':
			err = s.top()
		case '[':
			err = s.items(s.emit)
		case '-':
			s.document--
			err = s.separator()
		default:
			err = fmt.Errorf("unexpected %q, wanted an object", c)
		}
		if err != nil {
			return s.fail(err)
		}
	}
}

// fail places an error, unless it has a place.
func (s *jsonSplitter) fail(err error) error {
	var known *fileError
	if errors.As(err, &known) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err // that of what is compressed has no place
	}
	if errors.Is(err, io.EOF) {
		err = errJSONEnd
	}
	return &fileError{max(s.document, 1), s.line, err}
}

// separator reads the rest of a line "---", which some tools put between JSON
// documents, too.
func (s *jsonSplitter) separator() error {
	for range 2 {
		c, err := s.in.ReadByte()
		if err != nil || c != '-' {
			return fmt.Errorf("unexpected %q, wanted an object", '-')
		}
	}
	return nil
}

// next returns the next byte that is not white space.
func (s *jsonSplitter) next() (byte, error) {
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case '\n':
			s.line++
			if s.inTop {
				s.object = append(s.object, '\n')
			}
		case ' ', '\t', '\r':
		default:
			return c, nil
		}
	}
}

// top reads an object of the top level, whose brace is read already.
func (s *jsonSplitter) top() error {
	start := s.line
	s.object, s.list, s.early, s.kind, s.api = append(s.object[:0], '{'), false, nil, "", ""
	s.members, s.inTop = 0, true
	defer func() { s.inTop = false }()
	for first := true; ; first = false {
		c, err := s.next()
		if err != nil {
			return err
		}
		if c == '}' && first {
			break
		}
		if c != '"' {
			return fmt.Errorf("unexpected %q, wanted a key", c)
		}
		if err := s.topMember(); err != nil {
			return err
		}
		if c, err = s.next(); err != nil {
			return err
		}
		if c == '}' {
			break
		}
		if c != ',' {
			return fmt.Errorf("unexpected %q, wanted a comma or '}'", c)
		}
	}
	s.object = append(s.object, '}')
	if !s.list {
		return s.emit(rawObject{json: s.object, document: s.document, line: start})
	}
	if err := checkSyntax(s.object, s.document, start); err != nil {
		return err
	}
	s.kind, s.api = kindAndVersion(s.object)
	for _, o := range s.early {
		o.listKind, o.listVersion = s.kind, s.api
		if err := s.emit(o); err != nil {
			return err
		}
	}
	return s.endList(rawObject{json: s.object, document: s.document, line: start})
}

// topMember reads a member of the top level, whose quote is read already. Items
// are handed out one by one, all else is kept.
func (s *jsonSplitter) topMember() error {
	mark := len(s.object)
	if s.members > 0 {
		s.object = append(s.object, ',')
	}
	keyFrom := len(s.object)
	var err error
	if s.object, err = s.value(s.object, '"'); err != nil {
		return err
	}
	key := s.object[keyFrom:]
	c, err := s.next()
	if err != nil {
		return err
	}
	if c != ':' {
		return fmt.Errorf("unexpected %q, wanted a colon", c)
	}
	if c, err = s.next(); err != nil {
		return err
	}
	if c == '[' && bytes.Equal(key, []byte(`"items"`)) {
		s.object = s.object[:mark]
		s.list, s.inTop = true, false
		defer func() { s.inTop = true }()
		s.kind, s.api = kindAndVersion(append(bytes.Clone(s.object), '}'))
		return s.items(s.listItem)
	}
	s.members++
	s.object = append(s.object, ':')
	s.object, err = s.value(s.object, c)
	return err
}

// listItem hands out an item, or keeps it until its list's kind is known if it
// needs that.
func (s *jsonSplitter) listItem(o rawObject) error {
	o.listKind, o.listVersion = s.kind, s.api
	if s.kind == "" {
		if kind, _ := kindAndVersion(o.json); kind == "" {
			o.json = bytes.Clone(o.json)
			s.early = append(s.early, o)
			return nil
		}
	}
	return s.emit(o)
}

// items reads a list, whose bracket is read already, and calls emit with each
// element.
func (s *jsonSplitter) items(emit func(rawObject) error) error {
	for first := true; ; first = false {
		c, err := s.next()
		if err != nil {
			return err
		}
		if c == ']' && first {
			return nil
		}
		start := s.line
		if s.item, err = s.value(s.item[:0], c); err != nil {
			return err
		}
		if err := emit(rawObject{json: s.item, document: s.document, line: start}); err != nil {
			return err
		}
		if c, err = s.next(); err != nil {
			return err
		}
		if c == ']' {
			return nil
		}
		if c != ',' {
			return fmt.Errorf("unexpected %q, wanted a comma or ']'", c)
		}
	}
}

// value appends a value, whose first byte is c, to out.
func (s *jsonSplitter) value(out []byte, c byte) ([]byte, error) {
	depth, quoted := 0, false
	for {
		out = append(out, c)
		switch {
		case quoted && c == '\\':
			next, err := s.in.ReadByte()
			if err != nil {
				return out, err
			}
			out = append(out, next)
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if c == '\n' {
			s.line++
		}
		if depth == 0 && !quoted && s.ended(c) {
			return out, nil
		}
		if len(out) > maxObject {
			return out, fmt.Errorf("an object of more than %d MiB: %w", maxObject>>20, errTooLarge)
		}
		var err error
		if c, err = s.in.ReadByte(); err != nil {
			return out, err
		}
	}
}

// ended tells whether a value ends with the byte c, outside of brackets and
// quotes: a bracket or a quote always does, a number or word where another byte
// follows that cannot be part of it.
func (s *jsonSplitter) ended(c byte) bool {
	switch c {
	case '}', ']', '"':
		return true
	}
	next, err := s.in.Peek(1)
	if err != nil {
		return true
	}
	switch next[0] {
	case ',', '}', ']', ' ', '\t', '\r', '\n', ':', '"', '{', '[':
		return true
	}
	return false
}

// checkSyntax checks the whole of a JSON value and places the error.
func checkSyntax(object []byte, document, line int) error {
	r := newJSONReader(object)
	r.skip()
	if r.err == nil && !r.atEnd() {
		r.failAt("the end")
	}
	if r.err == nil {
		return nil
	}
	line += bytes.Count(object[:min(r.pos, len(object))], []byte("\n"))
	return &fileError{document, line, r.err}
}
