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

// This file finds network namespaces outside the processes' own: those held by threads that
// have entered them, by open files, or by mounts in any mount namespace. Namespaces that
// only a socket holds are not found.

// addHolders adds the namespaces that processes hold besides their own. It records the
// mount namespaces read in mounts, and skips those already there.
func (s *scan) addHolders(processes []process, mounts map[uint64]bool) {
	// Skip this process: its threads enter namespaces and leave them.
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
		s.spaceGap("the open files, threads or mounts of %[2]d of %[1]d processes could not be read; they may hold network namespaces: %[3]s", len(processes), len(unread), few(unread))
	}
}

// eachName calls f for each name in a directory, and ignores entries that have vanished.
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

// addMounted adds the namespaces mounted in a process's mount namespace, with paths that
// are reachable from here.
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
	s.mountinfo.Reset() // reuses the buffer, because each pod may have a large file
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

// openedNamespace returns the inode of the network namespace behind an open file; 0 for
// other files.
func openedNamespace(path string) (uint64, error) {
	target, err := os.Readlink(path)
	// A file opened at a mount of the namespace has that path as its name, and "/" after it
	// is unmounted. While it is mounted, addMounted finds it.
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

// unescapeMount decodes the octal escapes of proc(5) in paths, such as \040 for a space.
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
