package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks/files"
)

// root is the repository's root.
var root = "."

// pictured are the snapshots with a picture.
var pictured = []string{"story", "dual-stack"}

// pictures draws the block maps of shipped snapshots.
func pictures() ([]document, error) {
	var out []document
	for _, name := range pictured {
		s, err := files.ReadFiles([]string{filepath.Join(root, "examples/snapshots", name)}, files.FileOptions{})
		if err != nil {
			return nil, fmt.Errorf("drawing the snapshot %s: %w", name, err)
		}
		st := state.New(s, state.Options{})
		result := audit.Run(st, checks.All)
		r := audit.NewReport(st, result)
		r.Usage = audit.NewUsage(st, result)
		var picture bytes.Buffer
		if err := writeMap(&picture, r); err != nil {
			return nil, fmt.Errorf("drawing the snapshot %s: %w", name, err)
		}
		out = append(out, document{"examples/pictures/" + name + ".svg", picture.Bytes()})
	}
	return out, nil
}
