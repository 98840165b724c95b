package files

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// RawObject is an object of a file as JSON, with its position.
type RawObject struct {
	JSON []byte
	// document is the number of the document in the file, from 1.
	document int
	// line is the first line of the object, from 1.
	line int
	// listKind and listVersion are those of the list that holds the object. They complete
	// objects without their own kind, as in the API server's output.
	listKind, listVersion string
	// unended is true for a YAML document at the end of a file without a final newline.
	// Tools always write one.
	unended bool
}

// kindAndVersion reads the identity of a list from its text without the items.
func kindAndVersion(object []byte) (kind, version string) {
	parse.New(object).Fields(parse.Members{"kind": &kind, "apiVersion": &version})
	return kind, version
}

// yamlError locates an error of the YAML parser, which counts lines from the start of
// piece.
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
	text = "broken YAML: " + strings.TrimPrefix(text, "yaml: ")
	if bytes.Contains(piece, []byte("{{")) {
		text += `; is it a template of a chart ("{{ }}")? Then keep it out of the directory`
	}
	return &parse.FileError{Document: document, Line: line, Err: errors.New(text)}
}

var (
	yamlErrorLine = regexp.MustCompile(`line (\d+): `)
	// yamlErrorFrom0 matches errors whose line numbers start at 0; all others start at 1.
	yamlErrorFrom0 = regexp.MustCompile(`did not find expected (',' or|key|'-' indicator|node content|<document start>)`)
)

// maxObject limits the size of an object in bytes. Kubernetes stores no object larger than
// a few megabytes.
const maxObject = 64 << 20

var errTooLarge = errors.New("larger than anything that Kubernetes stores")

// maxYAMLObject is the limit for YAML, whose parser needs some fifty times the memory of
// the text.
const maxYAMLObject = 16 << 20
