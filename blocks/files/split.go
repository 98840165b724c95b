package files

import (
	"bufio"
	"bytes"
	"io"
)

// Split reads a file and calls emit for each object: each document, or each item of a
// document that is a list. After a list's items it calls endList with the list, without
// them. Memory holds one object at a time, not the file.
func Split(text io.Reader, emit, endList func(RawObject) error) (documents int, err error) {
	in := bufio.NewReaderSize(text, 1<<16)
	if bom, _ := in.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(3)
	}
	isJSON, err := startsJSON(in)
	if err != nil {
		return 0, err
	}
	if isJSON {
		s := &jsonSplitter{text: lineReader{in: in}, listItems: listItems{emit: emit, endList: endList}}
		err = s.run()
		return s.document, err
	}
	s := &yamlSplitter{in: in, listItems: listItems{emit: emit, endList: endList}}
	err = s.run()
	return s.document, err
}

// startsJSON reports whether the text starts like JSON, after white space that fits into
// the buffer.
func startsJSON(in *bufio.Reader) (bool, error) {
	for size := 64; ; size = min(2*size, in.Size()) {
		head, err := in.Peek(size)
		if rest := bytes.TrimLeft(head, " \t\r\n"); len(rest) > 0 {
			return rest[0] == '{' || rest[0] == '[', nil
		}
		switch {
		case err == io.EOF || size == in.Size():
			return false, nil
		case err != nil:
			return false, err
		}
	}
}
