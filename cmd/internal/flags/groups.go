// Package flags holds code for the flags of all commands: their groups in the help, their
// completion, and their rendering for another command line.
package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groupAnnotation is the annotation of a flag with its group.
const groupAnnotation = "calico-audit/group"

// The groups of flags.
const (
	ofCommand = "Flags"
	Source    = "Source flags"
	Cluster   = "Cluster flags, as in kubectl"
)

// Group is a titled set of flags.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// Groups returns a command's flags by group, without empty groups and hidden flags.
func Groups(c *cobra.Command) []Group {
	var out []Group
	for _, title := range []string{Source, ofCommand, Cluster} {
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			group := ofCommand
			if g := f.Annotations[groupAnnotation]; len(g) > 0 {
				group = g[0]
			}
			if group == title && !f.Hidden {
				set.AddFlag(f)
			}
		})
		if set.HasFlags() {
			out = append(out, Group{title, set})
		}
	}
	return out
}

// InGroup puts all flags of a set into a group.
func InGroup(fs *pflag.FlagSet, group string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[groupAnnotation] = []string{group}
	})
}

// Usage prints the usage of a command, wrapped to a width; 0 disables wrapping.
func Usage(c *cobra.Command, width int) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	for _, g := range Groups(c) {
		fmt.Fprintf(&b, "\n%s:\n%s", g.Title, g.Flags.FlagUsagesWrapped(width))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nFor help on a command: %s COMMAND --help\n", c.CommandPath())
	}
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}
