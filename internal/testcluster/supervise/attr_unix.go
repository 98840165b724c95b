//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"
)

// supervisorAttr puts the supervisor into a process group of its own, so that
// an interrupt typed at the terminal reaches the test alone, which then decides.
func supervisorAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// swallowSignals keeps the usual signals from ending the supervisor before the
// process that it works for. They are caught and not ignored, because ignoring
// would be inherited by the server.
func swallowSignals() {
	signal.Notify(make(chan os.Signal, 8), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}
