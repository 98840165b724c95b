package view

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// SnapshotFormats are the formats of a saved snapshot.
var SnapshotFormats = []string{"yaml", "json", "yaml.gz", "json.gz"}

// SnapshotFormat returns the format for a file name.
func SnapshotFormat(file string) (string, bool) {
	name := strings.ToLower(file)
	for _, f := range SnapshotFormats {
		if strings.HasSuffix(name, "."+f) || strings.HasSuffix(name, "."+strings.Replace(f, "yaml", "yml", 1)) {
			return f, true
		}
	}
	return "", false
}

// SnapshotWriter writes a series of objects: YAML as documents, JSON as one object a line.
// Close does not close the underlying writer.
type SnapshotWriter struct {
	io.WriteCloser
	yaml, begun bool
}

// NewSnapshotWriter returns a writer for one of the [SnapshotFormats].
func NewSnapshotWriter(w io.Writer, format string) (*SnapshotWriter, error) {
	if !slices.Contains(SnapshotFormats, format) {
		return nil, fmt.Errorf("unknown format %q: want one of %s", format, strings.Join(SnapshotFormats, ", "))
	}
	s := &SnapshotWriter{WriteCloser: plainWriter{w}, yaml: strings.HasPrefix(format, "yaml")}
	if strings.HasSuffix(format, ".gz") {
		s.WriteCloser = gzip.NewWriter(w)
	}
	return s, nil
}

type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }

// Object writes an object, given as JSON.
func (s *SnapshotWriter) Object(object []byte) (err error) {
	switch {
	case !s.yaml:
		_, err = s.Write(append(object[:len(object):len(object)], '\n'))
		return err
	case s.begun:
		_, err = io.WriteString(s, "---\n")
	}
	if s.begun = true; err != nil {
		return err
	}
	return WriteYAML(s, json.RawMessage(object))
}
