package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is a process that holds a network namespace.
type process struct {
	pid int
	// dir is its directory under the proc file system; that of a thread where only
	// a thread of the process is left.
	dir string
	// namespace is the inode number of the network namespace, 0 if unreadable.
	namespace uint64
	processStat
}

// listing is what one listing of the processes gave that were not known before.
type listing struct {
	all    []process
	denied []int
	// ended is true if one ended before it was read.
	ended bool
}

// processes lists the processes with the network namespaces that they hold, less those
// that are known already, and those that may not be looked into. All of them are
// known afterwards.
func (s *scan) processes(ctx context.Context, known map[int]bool) (out listing, err error) {
	root, err := os.Open(s.ProcRoot)
	if err != nil {
		return out, fmt.Errorf("listing processes: %w", err)
	}
	defer func() { _ = root.Close() }()
	names, err := root.Readdirnames(-1)
	if err != nil {
		return out, fmt.Errorf("listing processes: %w", err)
	}
	p := procFS{root: int(root.Fd()), buf: make([]byte, 4096)}
	for i, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || known[pid] {
			continue
		}
		if i%256 == 0 && ctx.Err() != nil {
			return out, ctx.Err()
		}
		known[pid] = true
		found, err := p.process(pid, name)
		switch {
		case err == nil && found.kernel: // they are all in the machine's first namespace, and tell nothing
		case err == nil:
			out.all = append(out.all, found)
		case errors.Is(err, errZombie):
		case errors.Is(err, fs.ErrPermission):
			out.denied = append(out.denied, pid)
		case gone(err):
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

// errZombie means that a process has ended and holds nothing any more.
var errZombie = errors.New("it has ended, and its parent has not taken note")

// gone reports whether an error means that a process ended.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, errStat)
}

// procFS reads small files under a proc file system.
type procFS struct {
	root int
	buf  []byte
}

// process reads one process.
func (p *procFS) process(pid int, dir string) (process, error) {
	out := process{pid: pid, dir: dir}
	var err error
	if out.namespace, err = p.namespace(dir); err == nil {
		out.processStat, err = p.stat(dir)
		return out, err
	}
	if !errors.Is(err, unix.ENOENT) {
		return out, err
	}
	// A process whose first thread has ended is shown as a zombie without
	// namespaces while other threads live on. So does a process look that was killed
	// and one of whose threads sleeps where no signal reaches it.
	stat, statErr := p.stat(dir)
	switch {
	case statErr != nil:
		return out, err
	case stat.threads < 2:
		return out, errZombie
	}
	return p.threads(pid, dir)
}

// threads reads what is left of a process: a thread of it that holds a namespace,
// one that sleeps uninterruptibly if there is any.
func (p *procFS) threads(pid int, dir string) (process, error) {
	f, err := openAt(p.root, dir+"/task")
	if err != nil {
		return process{}, err
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close()
	if err != nil {
		return process{}, err
	}
	slices.Sort(names)
	found, missing := process{}, error(unix.ENOENT)
	for _, name := range names {
		t := process{pid: pid, dir: dir + "/task/" + name}
		if t.namespace, err = p.namespace(t.dir); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				missing = err
			}
			continue
		}
		if t.processStat, err = p.stat(t.dir); err != nil {
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

// namespace returns the inode number of the network namespace of a process, which
// the link ns/net names as "net:[4026531840]".
func (p *procFS) namespace(dir string) (uint64, error) {
	path := dir + "/ns/net"
	n, err := unix.Readlinkat(p.root, path, p.buf)
	if err != nil {
		return 0, &fs.PathError{Op: "readlink", Path: path, Err: err}
	}
	inode := namespaceNumber(string(p.buf[:n]), "net:")
	if inode == 0 {
		return 0, fmt.Errorf("%s leads to %q, which is no network namespace", path, p.buf[:n])
	}
	return inode, nil
}

func (p *procFS) stat(dir string) (processStat, error) {
	text, err := p.read(dir + "/stat")
	if err != nil {
		return processStat{}, err
	}
	return parseStat(text)
}

// read returns a file's content, valid until the next call.
func (p *procFS) read(path string) ([]byte, error) {
	fd, err := unix.Openat(p.root, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	for n := 0; ; {
		if n == len(p.buf) {
			p.buf = append(p.buf, make([]byte, len(p.buf))...)
		}
		m, err := unix.Read(fd, p.buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case m == 0:
			return p.buf[:n], nil
		default:
			n += m
		}
	}
}

func openAt(dir int, path string) (*os.File, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
