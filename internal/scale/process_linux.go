package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end a program when the one that started it ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
