package lab

import (
	"os"
	"runtime"
	"syscall"
)

// The state of a process is the state of its main thread, and init functions run on the
// main thread. A caller of vfork sleeps uninterruptibly until its child executes another
// program. This child never does.
func init() {
	if os.Getenv(envStuck) == "" {
		return
	}
	runtime.LockOSThread()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	for pid == 0 && errno == 0 {
		// The child has one thread and a copy of the memory. Go does not run in it.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	os.Exit(1)
}
