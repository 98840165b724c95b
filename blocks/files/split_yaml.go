package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// yamlSplitter splits YAML text into objects. Documents end at lines "---". If a document
// has a line "items:" at its outer level, it is a list, and each entry below that line is
// an object. Items are found by indentation and parsed one at a time, because the tree of a
// large cluster's list would not fit into memory.
type yamlSplitter struct {
	listItems
	in       *bufio.Reader
	document int
	line     int

	text  []byte // the document without its items
	first int    // first line of text
	start int    // first line of the document's content
	used  bool   // the document has content
	ended bool   // the last line ends with a newline

	inItems bool
	list    bool
	indent  int    // of the items; -1 before the first
	object  []byte // the current item, as a list of one
	itemAt  int
}

func (s *yamlSplitter) run() error {
	defer s.drop()
	s.reset()
	for {
		line, err := s.in.ReadBytes('\n')
		if len(line) > 0 {
			s.line++
			if err := s.add(line); err != nil {
				return s.place(err)
			}
			s.ended = line[len(line)-1] == '\n'
		}
		if err == io.EOF {
			return s.place(s.finish())
		}
		if err != nil {
			return err
		}
	}
}

func (s *yamlSplitter) place(err error) error {
	var known *parse.FileError
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &parse.FileError{Document: max(s.document, 1), Line: s.line, Err: err}
}

func (s *yamlSplitter) reset() {
	s.drop()
	s.text, s.used, s.first = s.text[:0], false, s.line+1
	s.inItems, s.list, s.indent, s.object = false, false, -1, s.object[:0]
}

// add handles one line of the text.
func (s *yamlSplitter) add(line []byte) error {
	content := bytes.TrimRight(line, " \t\r\n")
	switch {
	case isMarker(line, "---"):
		if err := s.finish(); err != nil {
			return err
		}
		// Content may follow on the marker's own line.
		line = append([]byte("   "), line[3:]...)
		s.first = s.line
		content = bytes.TrimRight(line, " \t\r\n")
	case isMarker(line, "..."):
		return s.finish()
	}
	indent := len(content) - len(bytes.TrimLeft(content, " "))
	blank := len(content) == 0 || content[indent] == '#'
	if len(content) == 0 {
		blank, indent = true, 0
	}
	if !blank && !s.used && content[0] != '%' {
		s.used, s.start = true, s.line
		s.document++
	}
	if s.inItems && !blank {
		if err := s.itemLine(content, indent); err != nil {
			return err
		}
	}
	if s.inItems {
		if s.indent >= 0 {
			s.object = append(s.object, line...)
		}
		s.text = append(s.text, '\n') // keeps the line numbers of the rest
		return s.limit(len(s.object))
	}
	if indent == 0 && isItemsKey(content) {
		s.inItems, s.list, s.indent = true, true, -1
		head, _ := yamlToJSON(s.text)
		s.begin(head)
		s.text = append(s.text, '\n')
		return nil
	}
	s.text = append(s.text, line...)
	return s.limit(len(s.text))
}

// itemLine handles a line within the items. It may start an item, or end the items because
// it belongs to the document.
func (s *yamlSplitter) itemLine(content []byte, indent int) error {
	dash := content[indent] == '-' && (len(content) == indent+1 || content[indent+1] == ' ')
	switch {
	case dash && (s.indent < 0 || indent == s.indent):
		err := s.endItem()
		s.indent, s.itemAt = indent, s.line
		return err
	case s.indent >= 0 && indent > s.indent:
		return nil
	}
	s.inItems = false
	return s.endItem()
}

func (s *yamlSplitter) limit(size int) error {
	if size > maxYAMLObject {
		return fmt.Errorf("an object of more than %d MiB as YAML: %w; JSON may be up to %d MiB",
			maxYAMLObject>>20, errTooLarge, maxObject>>20)
	}
	return nil
}

// endItem emits the collected item, which is a list of one in YAML.
func (s *yamlSplitter) endItem() error {
	if len(s.object) == 0 {
		return nil
	}
	object, err := yamlToJSON(s.object)
	if err != nil {
		return yamlError(s.document, s.itemAt, s.object, err)
	}
	s.object = s.object[:0]
	object = bytes.TrimSuffix(bytes.TrimPrefix(object, []byte("[")), []byte("]"))
	return s.item(RawObject{JSON: object, document: s.document, line: s.itemAt})
}

// finish ends the current document.
func (s *yamlSplitter) finish() error {
	defer s.reset()
	if s.inItems {
		if err := s.endItem(); err != nil {
			return err
		}
	}
	if !s.used {
		return nil
	}
	object, err := yamlToJSON(s.text)
	if err != nil {
		return yamlError(s.document, s.first, s.text, err)
	}
	if !s.list {
		if object == nil {
			s.document--
			return nil
		}
		return s.emit(RawObject{JSON: object, document: s.document, line: s.start, unended: !s.ended})
	}
	if kind, _ := kindAndVersion(object); kind == "" {
		return &parse.FileError{Document: s.document, Line: s.start, Err: errors.New("a list without kind; is the file cut off?")}
	}
	return s.end(RawObject{JSON: object, document: s.document, line: s.start})
}

// isMarker reports whether a line is a document marker.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// isItemsKey reports whether a line is the key of a list's items, which follow on separate
// lines.
func isItemsKey(content []byte) bool {
	rest, ok := bytes.CutPrefix(content, []byte("items:"))
	if !ok {
		return false
	}
	rest = bytes.TrimLeft(rest, " \t")
	return len(rest) == 0 || rest[0] == '#'
}
