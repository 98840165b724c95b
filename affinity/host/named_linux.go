package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// addNamed adds the namespaces with a file in one of the directories for named namespaces.
func (s *scan) addNamed() {
	for _, dir := range s.NetnsDirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				s.spaceGap("named network namespaces could not be listed: %v", err)
			}
			continue
		}
		var stale []string
		for _, e := range entries { // sorted by name
			path := filepath.Join(dir, e.Name())
			inode, err := mountedNamespace(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				s.spaceGap("a named network namespace could not be read: %v", err)
			case inode == 0:
				stale = append(stale, path)
			default:
				if sp := s.space(inode); sp.name == "" {
					sp.name, sp.path = e.Name(), path
				}
			}
		}
		if len(stale) > 0 { // not a spaceGap: mounts elsewhere are found through the processes' mounts
			s.gap("%s: no network namespace is mounted there; it may have been removed, or the mount is not propagated to this container", few(stale))
		}
	}
}

// mountedNamespace returns the inode of the namespace mounted on a file; 0 if there is
// none.
func mountedNamespace(path string) (uint64, error) {
	var fsStat unix.Statfs_t
	if err := unix.Statfs(path, &fsStat); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if fsStat.Type != unix.NSFS_MAGIC {
		return 0, nil
	}
	return inodeOf(path)
}

// enterUnheld reads the namespaces without a process: the node's ID for each, and, by
// entering them, their addresses.
func (s *scan) enterUnheld() {
	var denied []string
	for _, inode := range s.sortedKeys() {
		sp := s.spaces[inode]
		if inode == s.own || sp.path == "" || len(sp.processes) > 0 {
			continue
		}
		file, err := sp.open()
		if errors.Is(err, fs.ErrNotExist) && sp.name != "" {
			delete(s.spaces, inode) // it was removed meanwhile
			continue
		}
		if err == nil {
			sp.peerID = s.peerID(file)
			sp.addresses, err = s.addressesWithin(file)
			_ = file.Close()
			if errors.Is(err, fs.ErrPermission) {
				denied = append(denied, sp.label())
				continue
			}
		}
		if err != nil {
			s.spaceGap("the addresses of network namespace %s could not be read: %v", sp.label(), err)
		}
	}
	if len(denied) > 0 {
		s.spaceGap("the addresses of network namespaces that no process holds may not be read (it takes CAP_SYS_ADMIN to enter them): %s", few(denied))
	}
}

// open opens a namespace's file. The error is [fs.ErrNotExist] if the path now leads to
// another namespace or to none.
func (sp *space) open() (*os.File, error) {
	f, err := os.Open(sp.path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err != nil {
		err = &fs.PathError{Op: "stat", Path: sp.path, Err: err}
	} else if st.Ino != sp.inode {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (s *scan) addressesWithin(file *os.File) (addresses []netip.Prefix, err error) {
	onThread(func() {
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("entering it: %w", err)
			return
		}
		k, openErr := openKernel()
		if err = openErr; err != nil {
			return
		}
		defer k.Close()
		var kept bool
		addresses, kept, err = steady(s.ctx, func() ([]netip.Prefix, error) { return listAddresses(k) })
		if err == nil && !kept {
			err = errors.New("they kept changing")
		}
	})
	return addresses, err
}

// onThread runs f on a separate thread, which ends afterwards, so that no other code runs
// in a namespace that f enters.
//
// It never uses the process's first thread. That thread cannot end before the process, and
// /proc/PID shows its namespace as the process's: the program would hold a pod's namespace
// forever and appear in it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // this thread is locked, so the next call gets another
			runtime.UnlockOSThread()
			return
		}
		f()
		// Not unlocked, so the thread ends with the goroutine.
	}()
	<-done
}
