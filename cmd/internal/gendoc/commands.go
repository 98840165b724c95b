package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
)

// commands returns the command reference.
func commands() []byte {
	root := cli.NewRoot("calico-audit", genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Commands\n\n%s\n\nAs a kubectl plugin, under the name `kubectl-calico_audit`, each command is called as `kubectl calico-audit …`.\n", paragraph(root.Long))
	fmt.Fprintf(&b, "\n| command | does |\n|---|---|\n")
	for _, c := range documented(root) {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	for _, c := range documented(root) {
		command(&b, c)
	}
	return b.Bytes()
}

// documented returns the usable commands under c, by name. The subcommands of completion
// are explained in its own help.
func documented(c *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() || sub.Name() == "help" {
			continue
		}
		out = append(out, sub)
		if sub.Name() != "completion" {
			out = append(out, documented(sub)...)
		}
	}
	return out
}

func command(b *bytes.Buffer, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n", c.CommandPath(), paragraph(text))
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		var names []string
		for _, sub := range c.Commands() {
			names = append(names, sub.Name())
		}
		use = c.CommandPath() + " " + strings.Join(names, "|")
	}
	fmt.Fprintf(b, "\n```\n%s\n```\n", use)
	if c.HasExample() {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", outdent(c.Example))
	}
	for _, g := range flags.Groups(c) {
		fmt.Fprintf(b, "\n%s:\n\n```\n%s```\n", g.Title, g.Flags.FlagUsages())
	}
}

// paragraph trims a help text but keeps its lines.
func paragraph(s string) string { return strings.TrimSpace(s) }

func outdent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}
