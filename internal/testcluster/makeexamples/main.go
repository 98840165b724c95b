// Makeexamples regenerates examples/snapshots. It starts clusters, creates the scenarios'
// states with Calico's own IPAM, and dumps the objects that an audit reads. Arguments
// name the examples to make; the default is all. The story also gets host views. The
// argument "hostviews" makes only these, from the existing dump.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

type example struct {
	name  string
	group testcluster.Group
	play  func(context.Context, *testcluster.Cluster) error
}

var examples = []example{
	{"story-before", testcluster.CRDv1, seeding.StoryBefore},
	{"story", testcluster.CRDv1, seeding.Story},
	{"story-drained", testcluster.CRDv1, seeding.StoryDrained},
	{"healthy", testcluster.CRDv1, seeding.Healthy},
	{"dual-stack", testcluster.CRDv1, seeding.DualStack},
	{"native", testcluster.NativeV3, seeding.Native},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "makeexamples:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	root, err := programs.ModuleRoot()
	if err != nil {
		return err
	}
	if slices.Equal(names, []string{"hostviews"}) {
		return storyViews(root)
	}
	for _, name := range names {
		if !slices.ContainsFunc(examples, func(e example) bool { return e.name == name }) {
			return fmt.Errorf("no such example: %q", name)
		}
	}
	for _, e := range examples {
		if len(names) > 0 && !slices.Contains(names, e.name) {
			continue
		}
		dir := filepath.Join(root, "examples", "snapshots", e.name)
		if err := makeExample(ctx, e, dir); err != nil {
			return fmt.Errorf("making example %s: %w", e.name, err)
		}
		if e.name == "story" {
			if err := storyViews(root); err != nil {
				return err
			}
		}
		fmt.Println(dir)
	}
	return nil
}

// storyViews makes the host views of the story's dump.
func storyViews(root string) error {
	if err := makeHostViews(filepath.Join(root, "examples", "snapshots", "story"), filepath.Join(root, "examples", "hostviews", "story")); err != nil {
		return fmt.Errorf("making host views of the story: %w", err)
	}
	return nil
}

// makeExample replaces a directory after the example is complete.
func makeExample(ctx context.Context, e example, dir string) error {
	c, err := testcluster.New(ctx, testcluster.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := e.play(ctx, c); err != nil {
		return err
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := c.Dump(ctx, tmp, e.group); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}
