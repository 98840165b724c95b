package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func startShell(t *testing.T, script string) (*Process, *os.File) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	p, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", script}}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p, log
}

func ended(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestStopEndsServerAndSupervisor(t *testing.T) {
	p, _ := startShell(t, "trap '' TERM INT; while :; do sleep 1; done")
	p.Stop()
	if !ended(p.PID()) || !ended(p.SupervisorPID()) {
		t.Error("server or supervisor is still there")
	}
	if p.Exit() != "" {
		t.Errorf("a server that was stopped on purpose ended with %q", p.Exit())
	}
}

func TestEndOfServerIsTold(t *testing.T) {
	p, log := startShell(t, "echo about to fail; exit 7")
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("nobody tells that the server ended")
	}
	if p.Exit() != "exit status 7" {
		t.Errorf("the server ended with %q, not exit status 7", p.Exit())
	}
	if out, err := os.ReadFile(log.Name()); err != nil || string(out) != "about to fail\n" {
		t.Errorf("its log is %q (%v)", out, err)
	}
}

func TestMissingExecutableIsAnError(t *testing.T) {
	_, err := Start(Spec{Path: "/nonexistent/server"}, os.Stderr)
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/server") {
		t.Errorf("a missing executable gives %v", err)
	}
}

func TestServerEndsWithItsSupervisor(t *testing.T) {
	if serverAttr() == nil {
		t.Skip("this system has no parent-death signal")
	}
	p, _ := startShell(t, "exec sleep 600")
	if err := syscall.Kill(p.SupervisorPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !ended(p.PID()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server outlives its supervisor")
		}
	}
}

func TestUsualSignalsDoNotEndTheSupervisor(t *testing.T) {
	p, _ := startShell(t, "exec sleep 600")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := syscall.Kill(p.SupervisorPID(), signal); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond)
	if err := fmt.Sprint(syscall.Kill(p.PID(), 0)); err != "<nil>" {
		t.Errorf("the server is gone: %s", err)
	}
}
