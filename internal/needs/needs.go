// Package needs says what a test needs of the machine that it runs on, and skips
// it with a plain sentence where that is lacking.
//
// A skip must not hide a failure: with CALICO_AUDIT_NO_SKIP=1 in the environment,
// as in continuous integration, what is lacking fails the test instead. Only tests
// import this package.
package needs

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// NoSkip is the environment variable that turns skips into failures if it is "1".
const NoSkip = "CALICO_AUDIT_NO_SKIP"

// Linux skips the test on other systems.
func Linux(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		lack(t, "this test needs Linux; this is %s", runtime.GOOS)
	}
}

// Root skips the test unless it runs as root on Linux: it makes network
// namespaces, interfaces and routes of its own.
func Root(t testing.TB) {
	t.Helper()
	Linux(t)
	if uid := os.Geteuid(); uid != 0 {
		lack(t, "this test needs root, to make network namespaces of its own; it runs as user %d", uid)
	}
}

// Program skips the test unless the program is in the PATH, and returns its path.
// debian is the package of Debian that has it.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
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
