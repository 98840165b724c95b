package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is the annotation of a flag that names the group it is shown in.
const flagGroup = "calico-audit/group"

// The groups of flags.
const (
	groupDefault = "Flags"
	groupSource  = "Source flags"
	groupCluster = "Cluster flags, as kubectl has them"
)

// FlagGroup is a set of flags with a title.
type FlagGroup struct {
	Title string
	Flags *pflag.FlagSet
}

// FlagGroups returns a command's flags in the groups that help shows, without
// empty groups and hidden flags.
func FlagGroups(c *cobra.Command) []FlagGroup {
	var out []FlagGroup
	for _, title := range []string{groupSource, groupDefault, groupCluster} {
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			group := groupDefault
			if g := f.Annotations[flagGroup]; len(g) > 0 {
				group = g[0]
			}
			if group == title && !f.Hidden {
				set.AddFlag(f)
			}
		})
		if set.HasFlags() {
			out = append(out, FlagGroup{title, set})
		}
	}
	return out
}

// inGroup puts every flag of a set into a group.
func inGroup(fs *pflag.FlagSet, group string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[flagGroup] = []string{group}
	})
}

// usage writes how a command is used, wrapped to a width; 0 does not wrap.
func usage(c *cobra.Command, width int) error {
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
	for _, g := range FlagGroups(c) {
		fmt.Fprintf(&b, "\n%s:\n%s", g.Title, g.Flags.FlagUsagesWrapped(width))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nMore about a command: %s COMMAND --help\n", c.CommandPath())
	}
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}
