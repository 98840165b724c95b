package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
