// Package supervise runs servers that never outlive the process that started them.
//
// A test process may be killed, time out or panic without running deferred functions. So
// a server is not started directly but through a second copy of the running executable,
// the supervisor, which holds the read end of a pipe. The kernel closes the write end
// when the starting process ends. The supervisor then kills the server and removes its
// files. On Linux the kernel also kills the server if the supervisor dies.
//
// The package imports only the standard library. Its init function is the supervisor's
// main function and must run before the init functions of other packages cost time.
package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// envSpec passes a Spec to the supervisor. If it is set, a copy of the executable acts as
// supervisor.
const envSpec = "CALICO_AUDIT_TESTCLUSTER_SUPERVISE"

// Spec describes a server to run.
type Spec struct {
	// Path is the executable; Args are its arguments without the name.
	Path string
	Args []string
	// Env is added to the environment of the starting process.
	Env []string
	// RemoveIfOrphaned is a directory to remove after the server was killed because the
	// starting process ended. If empty, no directory is removed.
	RemoveIfOrphaned string
}

// Process is a running server with its supervisor.
type Process struct {
	pid        int
	supervisor int

	stopOnce sync.Once
	lifeline *os.File
	done     chan struct{}
	exit     string
}

// Start runs a server under a supervisor. Both write their output to log. Start returns
// as soon as the server's process exists, even if it is not ready yet.
func Start(spec Spec, log *os.File) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the running executable: %w", err)
	}
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encoding what to run: %w", err)
	}
	pipeReader, pipeWriter, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	statusRead, statusWrite, err := os.Pipe()
	if err != nil {
		pipeReader.Close()
		pipeWriter.Close()
		return nil, fmt.Errorf("making a pipe: %w", err)
	}

	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envSpec+"="+string(encoded))
	cmd.Stdin = pipeReader
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{statusWrite}
	cmd.SysProcAttr = supervisorAttr()
	err = cmd.Start()
	pipeReader.Close()
	statusWrite.Close()
	if err != nil {
		pipeWriter.Close()
		statusRead.Close()
		return nil, fmt.Errorf("starting a supervisor for %s: %w", spec.Path, err)
	}

	p := &Process{supervisor: cmd.Process.Pid, lifeline: pipeWriter, done: make(chan struct{})}
	status := bufio.NewReader(statusRead)
	line, err := status.ReadString('\n')
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	go func() {
		rest, _ := io.ReadAll(status)
		statusRead.Close()
		_ = cmd.Wait()
		p.exit = strings.TrimSpace(string(rest))
		close(p.done)
	}()
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("starting %s: %s", spec.Path, strings.TrimSpace(line+" "+p.exit))
	}
	return p, nil
}

// PID returns the server's process ID, not the supervisor's.
func (p *Process) PID() int { return p.pid }

// SupervisorPID returns the supervisor's process ID.
func (p *Process) SupervisorPID() int { return p.supervisor }

// Done returns a channel that is closed after server and supervisor have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit describes how the server ended, in the format of os.ProcessState. It is empty
// while the server runs, and after Stop.
func (p *Process) Exit() string {
	select {
	case <-p.done:
		return p.exit
	default:
		return ""
	}
}

// Stop kills the server without letting it clean up, and waits for its end. Its files
// stay. Stop may be called twice.
func (p *Process) Stop() {
	p.stopOnce.Do(func() {
		_, _ = p.lifeline.Write([]byte{stopOrder})
		p.lifeline.Close()
	})
	<-p.done
}

// stopOrder on the pipe tells the supervisor to stop the server although the starting
// process is alive.
const stopOrder = 'q'

func init() {
	encoded := os.Getenv(envSpec)
	if encoded == "" {
		return
	}
	if err := run(encoded); err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run is the supervisor. It runs in an init function and therefore on the process's main
// thread, which lives as long as the process. This makes the parent-death signal
// reliable, because Linux ties it to the thread that forked.
func run(encoded string) error {
	status := os.NewFile(3, "status")
	if status == nil {
		return errors.New("no file to report to")
	}
	var spec Spec
	if err := json.Unmarshal([]byte(encoded), &spec); err != nil {
		return fmt.Errorf("decoding what to run: %w", err)
	}
	if err := os.Unsetenv(envSpec); err != nil {
		return err
	}
	swallowSignals()

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = serverAttr()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(status, err)
		return err
	}
	fmt.Fprintln(status, cmd.Process.Pid)

	ended := make(chan string, 1)
	go func() {
		_ = cmd.Wait()
		ended <- cmd.ProcessState.String()
	}()
	ordered := make(chan bool, 1)
	go func() {
		order := make([]byte, 1)
		n, _ := os.Stdin.Read(order)
		ordered <- n == 1 && order[0] == stopOrder
	}()

	select {
	case how := <-ended:
		fmt.Fprintln(status, how)
		return nil
	case stop := <-ordered:
		_ = cmd.Process.Kill()
		<-ended
		if !stop && spec.RemoveIfOrphaned != "" {
			return os.RemoveAll(spec.RemoveIfOrphaned)
		}
		return nil
	}
}
