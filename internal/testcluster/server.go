package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/internal/testcluster/supervise"
)

// server is etcd, the API server or another daemon. A restart keeps its arguments, and therefore
// its port and data.
type server struct {
	name    string
	spec    supervise.Spec
	logPath string
	// ready returns nil if the server is ready.
	ready func(context.Context) error

	mu      sync.Mutex
	process *supervise.Process
}

// start runs the server and waits until it is ready. The error wraps errPortTaken if the
// server ended because its port was taken.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		select {
		case <-s.process.Done():
			s.process = nil
		default:
			return fmt.Errorf("%s is running already", s.name)
		}
	}
	log, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	defer log.Close()
	process, err := supervise.Start(s.spec, log)
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	if err := s.await(ctx, process); err != nil {
		process.Stop()
		return fmt.Errorf("starting %s: %w\nits log ends with:\n%s", s.name, err, s.logTail())
	}
	s.process = process
	return nil
}

// await polls until the server is ready, has ended, or the context is done.
func (s *server) await(ctx context.Context, process *supervise.Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		if last = s.ready(ctx); last == nil {
			return nil
		}
		select {
		case <-process.Done():
			if bytes.Contains(s.logTail(), []byte("address already in use")) {
				return errPortTaken
			}
			return fmt.Errorf("it ended: %s", process.Exit())
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", errors.Join(ctx.Err(), last))
		case <-poll.C:
		}
	}
}

// readyTimeout is how long a server may take until it is ready. An idle machine needs
// seconds, but tests of several packages run in parallel.
const readyTimeout = 2 * time.Minute

// stop kills the server; its data stays. Stopping a stopped server has no effect.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.Stop()
		s.process = nil
	}
}

// running reports whether the server was started and has not ended.
func (s *server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return false
	}
	select {
	case <-s.process.Done():
		return false
	default:
		return true
	}
}

// pid returns the server's process ID, or 0 if the server was not started or was stopped.
func (s *server) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.PID()
}

// setArg replaces the value of an argument, effective at the next start. It reports
// whether the value changed.
func (s *server) setArg(prefix, value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, arg := range s.spec.Args {
		if old, ok := strings.CutPrefix(arg, prefix); ok && old != value {
			s.spec.Args[i] = prefix + value
			return true
		}
	}
	return false
}

// logTail returns the end of the server's log. It omits routine messages of the API
// server and messages of its etcd clients about connections that it no longer needs.
func (s *server) logTail() []byte {
	content, err := os.ReadFile(s.logPath)
	if err != nil {
		return []byte(err.Error())
	}
	var lines []byte
	for line := range bytes.Lines(content) {
		if !boringLine.Match(line) {
			lines = append(lines, line...)
		}
	}
	return lines[max(0, len(lines)-3000):]
}

var boringLine = regexp.MustCompile(`^I\d{4} |grpc: addrConn.createTransport failed`)
