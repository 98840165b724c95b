package files

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// maxObject limits how large one object of a file may be. Kubernetes stores none
// of more than a few megabytes.
const maxObject = 64 << 20

var errTooLarge = errors.New("larger than anything that Kubernetes stores")

// maxYAMLObject is the limit for YAML, whose parser needs some fifty times the
// memory of its text.
const maxYAMLObject = 16 << 20

// RawObject is an object of a file, as JSON, and where it comes from.
type RawObject struct {
	JSON []byte
	// document counts the documents of the file from 1.
	document int
	// line is where the object begins, from 1.
	line int
	// listKind and listVersion are those of the list that holds the object, for
	// objects that leave out their own, as they do in what the API server
	// itself prints.
	listKind, listVersion string
	// unended is true for a YAML document that ends the file in the midst of a line,
	// which no tool that prints one does.
	unended bool
}

// Split reads a file's text and calls emit with each object in it: the
// documents, and the items of those that are lists. After the items of such a
// document it calls endList with the list itself, without them. Memory is needed
// for one object at a time, not for the file.
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

// startsJSON reports whether the text begins as JSON does, leading white space and
// what of it fits into the buffer aside.
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

// kindAndVersion reads the identity of a list from what is left of it without
// its items.
func kindAndVersion(object []byte) (kind, version string) {
	decode.NewJSONReader(object).Fields(decode.Members{"kind": &kind, "apiVersion": &version})
	return kind, version
}

var (
	yamlErrorLine = regexp.MustCompile(`line (\d+): `)
	// yamlErrorFrom0 matches the errors for which the YAML parser counts lines
	// from 0; for all others it does from 1.
	yamlErrorFrom0 = regexp.MustCompile(`did not find expected (',' or|key|'-' indicator|node content|<document start>)`)
)

// yamlError places an error of the YAML parser, which counts lines from the
// start of the piece that it was given.
func yamlError(document, firstLine int, piece []byte, err error) error {
	text := err.Error()
	line, last := firstLine, firstLine+bytes.Count(bytes.TrimSuffix(piece, []byte("\n")), []byte("\n"))
	if m := yamlErrorLine.FindStringSubmatchIndex(text); m != nil {
		n, _ := strconv.Atoi(text[m[2]:m[3]])
		if !yamlErrorFrom0.MatchString(text) {
			n--
		}
		line = min(line+n, last)
		text = text[:m[0]] + text[m[1]:]
	}
	return &decode.FileError{Document: document, Line: line, Err: errors.New("broken YAML: " + strings.TrimPrefix(text, "yaml: "))}
}
