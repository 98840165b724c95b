package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// completeCheckID completes the ID of one check.
func completeCheckID(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return checkCompletions(""), cobra.ShellCompDirectiveNoFileComp
}

// completeChecks completes a list of check IDs and groups, joined by commas.
func completeChecks(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := ""
	if i := strings.LastIndex(toComplete, ","); i >= 0 {
		before = toComplete[:i+1]
	}
	return checkCompletions(before), cobra.ShellCompDirectiveNoFileComp
}

func checkCompletions(before string) []cobra.Completion {
	var out []cobra.Completion
	lastGroup := ""
	for _, c := range checks.All {
		if group, _, _ := strings.Cut(c.ID, "/"); group != lastGroup {
			lastGroup = group
			out = append(out, cobra.CompletionWithDesc(before+group, "all checks of this group"))
		}
		out = append(out, cobra.CompletionWithDesc(before+c.ID, c.Title))
	}
	return out
}

// completeFormats completes a value of -o out of formats. What follows a "=" is a file,
// and the shell completes it.
func completeFormats[T any](formats view.Formats[T], toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if strings.Contains(toComplete, "=") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []cobra.Completion
	for _, f := range formats {
		name := f.Name
		if f.Argument != "" {
			name += "="
		}
		if strings.HasPrefix(name, toComplete) {
			out = append(out, cobra.CompletionWithDesc(name, f.Help))
		}
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	if len(out) == 1 && strings.Contains(out[0], "=") {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return out, directive
}

// severityNames lists the severities, falling.
func severityNames() (out []string) {
	for _, s := range state.Severities {
		out = append(out, s.String())
	}
	return out
}
