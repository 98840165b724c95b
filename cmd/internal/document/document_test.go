package document_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
)

func TestWriteAtomically(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("out of ink")
	err := document.WriteAtomically(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, strings.Repeat("half", 100000))
		if now, err := os.ReadFile(path); err != nil || string(now) != "before" {
			t.Errorf("meanwhile the file holds %q, %v", now, err)
		}
		return failed
	})
	if text, e := os.ReadFile(path); !errors.Is(err, failed) || string(text) != "before" || e != nil {
		t.Errorf("%v, and the file holds %q, %v", err, text, e)
	}
	if err := document.WriteAtomically(path, func(w io.Writer) error { _, err := io.WriteString(w, "after"); return err }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	info, _ := os.Stat(path)
	entries, _ := os.ReadDir(dir)
	if err != nil || string(text) != "after" || info.Mode().Perm() != 0o600 || len(entries) != 1 {
		t.Errorf("%q, %v, mode %v, files %v", text, err, info.Mode(), entries)
	}
}

// TestIdentity: the beginning of a file identifies its content, in any notation.
func TestIdentity(t *testing.T) {
	report := audit.APIVersion + " " + audit.ReportKind
	for text, want := range map[string]string{
		`{"apiVersion":"calico-audit/v1alpha1","kind":"AuditReport"}`:                              report,
		"\ufeff \n{\"kind\": \"AuditReport\", \"apiVersion\": \"calico-audit/v1alpha1\", \"x\": [": report,
		"apiVersion: calico-audit/v1alpha1\r\nkind: \"AuditReport\"\r\n":                           report,
		"---\nkind: AuditReport # x": " AuditReport",
		"findings: []\nkind: AuditReport\napiVersion: 'calico-audit/v1alpha1'\n": report,
		"apiVersion: v1\nitems:\n- kind: Pod\nkind: List\n":                      "v1 List",
		"apiVersion: v1\nkind: Pod\n---\nkind: AuditReport\n":                    "v1 Pod",
		`{"items":[{"kind":"Pod"}],"kind":"List"}`:                               " List",
		`{"apiVersion":"calico-audit/v1alpha1","findings":[{"a":`:                audit.APIVersion + " ",
		"": " ", "[": " ", `{"kind": 5}`: " ", "\x1f\x8b": " ",
	} {
		version, kind := document.Identity([]byte(text))
		if got := version + " " + kind; got != want {
			t.Errorf("%q is a %q, want %q", text, got, want)
		}
	}
}
