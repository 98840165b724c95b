// Prepare builds the servers and tools that tests use, and generates the CRDs of the
// native API group, in the user's cache directory. It skips existing results. Run it
// before go test, because a first build takes longer than a test's timeout.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := prepare(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}

func prepare(ctx context.Context) error {
	chains, ctx := errgroup.WithContext(ctx)
	for _, chain := range programs.Chains {
		chains.Go(func() error {
			for _, name := range chain {
				path, err := programs.Binary(ctx, name)
				if err != nil {
					return err
				}
				fmt.Println(path)
			}
			return nil
		})
	}
	chains.Go(func() error { return generate(ctx) })
	return chains.Wait()
}

// generate generates the CRDs of both API groups.
func generate(ctx context.Context) error {
	for _, group := range []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3} {
		crds, err := testcluster.CRDs(ctx, group)
		if err != nil {
			return err
		}
		fmt.Printf("%d CRDs of %s\n", len(crds), group)
	}
	return nil
}
