package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// scan is the state of a running scan.
type scan struct {
	Options
	ctx    context.Context
	kernel *netlink.Handle
	view   *blocks.HostView
	// own is the inode of the scan's network namespace.
	own uint64
	// spaces are the machine's network namespaces by inode.
	spaces    map[uint64]*space
	mountinfo bytes.Buffer
	// incomplete is true if a namespace, or an address in one, may be missing.
	incomplete bool
	// blackholeRule is true if a routing rule itself drops packets.
	blackholeRule bool
}

func (s *scan) gap(format string, args ...any) {
	s.view.Gaps = append(s.view.Gaps, fmt.Sprintf(format, args...))
}

// spaceGap records a gap that may hide a namespace or an address.
func (s *scan) spaceGap(format string, args ...any) {
	s.incomplete = true
	s.gap(format, args...)
}

// space holds the facts about one network namespace.
type space struct {
	inode     uint64
	name      string // its file name in a directory of named namespaces
	path      string // a file that leads to it; may be empty
	processes []process
	addresses []netip.Prefix
	// peerID is the ID of the namespace in the node's own namespace. noPeer means that it
	// has none, so no veth pair leads there; peerUnknown means that it could not be
	// determined.
	peerID int
	// read is true if it was read, or could not be read, through a process.
	read bool
	container
}

// space returns the namespace with an inode, and creates it if necessary.
func (s *scan) space(inode uint64) *space {
	if s.spaces[inode] == nil {
		s.spaces[inode] = &space{inode: inode, peerID: peerUnknown}
	}
	return s.spaces[inode]
}

// label returns the namespace's name, or its inode if it has none.
func (sp *space) label() string { return cmp.Or(sp.name, strconv.FormatUint(sp.inode, 10)) }

func inodeOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ino, nil
}

// openKernel opens a netlink socket in the network namespace of the calling thread.
func openKernel() (*netlink.Handle, error) {
	k, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	if err := k.SetSocketTimeout(kernelTimeout); err != nil {
		k.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return k, nil
}

// steady repeats a listing that changed while it was read. If it always changes, steady
// returns the last one with kept false: entries may be missing.
func steady[T any](ctx context.Context, list func() (T, error)) (all T, kept bool, err error) {
	for range dumpTries {
		all, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, true, err
		}
		if ctx.Err() != nil {
			return all, false, ctx.Err()
		}
	}
	return all, false, nil
}

func few[T any](all []T) string {
	const most = 8
	var out []string
	for _, v := range all[:min(most, len(all))] {
		out = append(out, fmt.Sprint(v))
	}
	text := strings.Join(out, ", ")
	if len(all) > most {
		text += fmt.Sprintf(" and %d more", len(all)-most)
	}
	return text
}

func listAddresses(k *netlink.Handle) ([]netip.Prefix, error) {
	all, err := k.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, a := range all {
		if a.IPNet == nil {
			continue
		}
		addr, ok := netip.AddrFromSlice(a.IP)
		if bits, _ := a.Mask.Size(); ok {
			out = append(out, netip.PrefixFrom(addr.Unmap(), bits))
		}
	}
	return tidyAddresses(out), nil
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

// peerID returns the ID of a namespace in the node's own namespace. It never assigns an ID,
// because that would be a write.
func (s *scan) peerID(ns *os.File) int {
	id, err := s.kernel.GetNetNsIdByFd(int(ns.Fd()))
	switch {
	case err != nil:
		return peerUnknown
	case id < 0:
		return noPeer
	}
	return id
}

// before orders true before false.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (s *scan) sortedKeys() []uint64 { return slices.Sorted(maps.Keys(s.spaces)) }

// texts converts kernel numbers to strings. Equal strings share memory, because a node may
// have very many routes through few gateways.
type texts struct {
	links    map[int]string
	gateways map[netip.Addr]string
}

// dumpTries limits the tries of a listing that changes while it is read. neverSteady is the
// gap if it changed each time.
const (
	dumpTries   = 4
	neverSteady = "the list of %s changed during each of the %d reads: entries may be missing or doubled"
)

// kernelTimeout limits the wait for a kernel response. Responses are immediate; the limit
// keeps a scan from hanging forever.
const kernelTimeout = 10 * time.Second

const (
	noPeer      = -1
	peerUnknown = -2
)
