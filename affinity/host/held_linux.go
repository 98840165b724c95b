package host

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What holds a network namespace beside the process whose own it is: single threads
// that have entered it, files that are open on it, and mounts of it, in whatever
// mount namespace. What only a socket holds is not found like this.

// held is what a process holds beside its own network namespace.
type held struct {
	threads []process
	// files leads from the numbers of namespaces to files that open them.
	files map[uint64]string
	// mounts is the number of the process's mount namespace; 0 if it is not known.
	mounts uint64
}

// heldBy reads what a process holds. An error means that it may hold more.
func (s *scan) heldBy(p *procFS, of process) (held, error) {
	out := held{files: map[uint64]string{}}
	// The scan's own threads enter namespaces, and leave them.
	if of.processStat.threads > 1 && of.dir != s.self {
		if err := p.list(of.dir+"/task", func(name string) error {
			t := process{pid: of.pid, dir: of.dir + "/task/" + name, processStat: of.processStat}
			var err error
			if t.namespace, err = p.namespace(t.dir); err != nil {
				return err
			}
			if t.namespace == of.namespace || slices.ContainsFunc(out.threads, func(o process) bool { return o.namespace == t.namespace }) {
				return nil
			}
			out.threads = append(out.threads, t)
			return nil
		}); err != nil {
			return out, err
		}
	}
	err := p.list(of.dir+"/fd", func(name string) error {
		path := of.dir + "/fd/" + name
		inode, err := p.openedBy(path)
		if inode != 0 {
			out.files[inode] = s.ProcRoot + "/" + path
		}
		return err
	})
	if err != nil {
		return out, err
	}
	out.mounts, err = p.link(of.dir+"/ns/mnt", "mnt:")
	return out, err
}

