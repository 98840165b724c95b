package testcluster

import (
	"os"
	"testing"
)

// Daemon is a program that runs next to the cluster's servers. Like them, it never outlives the
// process that started it.
type Daemon struct{ server *server }

// PID returns the program's process ID, or 0 while it does not run.
func (d *Daemon) PID() int { return d.server.pid() }

// Stop kills the program. Stop may be called twice.
func (d *Daemon) Stop() { d.server.stop() }

// Running reports whether the program was started and has not ended.
func (d *Daemon) Running() bool { return d.server.running() }

// Log returns its whole log.
func (d *Daemon) Log() string {
	content, err := os.ReadFile(d.server.logPath)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// end stops the program when its test ends. If the test failed, it shows the end of the
// log.
func (d *Daemon) end(tb testing.TB) {
	d.Stop()
	if tb.Failed() {
		tb.Logf("the log of %s ends with:\n%s", d.server.name, d.server.logTail())
	}
}
