//go:build unix && !linux

package supervise

import "syscall"

// serverAttr has nothing to add where no parent-death signal exists: a server
// outlives a supervisor that somebody kills by hand.
func serverAttr() *syscall.SysProcAttr { return nil }
