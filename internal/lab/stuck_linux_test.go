package lab

import (
	"os"
	"runtime"
	"syscall"
)

// The state of a process is that of its main thread, and init functions run on it.
// Who calls vfork sleeps uninterruptibly until its child runs another program, which
// this one never does.
func init() {
	if os.Getenv(envStuck) == "" {
		return
	}
	runtime.LockOSThread()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	for pid == 0 && errno == 0 {
		// The child: one thread, with a copy of the memory, in which Go does not run.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	os.Exit(1)
}
