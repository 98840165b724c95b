package programs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestProgramsHaveTheVersionsOfTheirModules(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds programs")
	}
	t.Setenv(envAssets, "")
	ctx := t.Context()
	for name, arg := range map[string]string{
		"etcd": "--version", "kube-apiserver": "--version", "calicoctl": "version", "confd": "-version",
		"kube-controllers": "-version", "kube-scheduler": "--version", "kube-controller-manager": "--version",
		"calico-apiserver": "--help",
	} {
		path, err := Binary(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		version, err := Version(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		// calicoctl fails because it also asks for the version of a cluster, which does
		// not exist here.
		out, _ := exec.CommandContext(ctx, path, arg).CombinedOutput()
		if !strings.Contains(string(out), strings.TrimPrefix(version, "v")) {
			t.Errorf("%s %s does not tell its version %s, but:\n%s", name, arg, version, out)
		}
	}
	if _, err := Binary(ctx, "nonesuch"); err == nil {
		t.Error("an unknown program is no error")
	}
}

// TestCalicoIsOneRelease checks that calico-audit and Calico's own programs are built
// from the same Calico release, because tests compare them.
func TestCalicoIsOneRelease(t *testing.T) {
	ctx := t.Context()
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, programs := range []string{"binaries/calico", "binaries/cni", "binaries/apiserver"} {
		dir, err := packageDir(programs)
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range []string{calicoModule, apiModule} {
			ours, err := moduleVersion(ctx, root, module)
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := moduleVersion(ctx, dir, module)
			if err != nil {
				t.Fatal(err)
			}
			if ours != theirs {
				t.Errorf("the main module has %s %s, %s %s", module, ours, programs, theirs)
			}
		}
	}
	ours, err := CalicoRelease()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := Version(ctx, "calicoctl")
	if err != nil {
		t.Fatal(err)
	}
	if ours != theirs {
		t.Errorf("the main module is called release %s, calicoctl %s", ours, theirs)
	}
}

func TestOnceMakesOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made")
	var calls atomic.Int32
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			err := once(path, func(tmp string) error {
				calls.Add(1)
				return os.WriteFile(tmp, []byte("x"), 0o644)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("it was made %d times, not once", n)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestFailedMakingLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made")
	err := once(path, func(tmp string) error {
		if err := os.WriteFile(tmp, []byte("half"), 0o644); err != nil {
			return err
		}
		return context.Canceled
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the failure is told as %v", err)
	}
	for _, p := range []string{path, path + ".tmp"} {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s is left over", p)
		}
	}
}
