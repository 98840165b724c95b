//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"
)

// supervisorAttr gives the supervisor its own process group. An interrupt from the
// terminal then reaches only the test, which decides what to stop.
func supervisorAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// swallowSignals keeps common signals from ending the supervisor before the process that
// started it. The signals are caught, because the server would inherit ignored signals.
func swallowSignals() {
	signal.Notify(make(chan os.Signal, 8), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}
