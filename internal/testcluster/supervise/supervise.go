// Package supervise runs servers that must not outlive the process that
// started them, however that process ends.
//
// A test process may be killed, may time out, may panic: none of them runs
// deferred functions. So a server is not started directly but through a second
// copy of the running executable, the supervisor, which holds the reading end
// of a pipe. The kernel closes the writing end when the starting process ends,
// for whatever reason, and the supervisor then kills the server and removes its
// files. On Linux the kernel also kills the server should the supervisor die.
//
// The package imports nothing but the standard library: its init function is
// the supervisor's main function and has to run before other packages' init
// functions have cost anything.
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

// envSpec carries a Spec to the supervisor. It being set is what makes a copy
// of the executable a supervisor.
const envSpec = "CALICO_AUDIT_TESTCLUSTER_SUPERVISE"

// Spec says what to run.
type Spec struct {
	// Path is the executable to run, and Args its arguments without the name.
	Path string
	Args []string
	// Env is added to the environment of the starting process.
	Env []string
	// RemoveIfOrphaned is a directory that is removed after the server was
	// killed because the starting process is gone. Empty: nothing is removed.
	RemoveIfOrphaned string
}

// Process is a running server together with its supervisor.
type Process struct {
	pid        int
	supervisor int

	stopOnce sync.Once
	lifeline *os.File
	done     chan struct{}
	exit     string
}

// Start runs a server under a supervisor. Both write their output to log. It
// returns as soon as the server's process exists, ready or not.
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

// PID is the server's process ID, not the supervisor's.
func (p *Process) PID() int { return p.pid }

// SupervisorPID is the process ID of the supervisor.
func (p *Process) SupervisorPID() int { return p.supervisor }

// Done is closed once server and supervisor have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit tells how the server ended, as os.ProcessState prints it. It is empty
// while the server runs, and if it was stopped on purpose.
func (p *Process) Exit() string {
	select {
	case <-p.done:
		return p.exit
	default:
		return ""
	}
}

// Stop kills the server, without leave to clean up, and waits for its end. Its
// files stay. Stopping twice is fine.
func (p *Process) Stop() {
	p.stopOnce.Do(func() {
		_, _ = p.lifeline.Write([]byte{stopOrder})
		p.lifeline.Close()
	})
	<-p.done
}

// stopOrder on the pipe tells the supervisor that the starting process is
// alive and wants the server stopped.
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

// run is the supervisor. An init function runs on the process's main thread,
// which lives as long as the process; that makes the parent-death signal,
// which Linux ties to the thread that forked, reliable here.
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
