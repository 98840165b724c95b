package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/cli"
)

// writeRelease writes the other files of a release: shell completions, and a man page for
// each command, dated by SOURCE_DATE_EPOCH.
func writeRelease(dir string) error {
	root := cli.NewRoot("calico-audit", genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	for name, write := range map[string]func(io.Writer) error{
		"calico-audit.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"_calico-audit":     root.GenZshCompletion,
		"calico-audit.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		if err := writeWith(filepath.Join(dir, "completions", name), write); err != nil {
			return fmt.Errorf("writing the completion %s: %w", name, err)
		}
	}
	man := filepath.Join(dir, "man")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return fmt.Errorf("writing man pages: %w", err)
	}
	noTags(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "calico-audit"}, man); err != nil {
		return fmt.Errorf("writing man pages: %w", err)
	}
	return nil
}

func writeWith(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// noTags removes cobra's generator tag from the pages.
func noTags(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		noTags(sub)
	}
}
