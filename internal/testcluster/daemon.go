package testcluster

import (
	"os"
	"testing"
)

// Daemon is a program that runs beside the cluster's servers. Like those it ends with
// the process that started it, however that ends.
type Daemon struct{ server *server }

// PID is the ID of its process; 0 while it does not run.
func (d *Daemon) PID() int { return d.server.pid() }

// Stop kills it. Stopping twice is fine.
func (d *Daemon) Stop() { d.server.stop() }

// Running reports whether it was started and has not ended.
func (d *Daemon) Running() bool { return d.server.running() }

// Log is all that it has logged.
func (d *Daemon) Log() string {
	content, err := os.ReadFile(d.server.logPath)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// end stops it with its test; if that failed, the end of the log is shown.
func (d *Daemon) end(tb testing.TB) {
	d.Stop()
	if tb.Failed() {
		tb.Logf("the log of %s ends with:\n%s", d.server.name, d.server.logTail())
	}
}
