package main

import (
	"bufio"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/internal/testenv"
)

// TestAgentTerminates: the kubelet's signal ends an agent without an error.
func TestAgentTerminates(t *testing.T) {
	testenv.Linux(t)
	cmd, _ := program(t, "agent", "--listen", "127.0.0.1:0")
	cmd.Stderr = nil
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var said strings.Builder
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Listening on") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 0 || strings.Contains(said.String(), "error") {
		t.Errorf("it ended with %d and said:\n%s", got, &said)
	}
}
