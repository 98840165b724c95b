package cluster

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
)

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, equal); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// equal compares records; nil and empty slices are equal.
var equal = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, blocks.Pin{}), cmpopts.EquateEmpty()}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// read reads files, which must be valid, and returns the warnings.
func read(t *testing.T, paths ...string) (*blocks.Snapshot, []string) {
	t.Helper()
	var warnings []string
	s, err := files.ReadFiles(paths, files.FileOptions{Warn: func(w string) { warnings = append(warnings, w) }})
	if err != nil {
		t.Fatal(err)
	}
	return s, warnings
}

func recorder(t *testing.T) *files.Recorder {
	t.Helper()
	r, err := files.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// sameSnapshot compares snapshots, except for the sources of gaps.
func sameSnapshot(t *testing.T, what string, want, got *blocks.Snapshot) {
	t.Helper()
	options := cmp.Options{equal, cmpopts.IgnoreFields(blocks.Gap{}, "Source", "Denied"), cmpopts.IgnoreFields(blocks.Cluster{}, "Datastore", "Live")}
	if d := cmp.Diff(want, got, options); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// save writes the recorded objects of a snapshot to a file.
func save(t *testing.T, r *files.Recorder, s *blocks.Snapshot) (path string) {
	t.Helper()
	var text bytes.Buffer
	_, err := r.Save(s, files.SaveOptions{}, func(object []byte) error {
		if !json.Valid(object) || bytes.ContainsAny(object, "\n\r") {
			t.Errorf("no JSON on one line: %s", object)
		}
		text.Write(object)
		return text.WriteByte('\n')
	})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "snapshot.json")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
