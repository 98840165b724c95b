package lab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/internal/testenv"
)

// envLeave makes a copy of the test executable create a namespace with a process in it,
// print both, and wait to be killed.
const envLeave = "CALICO_AUDIT_LAB_LEAVE"

// TestNothingIsLeftBehind checks that a killed test leaves no namespace and no process.
func TestNothingIsLeftBehind(t *testing.T) {
	testenv.Root(t)
	testenv.Program(t, "ip", "iproute2")
	if os.Getenv(envLeave) != "" {
		leave(t)
	}
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run", "^TestNothingIsLeftBehind$")
	cmd.Env = append(os.Environ(), envLeave+"=1")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	var name string
	var pid int
	if _, err := fmt.Sscan(line, &name, &pid); err != nil {
		t.Fatalf("the test that is to be killed says %q: %v", line, err)
	}
	if !exists(Namespace{name}.Path()) || !exists(fmt.Sprint("/proc/", pid)) {
		t.Fatalf("there is no namespace %s, or no process %d in it", name, pid)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for exists(Namespace{name}.Path()) || !ended(pid) {
		select {
		case <-ctx.Done():
			t.Fatalf("the namespace is there: %t, the process has ended: %t", exists(Namespace{name}.Path()), ended(pid))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ended reports whether a process no longer exists or is a zombie.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

func leave(t *testing.T) {
	ns, err := newNamespace(t, "left")
	must(t, err)
	cmd := exec.Command("ip", ns.command([]string{"sh", "-c", "echo; exec sleep 600"})...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	// After its first output, the process is surely inside the namespace.
	_, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	fmt.Println(ns.name, cmd.Process.Pid)
	select {}
}
