package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a process with a network namespace.
type process struct {
	pid int
	// dir is the directory in the proc file system of the process, or of a thread if only a thread
	// is left or holds the namespace.
	dir string
	// namespace is the inode of the network namespace.
	namespace uint64
	processStat
}

// listing is the result of listing the processes that were not known before.
type listing struct {
	all    []process
	denied []int
	// ended is true if a process ended before it was read.
	ended bool
}

// processes lists the processes with their network namespaces. It skips known processes,
// and adds all others to known.
func (s *scan) processes(known map[int]bool) (out listing, err error) {
	names, err := readNames(s.ProcRoot)
	if err != nil {
		return out, fmt.Errorf("listing processes: %w", err)
	}
	for i, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || known[pid] {
			continue
		}
		if i%256 == 0 && s.ctx.Err() != nil {
			return out, s.ctx.Err()
		}
		known[pid] = true
		found, err := readProcess(pid, s.ProcRoot+"/"+name)
		switch {
		case err == nil && found.kernel: // in the initial namespace, and irrelevant
		case err == nil:
			out.all = append(out.all, found)
		case errors.Is(err, errZombie):
		case errors.Is(err, fs.ErrPermission):
			out.denied = append(out.denied, pid)
		case ended(err):
			out.ended = true
		default:
			return out, fmt.Errorf("reading process %d: %w", pid, err)
		}
	}
	if len(known) == 0 {
		return out, fmt.Errorf("listing processes: %s shows none: it is not a proc file system", s.ProcRoot)
	}
	slices.Sort(out.denied)
	slices.SortFunc(out.all, func(a, b process) int { return a.pid - b.pid })
	return out, nil
}

// errZombie means that a process has ended and holds nothing anymore.
var errZombie = errors.New("it has ended, and its parent has not waited for it")

// ended reports whether an error means that a process has ended.
func ended(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, errStat)
}

func readProcess(pid int, dir string) (process, error) {
	out := process{pid: pid, dir: dir}
	var err error
	if out.namespace, err = netNamespace(dir); err == nil {
		out.processStat, err = readStat(dir)
		return out, err
	}
	if !errors.Is(err, unix.ENOENT) {
		return out, err
	}
	// If a process's first thread has ended while others live, it appears as a zombie
	// without namespaces. So does a killed process with a thread in uninterruptible sleep.
	stat, statErr := readStat(dir)
	switch {
	case statErr != nil:
		return out, err
	case stat.threads < 2:
		return out, errZombie
	}
	return readThread(pid, dir)
}

// readThread reads a thread of a process whose first thread has ended, preferably one in
// uninterruptible sleep.
func readThread(pid int, dir string) (process, error) {
	names, err := readNames(dir + "/task")
	if err != nil {
		return process{}, err
	}
	slices.Sort(names)
	found, missing := process{}, error(unix.ENOENT)
	for _, name := range names {
		t := process{pid: pid, dir: dir + "/task/" + name}
		if t.namespace, err = netNamespace(t.dir); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				missing = err
			}
			continue
		}
		if t.processStat, err = readStat(t.dir); err != nil {
			continue
		}
		if found.pid == 0 || t.state == "D" && found.state != "D" {
			found = t
		}
	}
	if found.pid == 0 {
		return found, missing
	}
	return found, nil
}

// readNames returns the names in a directory, unsorted.
func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

func netNamespace(dir string) (uint64, error) {
	inode, err := linkedNamespace(dir+"/ns/net", "net:")
	if err == nil && inode == 0 {
		err = fmt.Errorf("%s/ns/net does not lead to a network namespace", dir)
	}
	return inode, err
}

// linkedNamespace returns the inode in a link such as "net:[4026531840]"; 0 if the link is
// of another kind. It does not follow the link: the target may be a file on an unresponsive
// server.
func linkedNamespace(path, kind string) (uint64, error) {
	target, err := os.Readlink(path)
	return namespaceNumber(target, kind), err
}

// namespaceNumber returns the inode in "net:[4026531840]"; 0 if text does not name a namespace of
// that kind.
func namespaceNumber(text, kind string) uint64 {
	inner, ok := strings.CutPrefix(text, kind+"[")
	inner, closed := strings.CutSuffix(inner, "]")
	n, err := strconv.ParseUint(inner, 10, 64)
	if !ok || !closed || err != nil {
		return 0
	}
	return n
}

func readStat(dir string) (processStat, error) {
	text, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return processStat{}, err
	}
	return parseStat(text)
}
