package host

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// place notes when this runs where the node's routes or processes are not seen,
// which is easily so in a container. It cannot tell in every case.
func (s *scan) place() {
	if _, err := os.Stat(s.ProcRoot); err != nil {
		return // listing processes will say it
	}
	if first, err := netNamespace(s.ProcRoot + "/1"); err == nil && first != s.own {
		s.spaceGap("the routes are those of another network namespace than that of process 1: unless that is meant, they are not the node's (hostNetwork)")
	}
	if why := s.processesOfMachine(); why != "" {
		s.spaceGap("%s", why)
	}
}

// initPIDNamespace is the number of the machine's first PID namespace
// (PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h).
const initPIDNamespace = 0xEFFFFFFC

// processesOfMachine says why the processes that are shown may not be all of the
// machine's; empty if nothing speaks against it. A machine may itself be a container,
// with its own processes. What tells it from the container that this runs in is that
// this process is not the first of it, and that a pod's containers share their IPC
// namespace with each other, and not with the node.
func (s *scan) processesOfMachine() string {
	const notShared = "only the processes of this container are shown, and not the node's (hostPID)"
	first, err := linkedNamespace(s.ProcRoot+"/1/ns/pid", "pid:")
	switch {
	case errors.Is(err, unix.ENOENT):
		return "process 1 is not shown: the processes of others may be hidden, or these are not the node's (hostPID)"
	case err != nil || first == initPIDNamespace:
		return "" // one that may not be read is named with the others
	case s.ProcRoot == "/proc" && os.Getpid() == 1:
		return notShared
	}
	ipc, err := linkedNamespace(s.ProcRoot+"/1/ns/ipc", "ipc:")
	own, ownErr := linkedNamespace("/proc/self/ns/ipc", "ipc:")
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" && (err != nil || ownErr != nil || own == ipc) {
		return notShared
	}
	return ""
}
