package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// envStuck makes a copy of the test executable sleep uninterruptibly (state D) until it
// is killed, like a process whose disk does not answer.
const envStuck = "CALICO_AUDIT_LAB_STUCK"

// wouldNotDie examines the third node's pod, which was deleted by force while its process
// slept uninterruptibly. The API server has no such pod and IPAM counts its addresses as
// free, but its network namespace still has them.
func wouldNotDie(t *testing.T, d *Datastore, l *Lab) {
	ctx := t.Context()
	w, pod := l.Workloads[Third], seeding.SmallStoryPod(Third, 0)
	var err error
	l.Plan, err = d.Read(ctx, l.Topology)
	must(t, err)

	// The script waits for a file. Meanwhile its processes are moved into a container's
	// cgroup.
	self, err := os.Executable()
	must(t, err)
	ready := filepath.Join(t.TempDir(), "ready")
	script := fmt.Sprintf(`nsenter --net=/run/netns/cni-%s env %s=1 %s </dev/null >/dev/null 2>&1 &
until [ -e %s ]; do sleep 0.05; done`, w.name, envStuck, self, ready)
	sandbox := make(chan error, 1)
	var container string
	go func() {
		var err error
		container, err = contain(t, w.Namespace, seeding.ContainerID(seeding.SmallStoryNamespace, pod))
		sandbox <- errors.Join(err, os.WriteFile(ready, nil, 0o644))
	}()
	view, err := l.ViewAfter(ctx, Third, script)
	must(t, err)
	must(t, <-sandbox)

	st := state.New(l.with(view), state.Options{})
	for _, addr := range w.Addrs {
		text := useOf(t, st, addr)
		for _, want := range []string{"cni-" + w.name, "state D", container} {
			if !strings.Contains(text, want) {
				t.Errorf("the finding about %s does not say %q:\n%s", addr, want, text)
			}
		}
	}
	// The borrower's pod is alive.
	for _, addr := range l.Borrowed() {
		if got := severity(st, "ip/host-in-use", addr.String()); got != "none" {
			t.Errorf("the address %s of a live pod is called free: %s", addr, got)
		}
	}
}

// useOf returns the finding about a free address in use, as JSON.
func useOf(t *testing.T, st *state.State, addr netip.Addr) string {
	t.Helper()
	for _, f := range findings(st, "ip/host-in-use") {
		if f.Subject.IP != addr.String() {
			continue
		}
		if f.Severity != state.Critical || f.Subject.Node != Third {
			t.Errorf("the finding about %s is %s, on %s", addr, f.Severity, f.Subject.Node)
		}
		text, err := json.MarshalIndent(f, "", "  ")
		must(t, err)
		return string(text)
	}
	t.Errorf("nothing is found about %s", addr)
	return ""
}

// contain waits for a process in the namespace that sleeps uninterruptibly, and moves it
// into a cgroup as containerd would. It returns the container's ID, or an empty string if
// cgroups cannot be created.
func contain(t *testing.T, ns Namespace, id string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		pid, err := sleeper(ctx, ns)
		if err != nil {
			return "", err
		}
		if pid != 0 {
			err := intoCgroup(t, pid, id)
			if err != nil && os.Getenv(testenv.NoSkip) != "1" {
				t.Logf("the sandbox is not looked at: %v", err)
				return "", nil
			}
			return id, err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no process in state D in %s: %w", ns.name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sleeper returns the PID of an uninterruptibly sleeping process in the namespace, or 0.
func sleeper(ctx context.Context, ns Namespace) (int, error) {
	text, err := output(ctx, "ip", "netns", "pids", ns.name)
	if err != nil {
		return 0, err
	}
	for _, field := range strings.Fields(text) {
		stat, err := os.ReadFile("/proc/" + field + "/stat")
		if err != nil {
			continue
		}
		// pid (command) state …
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "D") {
			return strconv.Atoi(field)
		}
	}
	return 0, nil
}

// intoCgroup moves a process into the cgroup that containerd creates for a pod's
// container. The cgroup is removed when the test ends.
func intoCgroup(t *testing.T, pid int, id string) error {
	var failed error
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		slice := filepath.Join(root, fmt.Sprintf("kubepods-besteffort-pod%08x_0000_4000_8000_000000000000.slice", os.Getpid()))
		scope := filepath.Join(slice, "cri-containerd-"+id+".scope")
		if err := os.MkdirAll(scope, 0o755); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		t.Cleanup(func() {
			for _, dir := range []string{scope, slice} {
				if err := os.Remove(dir); err != nil {
					t.Errorf("a cgroup is left behind: %v", err)
				}
			}
		})
		err := os.WriteFile(filepath.Join(scope, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return fmt.Errorf("no cgroup can be made: %w", failed)
}
