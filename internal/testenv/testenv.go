// Package testenv lets tests declare their requirements of the machine: an operating
// system, root, programs. If the machine lacks a requirement, the test is skipped with a
// message that names it.
//
// A skip must not hide a failure. With CALICO_AUDIT_NO_SKIP=1 in the environment, as in
// continuous integration, a missing requirement fails the test instead. "go test -short"
// always skips tests that need root or other programs. Only tests import this package.
package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// NoSkip is the environment variable that turns skips into failures if its value is "1".
const NoSkip = "CALICO_AUDIT_NO_SKIP"

// Linux skips the test on other systems.
func Linux(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		lack(t, "this test needs Linux; this is %s", runtime.GOOS)
	}
}

// Root skips the test unless it runs as root on Linux, where it can create network
// namespaces, interfaces and routes.
func Root(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: needs root")
	}
	Linux(t)
	if uid := os.Geteuid(); uid != 0 {
		lack(t, "this test needs root, to make network namespaces of its own; it runs as user %d", uid)
	}
}

// Program returns the path of a program, and skips the test if the PATH has no such
// program. debian is the name of its Debian package.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: needs the program %s", name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		lack(t, "this test needs the program %s (on Debian: apt-get install %s): %v", name, debian, err)
	}
	return path
}

func lack(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(NoSkip) == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// NodeModules installs the packages of dir/package-lock.json once in the user's cache
// directory, and returns the directory of the modules. It skips the test if npm is
// missing or cannot fetch a package. It runs no package scripts.
func NodeModules(t testing.TB, dir string) string {
	t.Helper()
	npm := Program(t, "npm", "npm")
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		lack(t, "this test needs a cache directory: %v", err)
	}
	sum := sha256.Sum256(lock)
	at := filepath.Join(cache, "calico-audit", "node-"+hex.EncodeToString(sum[:6]))
	modules := filepath.Join(at, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(at), "node-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := os.CopyFS(fresh, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = fresh
	if out, err := install.CombinedOutput(); err != nil {
		lack(t, "this test needs what %s/package-lock.json names, and npm cannot get it: %v\n%s", dir, err, out)
	}
	// If another process was faster, it has installed the same packages.
	if err := os.Rename(fresh, at); err != nil {
		if _, there := os.Stat(modules); there != nil {
			t.Fatal(err)
		}
	}
	return modules
}
