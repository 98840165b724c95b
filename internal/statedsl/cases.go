package statedsl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Cases returns the states in files of test cases, by file and case name. A case begins
// with a line "== NAME". Its state ends before a line that begins with "-- ".
func Cases(pattern string) (map[string]string, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("finding %s: no files (%w)", pattern, err)
	}
	out := map[string]string{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading states: %w", err)
		}
		for _, one := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			name, drawn, _ := strings.Cut(one, "\n")
			drawn, _, _ = strings.Cut(drawn, "-- ")
			out[filepath.Base(path)+", "+name] = drawn
		}
	}
	return out, nil
}
