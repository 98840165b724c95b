package host

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// place adds gaps if the scan does not see the node's own routes or processes, such as in a
// container without hostNetwork or hostPID. It cannot detect every case.
func (s *scan) place() {
	if _, err := os.Stat(s.ProcRoot); err != nil {
		return // listing processes reports it
	}
	if first, err := netNamespace(s.ProcRoot + "/1"); err == nil && first != s.own {
		s.spaceGap("the routes are not those of process 1's network namespace: unless that is intended, the agent needs the host network (hostNetwork)")
	}
	if why := s.processesOfMachine(); why != "" {
		s.spaceGap("%s", why)
	}
}

// initPIDNamespace is the inode of the machine's initial PID namespace (PROC_PID_INIT_INO
// in the kernel's include/linux/proc_ns.h).
const initPIDNamespace = 0xEFFFFFFC

// processesOfMachine explains why the visible processes may not be all of the machine's; "" without
// evidence. A machine may itself be a container with its own PID namespace. Two facts distinguish
// it from this program's own container: this process is not PID 1, and its IPC namespace is not
// that of PID 1. Containers of a pod share an IPC namespace with each other, but not with the node.
func (s *scan) processesOfMachine() string {
	const notShared = "only the processes of this container are visible, not the node's (hostPID)"
	first, err := linkedNamespace(s.ProcRoot+"/1/ns/pid", "pid:")
	switch {
	case errors.Is(err, unix.ENOENT):
		return "process 1 is not visible: processes of other users may be hidden, or these are not the node's (hostPID)"
	case err != nil || first == initPIDNamespace:
		return "" // if it may not be read, processes lists it as denied
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
