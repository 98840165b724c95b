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

// SnapshotFormat returns the format that a file's name calls for.
func SnapshotFormat(file string) (string, bool) {
	name := strings.ToLower(file)
	if plain, packed := strings.CutSuffix(name, ".yml.gz"); packed {
		name = plain + ".yaml.gz"
	}
	if plain, short := strings.CutSuffix(name, ".yml"); short {
		name = plain + ".yaml"
	}
	// The longer ones end in no shorter one.
	i := slices.IndexFunc(SnapshotFormats, func(f string) bool { return strings.HasSuffix(name, "."+f) })
	if i < 0 {
		return "", false
	}
	return SnapshotFormats[i], true
}

// SnapshotWriter writes objects one after the other: YAML as documents, JSON as one
// object a line. Closing it does not close what it writes to.
type SnapshotWriter struct {
	w      io.Writer
	packed *gzip.Writer
	yaml   bool
	count  int
}

// NewSnapshotWriter returns a writer of one of the [SnapshotFormats].
func NewSnapshotWriter(w io.Writer, format string) (*SnapshotWriter, error) {
	if !slices.Contains(SnapshotFormats, format) {
		return nil, fmt.Errorf("unknown format %q: want one of %s", format, strings.Join(SnapshotFormats, ", "))
	}
	s := &SnapshotWriter{w: w, yaml: strings.HasPrefix(format, "yaml")}
	if strings.HasSuffix(format, ".gz") {
		s.packed = gzip.NewWriter(w)
		s.w = s.packed
	}
	return s, nil
}

// Object writes an object, given as JSON.
func (s *SnapshotWriter) Object(object []byte) error {
	s.count++
	if !s.yaml {
		if _, err := s.w.Write(object); err != nil {
			return err
		}
		_, err := io.WriteString(s.w, "\n")
		return err
	}
	if s.count > 1 {
		if _, err := io.WriteString(s.w, "---\n"); err != nil {
			return err
		}
	}
	return WriteYAML(s.w, json.RawMessage(object))
}

// Close writes what is still to be written.
func (s *SnapshotWriter) Close() error {
	if s.packed != nil {
		return s.packed.Close()
	}
	return nil
}
