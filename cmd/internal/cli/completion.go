package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// oneOf completes the value of a flag with one of a few.
func oneOf(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// noFiles keeps shells from completing the values of flags with names of files.
func noFiles(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// completionTime is how long the shell waits for names: the cluster may be slow, or
// away.
const completionTime = 3 * time.Second

// named are the names that completion offers of each kind, and what has them.
var named = map[string]struct {
	resource blocks.Resource
	of       func(*blocks.Snapshot) []string
}{
	"node": {blocks.Nodes, func(s *blocks.Snapshot) []string {
		return namesOf(s.Nodes, func(n *blocks.Node) string { return n.Name })
	}},
	"pool": {blocks.Pools, func(s *blocks.Snapshot) []string {
		return namesOf(s.Pools, func(p *blocks.Pool) string { return p.Name })
	}},
	"block": {blocks.Blocks, func(s *blocks.Snapshot) []string {
		return namesOf(s.Blocks, func(b *blocks.Block) string { return b.CIDR.String() })
	}},
	"pod": {blocks.Pods, func(s *blocks.Snapshot) []string { return namesOf(s.Workloads, (*blocks.Workload).FullName) }},
	"handle": {blocks.Handles, func(s *blocks.Snapshot) []string {
		return namesOf(s.Handles, func(h *blocks.Handle) string { return h.ID })
	}},
}

func namesOf[T any](list []T, name func(*T) string) (out []string) {
	for i := range list {
		out = append(out, name(&list[i]))
	}
	return out
}

// names returns the names that the source holds of some kinds. What cannot be read in
// time has none.
func (s *sources) names(ctx context.Context, kinds ...string) (out []string) {
	if slices.Contains(s.files, "-") {
		return nil // it is read once only, by the command itself
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	read := make(chan *blocks.Snapshot, 1)
	go func() {
		defer close(read)
		from, err := s.open(genericiooptions.IOStreams{ErrOut: io.Discard}, func(string) {})
		if err != nil {
			return
		}
		var snapshot *blocks.Snapshot
		if live, ok := from.(*clusterReader); ok {
			var resources []blocks.Resource
			for _, k := range kinds {
				resources = append(resources, named[k].resource)
			}
			snapshot, _ = live.Reread(ctx, new(blocks.Snapshot), resources)
		} else {
			snapshot, _ = from.Read(ctx)
		}
		read <- snapshot
	}()
	select {
	case snapshot := <-read:
		for _, k := range kinds {
			if snapshot != nil {
				out = append(out, named[k].of(snapshot)...)
			}
		}
	case <-ctx.Done():
	}
	return out
}

// completeNames completes a flag's list of names of a kind, joined by commas, out of
// the source.
func (s *sources) completeNames(c *cobra.Command, flag, kind string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := toComplete[:strings.LastIndex(toComplete, ",")+1]
		return startingWith(toComplete, before, s.names(c.Context(), kind)), cobra.ShellCompDirectiveNoFileComp
	})
}

// startingWith returns the words, after what stands before them, that a text may be
// completed to.
func startingWith(toComplete, before string, words []string) (out []cobra.Completion) {
	for _, w := range words {
		if strings.HasPrefix(before+w, toComplete) {
			out = append(out, before+w)
		}
	}
	return out
}

// completeSubject completes what is to be explained: a check's ID, a kind, or a name,
// of pods and blocks only where what was typed begins as theirs do.
func (x *explainCommand) completeSubject(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if len(args) == 1 && named[args[0]].of != nil {
		return startingWith(toComplete, "", x.sources.names(c.Context(), args[0])), directive
	}
	if len(args) > 0 {
		return nil, directive
	}
	var out []cobra.Completion
	for _, c := range checks.All {
		if strings.HasPrefix(c.ID, toComplete) {
			out = append(out, cobra.CompletionWithDesc(c.ID, c.Title))
		}
	}
	out = append(out, startingWith(toComplete, "", explain.QueryKinds)...)
	kinds := []string{"node", "pool"}
	switch {
	case strings.Contains(toComplete, "/") && len(out) == 0:
		kinds = append(kinds, "pod", "block")
	case strings.ContainsAny(toComplete, ".:"):
		kinds = append(kinds, "block")
	}
	return append(out, startingWith(toComplete, "", x.sources.names(c.Context(), kinds...))...), directive
}

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

// completeIgnore completes a rule.
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