// list calls fn for each name in a directory. What is gone by then is passed over.
func (p *procFS) list(dir string, fn func(name string) error) error {
	f, err := openAt(p.root, dir)
	if err != nil {
		return ignoreGone(err)
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close()
	if err != nil {
		return ignoreGone(err)
	}
	for _, name := range names {
		if err := ignoreGone(fn(name)); err != nil {
			return err
		}
	}
	return nil
}

func ignoreGone(err error) error {
	if err != nil && gone(err) {
		return nil
	}
	return err
}

// link returns the number in a link such as "net:[4026531840]"; 0 if it leads to
// something of another kind. The target is not followed: it may be a file on a server
// that does not answer.
func (p *procFS) link(path, kind string) (uint64, error) {
	n, err := unix.Readlinkat(p.root, path, p.buf)
	if err != nil {
		return 0, &fs.PathError{Op: "readlink", Path: path, Err: err}
	}
	return namespaceNumber(string(p.buf[:n]), kind), nil
}

// openedBy returns the number of the network namespace that an open file is of; 0 if
// it is of anything else.
func (p *procFS) openedBy(path string) (uint64, error) {
	n, err := unix.Readlinkat(p.root, path, p.buf)
	if err != nil {
		return 0, &fs.PathError{Op: "readlink", Path: path, Err: err}
	}
	// One that was opened where the namespace was mounted has that place's name and,
	// once it is unmounted, this one. While it is, the mounts tell of it.
	if string(p.buf[:n]) != "/" {
		return namespaceNumber(string(p.buf[:n]), "net:"), nil
	}
	var of, own unix.Statx_t
	if err := unix.Statx(p.root, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_TYPE, &of); err != nil {
		return 0, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if err := unix.Statx(unix.AT_FDCWD, "/proc/thread-self/ns/net", 0, unix.STATX_INO, &own); err != nil {
		return 0, &fs.PathError{Op: "statx", Path: "/proc/thread-self/ns/net", Err: err}
	}
	if of.Dev_major != own.Dev_major || of.Dev_minor != own.Dev_minor {
		return 0, nil
	}
	f, err := openAt(p.root, path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	if kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return 0, err
	}
	return of.Ino, nil
}

// namespaceNumber returns the number in "net:[4026531840]"; 0 if it is not of the
// kind.
func namespaceNumber(text, kind string) uint64 {
	inner, ok := strings.CutPrefix(text, kind+"[")
	inner, closed := strings.CutSuffix(inner, "]")
	n, valid := decimal([]byte(inner))
	if !ok || !closed || !valid {
		return 0
	}
	return n
}

// mounted calls fn for each network namespace that is mounted where a process sees
// it, with a path that leads there from here.
func (s *scan) mounted(p *procFS, of process, fn func(inode uint64, path string)) error {
	text, err := p.read(of.dir + "/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		// 36 35 0:4 net:[4026532200] /run/netns/x rw shared:1 - nsfs nsfs rw
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if inode := namespaceNumber(fields[3], "net:"); inode != 0 {
			fn(inode, s.ProcRoot+"/"+of.dir+"/root"+unescapeMount(fields[4]))
		}
	}
	return nil
}

// unescapeMount undoes what proc(5) does to spaces and the like in paths: \040.
func unescapeMount(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if n, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// holders reads what processes hold beside their own namespaces. What their threads
// hold is returned as processes; what files and mounts hold is added to the spaces.
func (s *scan) holders(spaces map[uint64]*space, processes []process, mounts map[uint64]bool) []process {
	root, err := os.Open(s.ProcRoot)
	if err != nil {
		s.spaceGap("what processes hold could not be read: %v", err)
		return nil
	}
	defer func() { _ = root.Close() }()
	p := &procFS{root: int(root.Fd()), buf: make([]byte, 4096)}
	add := func(inode uint64, path string) {
		if spaces[inode] == nil {
			spaces[inode] = &space{inode: inode, peerID: peerUnknown}
		}
		if sp := spaces[inode]; sp.path == "" {
			sp.path = path
		}
	}
	var threads []process
	var unread []int
	for _, of := range processes {
		h, err := s.heldBy(p, of)
		threads = append(threads, h.threads...)
		for inode, path := range h.files {
			add(inode, path)
		}
		if err == nil && h.mounts != 0 && !mounts[h.mounts] {
			err = s.mounted(p, of, add)
			mounts[h.mounts] = err == nil
		}
		if err != nil && !gone(err) {
			unread = append(unread, of.pid)
		}
	}
	if len(unread) > 0 {
		s.spaceGap("of %d processes, the open files, threads or mounts of %d could not be read, which may hold network namespaces: %s", len(processes), len(unread), few(unread))
	}
	return threads
}

// initPIDNamespace is the number of the machine's first PID namespace
// (PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h).
const initPIDNamespace = 0xEFFFFFFC

// processesOfMachine says why the processes that are shown may not be all of the
// machine's; empty if nothing speaks against it. A machine may itself be a container,
// with its own processes. What tells it from the container that this runs in is that
// this process is not the first of it, and that a pod's containers share their IPC
// namespace with each other, and not with the node.
func (s *scan) processesOfMachine(p *procFS) string {
	const notShared = "only the processes of this container are shown, and not the node's (hostPID)"
	first, err := p.link("1/ns/pid", "pid:")
	switch {
	case errors.Is(err, unix.ENOENT):
		return "process 1 is not shown: the processes of others may be hidden, or these are not the node's (hostPID)"
	case err != nil || first == initPIDNamespace:
		return "" // one that may not be read is named with the others
	case s.ProcRoot == "/proc" && os.Getpid() == 1:
		return notShared
	}
	ipc, err := p.link("1/ns/ipc", "ipc:")
	var own [64]byte
	n, ownErr := unix.Readlink("/proc/self/ns/ipc", own[:])
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" && (err != nil || ownErr != nil || namespaceNumber(string(own[:n]), "ipc:") == ipc) {
		return notShared
	}
	return ""
}
