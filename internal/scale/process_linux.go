package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill a program when the process that started it ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
