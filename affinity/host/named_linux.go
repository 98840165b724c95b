package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// addNamed finds the namespaces that have a file in a directory of named ones.
func (s *scan) addNamed(spaces map[uint64]*space) {
	for _, dir := range s.NetnsDirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				s.spaceGap("named network namespaces could not be listed: %v", err)
			}
			continue
		}
		var stale []string
		for _, e := range entries { // in the order of their names
			path := filepath.Join(dir, e.Name())
			inode, err := namedInode(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case errors.Is(err, errNoNamespace):
				stale = append(stale, path)
			case err != nil:
				s.spaceGap("a named network namespace could not be read: %v", err)
			default:
				if spaces[inode] == nil {
					spaces[inode] = &space{inode: inode, peerID: peerUnknown}
				}
				if sp := spaces[inode]; sp.name == "" {
					sp.name, sp.path = e.Name(), path
				}
			}
		}
		if len(stale) > 0 { // not of namespaces: what is mounted anywhere, the processes' mounts tell
			s.gap("%s: no network namespace is mounted there; what was may be gone, or not passed on to where this runs", few(stale))
		}
	}
}

var errNoNamespace = errors.New("it is no network namespace")

// namedInode returns the inode number of the namespace that is mounted on a file.
func namedInode(path string) (uint64, error) {
	var fsStat unix.Statfs_t
	if err := unix.Statfs(path, &fsStat); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if fsStat.Type != unix.NSFS_MAGIC {
		return 0, errNoNamespace
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ino, nil
}

// label is the namespace's name or, where it has none, its number.
func (sp *space) label() string {
	if sp.name != "" {
		return sp.name
	}
	return strconv.FormatUint(sp.inode, 10)
}

// openSpace is a namespace that only a name holds, with its file.
type openSpace struct {
	*space
	file *os.File
}

// enterNamed reads the namespaces that only a name holds: how the node knows them,
// and, by entering them, their addresses.
func (s *scan) enterNamed(ctx context.Context, k *kernel, spaces map[uint64]*space, own uint64) {
	var open []openSpace
	defer func() {
		for _, o := range open {
			_ = o.file.Close()
		}
	}()
	for _, inode := range sortedKeys(spaces) {
		sp := spaces[inode]
		if inode == own || sp.path == "" || len(sp.processes) > 0 {
			continue
		}
		f, err := openNamed(sp)
		switch {
		case err == nil:
			sp.peerID = k.namespaceID(int(f.Fd()))
			open = append(open, openSpace{sp, f})
		case errors.Is(err, fs.ErrNotExist) && sp.name != "":
			delete(spaces, inode) // it was taken down meanwhile
		default:
			s.spaceGap("the addresses of network namespace %s could not be read: %v", sp.label(), err)
		}
	}
	var denied []string
	for _, o := range open {
		addresses, err := enter(ctx, o.file)
		switch {
		case err == nil:
			o.addresses = addresses
		case errors.Is(err, fs.ErrPermission):
			denied = append(denied, o.label())
		default:
			s.spaceGap("the addresses of network namespace %s could not be read: %v", o.label(), err)
		}
	}
	if len(denied) > 0 {
		s.spaceGap("the addresses of network namespaces that no process holds may not be read (it takes CAP_SYS_ADMIN to enter them): %s", few(denied))
	}
}

// openNamed opens a namespace's file. The error is [fs.ErrNotExist] if the name now
// stands for another namespace, or none.
func openNamed(sp *space) (*os.File, error) {
	f, err := os.Open(sp.path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "stat", Path: sp.path, Err: err}
	}
	if st.Ino != sp.inode {
		_ = f.Close()
		return nil, fs.ErrNotExist
	}
	return f, nil
}

// enter lists the addresses of a namespace from within.
func enter(ctx context.Context, file *os.File) (addresses []netip.Prefix, err error) {
	onThread(func() {
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("entering it: %w", err)
			return
		}
		var k *kernel
		if k, err = openKernel(); err != nil {
			return
		}
		defer k.close()
		var kept bool
		kept, err = steady(ctx, func() (err error) {
			addresses, err = k.addresses()
			return err
		})
		if err == nil && !kept {
			err = errors.New("they kept changing")
		}
	})
	return addresses, err
}

// onThread runs f on a thread of its own that ends with it, so that nothing else
// ever runs in a namespace that f enters.
//
// That must not be the process's first thread. It cannot end before the process
// does, and its namespace is the one that /proc/PID shows of the process: the
// program would hold a pod's namespace for ever, and be seen in it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // while this one is taken, it gets another
			runtime.UnlockOSThread()
			return
		}
		f()
		// Never unlocked: the thread ends with the goroutine.
	}()
	<-done
}
