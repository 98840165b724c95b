package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// completeCheckID completes a check ID.
func completeCheckID(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return checkCompletions(""), cobra.ShellCompDirectiveNoFileComp
}

// completeChecks completes a comma-separated list of check IDs and groups.
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

// completeFormats completes a value of -o. After a "=" the shell completes a file name.
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

// completeIgnore completes a mute rule.
func completeIgnore(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	before := ""
	if i := strings.LastIndexByte(toComplete, ','); i >= 0 {
		before = toComplete[:i+1]
	}
	out := checkCompletions(before + "check=")
	for _, key := range []string{"node=", "pool=", "until="} {
		out = append(out, before+key)
	}
	return out, directive
}
