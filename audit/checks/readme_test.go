package checks_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeAddsACheck follows README.md: the files that it shows are put
// into a copy of the package, and the new check's tests must run and pass.
func TestReadmeAddsACheck(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	code, states := fenced(t, string(raw), "go"), fenced(t, string(raw), "text")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("all.go")
	if err != nil {
		t.Fatal(err)
	}
	const before = "\t&ipUnallocated,\n"
	if !strings.Contains(string(list), before) {
		t.Fatalf("the list of checks has no line %q", before)
	}
	replace := map[string]string{}
	for name, text := range map[string]string{
		"ip_reserved.go": code,
		"all.go":         strings.Replace(string(list), before, "\t&ipReserved,\n"+before, 1),
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, "audit", "checks", name)] = path
	}
	files, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, files, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ip_reserved.txt"), []byte(states), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-overlay", overlay, "-run", "^TestChecks$/^ip$/^reserved$", ".")
	cmd.Env = append(os.Environ(), extraChecks+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestChecks/ip/reserved/in_use_before_it_was_reserved") {
		t.Errorf("%v\n%s", err, out)
	}
}

// fenced returns the first code block of a language.
func fenced(t *testing.T, text, lang string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n```"+lang+"\n")
	block, _, end := strings.Cut(rest, "\n```")
	if !ok || !end {
		t.Fatalf("README.md shows no %s block", lang)
	}
	return block + "\n"
}
