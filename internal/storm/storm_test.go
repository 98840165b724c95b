package storm

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// EnvStorm is the environment variable with the duration of a storm, such as 10m.
const EnvStorm = "CALICO_AUDIT_STORM"

func length(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(EnvStorm)
	if text == "" {
		return 30 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", EnvStorm, err)
	}
	return d
}

// TestStorm checks that no address in use is harmed while everything, repairs included,
// happens at once. Afterwards repairs must complete and leave no contradictions.
func TestStorm(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := testenv.Seed(t)
	// Most API servers answer lists from the watch cache, but not all.
	c := testcluster.Start(t, testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.KubeVirt}, WatchCache: s%2 == 0})
	w := Storm(t, c, Config{
		Seed: s, For: length(t), Clients: 16, Nodes: 8, Repairs: 3, Grace: 2 * time.Second, Journals: t.TempDir(),
	})
	w.healAll(t)
	if used := len(w.checker.Open()); used == 0 {
		t.Error("nobody uses an address after the storm: it proves nothing")
	}
	if none := w.lacks(); none != "" {
		t.Errorf("these steps were not done once in the storm: %s", none)
	}

	if w.made.get("repair: plan held to the law") == 0 {
		t.Error("no plan was held to the law in the storm")
	}

	must(t, w.Leave(ctx))
	w.healAll(t)
	for _, kind := range []string{"ipamblocks", "blockaffinities", "ipamhandles"} {
		left, err := w.objects(ctx, kind)
		must(t, err)
		if len(left) > 0 {
			t.Errorf("when all nodes and pods are gone, there are %s left: %v", kind, left)
		}
	}
}

// healAll runs repairs without disturbances until there is nothing left to repair, with
// one pod of each node in between, and checks the result.
func (w *World) healAll(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must(t, w.seeder.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	for _, then := range []func(context.Context) error{w.Touch, func(context.Context) error { return nil }} {
		n, err := w.Heal(ctx)
		t.Logf("healed in %d repairs", n)
		must(t, err)
		must(t, then(ctx))
	}
	must(t, w.checker.Check(ctx))
	w.Report()
	wrong, err := w.Inspect(ctx)
	must(t, err)
	for _, f := range wrong {
		t.Errorf("left after the storm was healed: %s", f)
	}
}
