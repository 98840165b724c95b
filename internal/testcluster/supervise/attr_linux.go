package supervise

import "syscall"

// serverAttr makes the kernel kill the server when its supervisor dies.
func serverAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
