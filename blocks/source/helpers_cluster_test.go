package source

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func atXCL(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func diffXCL(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, equalXCL); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// equal compares records; nil and empty slices are the same.
var equalXCL = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func prefixXCL(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// read reads files that must be in order, and returns the warnings.
func readXCL(t *testing.T, paths ...string) (*blocks.Snapshot, []string) {
	t.Helper()
	var warnings []string
	s, err := ReadFiles(paths, FileOptions{Warn: func(w string) { warnings = append(warnings, w) }})
	if err != nil {
		t.Fatal(err)
	}
	return s, warnings
}

func recorderXCL(t *testing.T) *Recorder {
	t.Helper()
	r, err := NewRecorder()
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

// sameSnapshot compares all but where gaps were found.
func sameSnapshotXCL(t *testing.T, what string, want, got *blocks.Snapshot) {
	t.Helper()
	options := cmp.Options{equalXCL, cmpopts.IgnoreFields(blocks.Gap{}, "Source"), cmpopts.IgnoreFields(blocks.Cluster{}, "Datastore", "Live")}
	if d := cmp.Diff(want, got, options); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// save writes what was recorded of a snapshot to a file.
func saveXCL(t *testing.T, r *Recorder, s *blocks.Snapshot, o SaveOptions) (path string, names Names) {
	t.Helper()
	var text bytes.Buffer
	names, err := r.Save(s, o, func(object []byte) error {
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
	return path, names
}
