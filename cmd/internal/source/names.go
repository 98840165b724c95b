package source

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
)

// completionTime limits the wait for names during shell completion.
const completionTime = 3 * time.Second

// named holds the resource and the names for completion, by kind.
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
	"secondary pool": {blocks.WhereaboutsPools, func(s *blocks.Snapshot) []string {
		return namesOf(s.WhereaboutsPools, func(p *blocks.WhereaboutsPool) string { return p.Key().String() })
	}},
	"block": {blocks.Blocks, func(s *blocks.Snapshot) []string {
		return namesOf(s.Blocks, func(b *blocks.Block) string { return b.CIDR.String() })
	}},
	"pod": {blocks.Pods, func(s *blocks.Snapshot) []string {
		return namesOf(s.Workloads, func(w **blocks.Workload) string { return (*w).FullName() })
	}},
	"handle": {blocks.Handles, func(s *blocks.Snapshot) []string {
		return namesOf(s.Handles, func(h **blocks.Handle) string { return (*h).ID })
	}},
}

func namesOf[T any](list []T, name func(*T) string) (out []string) {
	for i := range list {
		out = append(out, name(&list[i]))
	}
	return out
}

// Names returns the names of the given kinds in the source: node, pool, secondary pool, block, pod
// or handle. It returns none for unknown kinds, and none if reading fails or takes too long.
func (f *Flags) Names(ctx context.Context, kinds ...string) (out []string) {
	unnamed := func(kind string) bool { return named[kind].of == nil }
	if slices.Contains(f.Files, "-") || slices.ContainsFunc(kinds, unnamed) {
		return nil // only the command itself may read standard input
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	read := make(chan *blocks.Snapshot, 1)
	go func() {
		defer close(read)
		from, err := f.Open(genericiooptions.IOStreams{ErrOut: io.Discard}, func(string) {})
		if err != nil {
			return
		}
		var snapshot *blocks.Snapshot
		if live, ok := from.(*Cluster); ok {
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

// CompleteNames completes a flag's comma-separated names of the given kinds.
func (f *Flags) CompleteNames(c *cobra.Command, flag string, kinds ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := toComplete[:strings.LastIndex(toComplete, ",")+1]
		return flags.StartingWith(toComplete, before, f.Names(c.Context(), kinds...)), cobra.ShellCompDirectiveNoFileComp
	})
}
