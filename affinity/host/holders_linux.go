package host

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What holds a network namespace beside the process whose own it is: single threads
// that have entered it, files that are open on it, and mounts of it, in whatever
// mount namespace. What only a socket holds is not found like this.

// addHolders adds the namespaces that processes hold beside their own. Mount
// namespaces that were read are noted in mounts, and not read again.
func (s *scan) addHolders(processes []process, mounts map[uint64]bool) {
	// The scan's own threads enter namespaces, and leave them.
	self, _ := os.Readlink(s.ProcRoot + "/self")
	var unread []int
	for _, p := range processes {
		var err error
		if p.threads > 1 && p.dir != s.ProcRoot+"/"+self {
			err = s.addThreads(p)
		}
		if err == nil {
			err = s.addOpened(p)
		}
		if err == nil {
			err = s.addMounted(p, mounts)
		}
		if err != nil && !ended(err) {
			unread = append(unread, p.pid)
		}
	}
	if len(unread) > 0 {
		s.spaceGap("of %d processes, the open files, threads or mounts of %d could not be read, which may hold network namespaces: %s", len(processes), len(unread), few(unread))
	}
}

// eachName calls f for each name in a directory. What is gone by then is passed over.
func eachName(dir string, f func(path string) error) error {
	names, err := readNames(dir)
	for i := 0; err == nil && i < len(names); i++ {
		if err = f(dir + "/" + names[i]); err != nil && ended(err) {
			err = nil
		}
	}
	if err != nil && ended(err) {
		return nil
	}
	return err
}

func (s *scan) addThreads(p process) error {
	seen := []uint64{p.namespace}
	return eachName(p.dir+"/task", func(dir string) error {
		inode, err := netNamespace(dir)
		if err == nil && !slices.Contains(seen, inode) {
			seen = append(seen, inode)
			sp := s.space(inode)
			sp.processes = append(sp.processes, process{pid: p.pid, dir: dir, processStat: p.processStat, namespace: inode})
		}
		return err
	})
}

func (s *scan) addOpened(p process) error {
	return eachName(p.dir+"/fd", func(path string) error {
		inode, err := openedNamespace(path)
		if err == nil && inode != 0 {
			sp := s.space(inode)
			sp.path = cmp.Or(sp.path, path)
		}
		return err
	})
}

// addMounted adds the namespaces that are mounted where a process sees it, with paths
// that lead there from here.
func (s *scan) addMounted(p process, mounts map[uint64]bool) error {
	seenFrom, err := linkedNamespace(p.dir+"/ns/mnt", "mnt:")
	if err != nil || seenFrom == 0 || mounts[seenFrom] {
		return err
	}
	f, err := os.Open(p.dir + "/mountinfo")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	s.mountinfo.Reset() // the buffer is kept, as there may be a large file for each pod
	if _, err := s.mountinfo.ReadFrom(f); err != nil {
		return err
	}
	for line := range bytes.Lines(s.mountinfo.Bytes()) {
		if !bytes.Contains(line, []byte(" net:[")) {
			continue
		}
		// 36 35 0:4 net:[4026532200] /run/netns/x rw shared:1 - nsfs nsfs rw
		if fields := strings.Fields(string(line)); len(fields) > 4 {
			if inode := namespaceNumber(fields[3], "net:"); inode != 0 {
				if sp := s.space(inode); sp.path == "" {
					sp.path = p.dir + "/root" + unescapeMount(fields[4])
				}
			}
		}
	}
	mounts[seenFrom] = true
	return nil
}

// openedNamespace returns the number of the network namespace that an open file is of;
// 0 if it is of anything else.
func openedNamespace(path string) (uint64, error) {
	target, err := os.Readlink(path)
	// One that was opened where the namespace was mounted has that place's name and,
	// once it is unmounted, this one. While it is, the mounts tell of it.
	if err != nil || target != "/" {
		return namespaceNumber(target, "net:"), err
	}
	var of, own unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_TYPE, &of); err != nil {
		return 0, os.NewSyscallError("statx", err)
	}
	if err := unix.Statx(unix.AT_FDCWD, "/proc/thread-self/ns/net", 0, unix.STATX_INO, &own); err != nil {
		return 0, os.NewSyscallError("statx", err)
	}
	if of.Dev_major != own.Dev_major || of.Dev_minor != own.Dev_minor {
		return 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	if kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return 0, err
	}
	return of.Ino, nil
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
