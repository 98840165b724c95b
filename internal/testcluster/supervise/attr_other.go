//go:build unix && !linux

package supervise

import "syscall"

// serverAttr is empty on systems without a parent-death signal. There a server outlives a
// supervisor that is killed by hand.
func serverAttr() *syscall.SysProcAttr { return nil }
