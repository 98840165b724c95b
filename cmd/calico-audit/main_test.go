package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram makes the test binary run as the program itself.
const asProgram = "CALICO_AUDIT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	var errOut bytes.Buffer
	c.Stderr = &errOut
	return c, &errOut
}

// TestClosedPipe: a closed output pipe ("| head") is not an error, and the exit code still
// depends on the findings.
func TestClosedPipe(t *testing.T) {
	story := filepath.Join("..", "..", "examples", "snapshots", "story")
	for _, c := range []struct {
		args []string
		want int
	}{{nil, 0}, {[]string{"--fail-on", "critical"}, 1}} {
		cmd, errOut := program(t, append([]string{"report", "-f", story, "-o", "json"}, c.args...)...)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		cmd.Stdout = w
		err = cmd.Run()
		_ = w.Close()
		if got := cmd.ProcessState.ExitCode(); got != c.want {
			t.Errorf("%v ended with %d, want %d (%v)", c.args, got, c.want, err)
		}
		if strings.Contains(errOut.String(), "pipe") {
			t.Errorf("%v: it complains of the pipe: %s", c.args, errOut)
		}
	}
}

// TestInterrupt: a signal ends the reading of an unresponsive cluster at once, without a
// report.
func TestInterrupt(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cmd, errOut := program(t, "report", "--server", "http://"+silent.Addr().String())
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := silent.Accept() // now the program waits for a response
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	printed, _ := io.ReadAll(stdout)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 3 || errOut.String() != "error: interrupted\n" || len(printed) > 0 {
		t.Errorf("ended with %d, printed %q, said %q; want 3, nothing, that it was interrupted", got, printed, errOut)
	}
}
