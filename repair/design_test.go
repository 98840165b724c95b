package repair

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDesign checks that every test which DESIGN.md names for an invariant exists.
func TestDesign(t *testing.T) {
	doc, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, dir := range []string{".", "../audit/checks", "../audit/state", "../audit/remedies", "../internal/storm", "../internal/story", "../cmd/internal/cli", "../cmd/internal/live", "../cmd/internal/examples", "../cmd/internal/runner"} {
		err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(raw), -1) {
				have[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) < 60 {
		t.Errorf("DESIGN.md names only %d tests", len(named))
	}
	for _, m := range named {
		if !have[m[1]] {
			t.Errorf("DESIGN.md names %s, which does not exist", m[1])
		}
	}
	for i, row := range regexp.MustCompile(`(?m)^\| [A-Z]\d+ \|.*$`).FindAllString(string(doc), -1) {
		if !strings.Contains(row, "`Test") {
			t.Errorf("invariant %d names no test: %s", i+1, row)
		}
	}
}
