package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/metrics"
)

// The tests change their directory, so root must be absolute.
func TestMain(m *testing.M) {
	var err error
	if root, err = filepath.Abs("../../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestRelease: there is a completion for each shell in .goreleaser.yaml, and a man page for
// each command in the reference.
func TestRelease(t *testing.T) {
	dir := t.TempDir()
	if err := writeRelease(dir); err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := os.ReadDir(filepath.Join(dir, "completions"))
	if err != nil || len(scripts) != 3 {
		t.Errorf("%d completions: %v", len(scripts), err)
	}
	for _, s := range scripts {
		text, err := os.ReadFile(filepath.Join(dir, "completions", s.Name()))
		if err != nil || !strings.Contains(string(text), "__complete") || !strings.Contains(string(packed), "completions/"+s.Name()) {
			t.Errorf("%s is %d bytes, or not packed: %v", s.Name(), len(text), err)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (calico-audit.*)$`).FindAllSubmatch(commands(), -1) {
		name := strings.ReplaceAll(string(m[1]), " ", "-")
		page, err := os.ReadFile(filepath.Join(dir, "man", name+".1"))
		if err != nil || !strings.Contains(string(page), `.TH "`+strings.ToUpper(name)+`" "1"`) || strings.Contains(string(page), "Auto generated") {
			t.Errorf("%s.1: %v\n%.300s", name, err, page)
		}
	}
}

var once = sync.OnceValues(documents)

// documentsOnce returns the documents, made once for all tests.
func documentsOnce(t *testing.T) []document {
	t.Helper()
	docs, err := once()
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func TestDocumentsAreTheSameEachTime(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	first := documentsOnce(t)
	second, err := documents()
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		if !bytes.Equal(first[i].text, second[i].text) {
			t.Errorf("%s differs from one making to the next", first[i].path)
		}
	}
}

// TestDocumentsAreComplete: each check has a section that the table links to, all commands
// and flags are documented, and the documents contain no details of the build machine.
func TestDocumentsAreComplete(t *testing.T) {
	t.Setenv("HOME", "/home/somebody-else")
	docs, err := documents()
	if err != nil {
		t.Fatal(err)
	}
	list, families, commands := string(docs[0].text), string(docs[1].text), string(docs[2].text)
	for _, c := range checks.All {
		for _, want := range []string{"\n## " + c.ID + "\n", "(#" + view.CheckAnchor(c.ID) + ")"} {
			if !strings.Contains(list, want) {
				t.Errorf("CHECKS.md lacks %q", want)
			}
		}
	}
	for _, want := range []string{"## calico-audit report\n", "## calico-audit checks\n", "## calico-audit explain\n", "## calico-audit version\n", "## calico-audit completion\n", "--fail-on", "--kubeconfig", "--filename"} {
		if !strings.Contains(commands, want) {
			t.Errorf("COMMANDS.md lacks %q", want)
		}
	}
	for _, g := range metrics.Groups() {
		for _, f := range g.Families {
			if !strings.Contains(families, "\n| `"+f.Name+"` | ") {
				t.Errorf("METRICS.md lacks %s", f.Name)
			}
			for _, l := range f.Labels {
				if !strings.Contains(families, "\n| `"+l+"` | ") {
					t.Errorf("METRICS.md does not say what label %s is", l)
				}
			}
		}
	}
	for _, text := range []string{list, families, commands} {
		if strings.Contains(text, "somebody-else") {
			t.Error("a document names the home directory of whoever made it")
		}
	}
}

// TestDocumentsAreUpToDate: the documents in the repository match the program.
func TestDocumentsAreUpToDate(t *testing.T) {
	docs := documentsOnce(t)
	t.Chdir(root)
	if err := save(docs, true); err != nil {
		t.Error(err)
	}
}

func TestCheckFindsStaleDocuments(t *testing.T) {
	docs := documentsOnce(t)
	t.Chdir(t.TempDir())
	for _, dir := range []string{"audit", "cmd", "metrics"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := save(docs, false); err != nil {
		t.Fatalf("writing: %v", err)
	}
	if err := save(docs, true); err != nil {
		t.Errorf("just written, and still: %v", err)
	}
	path := filepath.Join("cmd", "COMMANDS.md")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := save(docs, true); err == nil || !strings.Contains(err.Error(), "make generate") {
		t.Errorf("a stale document was not found: %v", err)
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != "old" {
		t.Errorf("-check changed the document: %q, %v", have, err)
	}
}
