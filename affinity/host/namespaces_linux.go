package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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

const (
	noPeer      = -1
	peerUnknown = -2
)

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

// rounds limits the listings of processes. If a process ends before it is read, it may have
// left its namespaces to new processes, which another listing finds.
const rounds = 5

func (s *scan) findSpaces() error {
	s.spaces = map[uint64]*space{}
	own := s.space(s.own)
	known, mounts := map[int]bool{}, map[uint64]bool{}
	var denied []int
	for round := 1; ; round++ {
		listed, err := s.processes(known)
		if err != nil {
			return err
		}
		denied = append(denied, listed.denied...)
		for _, p := range listed.all {
			sp := s.space(p.namespace)
			sp.processes = append(sp.processes, p)
		}
		s.addHolders(listed.all, mounts)
		ended, err := s.readThroughProcesses()
		if err != nil {
			return err
		}
		if !ended && !listed.ended {
			break
		}
		if round == rounds {
			s.spaceGap("processes kept ending while they were read: a network namespace that one of them passed to another may be missing")
			break
		}
	}
	if len(denied) > 0 {
		s.spaceGap("the network namespace of %[2]d of %[1]d processes may not be read (that needs CAP_SYS_PTRACE, and a security profile that allows it): %[3]s", len(known), len(denied), few(denied))
	}
	s.addNamed()
	for inode, sp := range s.spaces {
		if sp != own && len(sp.processes) == 0 && sp.path == "" {
			delete(s.spaces, inode) // all of its processes have ended
		}
	}
	addresses, kept, err := steady(s.ctx, func() ([]netip.Prefix, error) { return listAddresses(s.kernel) })
	if err != nil {
		return fmt.Errorf("listing the node's addresses: %w", err)
	}
	if own.addresses = addresses; !kept {
		s.spaceGap(neverSteady, "the node's addresses", dumpTries)
	}
	s.enterUnheld()
	return nil
}

// readThroughProcesses reads the unread namespaces that have processes. ended is true if all
// processes of a namespace ended before they were read.
func (s *scan) readThroughProcesses() (ended bool, err error) {
	for _, inode := range s.sortedKeys() {
		if err := s.ctx.Err(); err != nil {
			return false, err
		}
		sp := s.spaces[inode]
		if inode == s.own || sp.read || len(sp.processes) == 0 {
			continue
		}
		if sp.read = s.readSpace(sp); !sp.read {
			ended, sp.processes = true, nil // a name or another process may still hold it
		}
	}
	return ended, nil
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

// readSpace reads a namespace through one of its processes. It returns false if all of them
// have ended.
func (s *scan) readSpace(sp *space) bool {
	var unreadable error
	for _, p := range sp.processes {
		err := sp.through(p, func(dir string) error { return s.readThrough(sp, dir) })
		if err == nil {
			sp.identify()
			return true
		}
		if !ended(err) {
			unreadable = err
		}
	}
	if unreadable != nil {
		s.spaceGap("the addresses of network namespace %d (process %d, %s) could not be read: %v", sp.inode, sp.processes[0].pid, sp.processes[0].comm, unreadable)
	}
	return unreadable != nil
}

// through calls f with a path to a process's directory. The directory stays open during the
// call, so that another process with the same PID cannot take its place.
func (sp *space) through(p process, f func(dir string) error) error {
	open, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	defer func() { _ = open.Close() }()
	dir := fmt.Sprintf("/proc/self/fd/%d", open.Fd())
	inode, err := netNamespace(dir)
	if err == nil && inode != sp.inode {
		err = unix.ENOENT
	}
	if err == nil {
		err = f(dir)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		e.Path = p.dir + strings.TrimPrefix(e.Path, dir)
	}
	return err
}

func (s *scan) readThrough(sp *space, dir string) error {
	trie, err := os.ReadFile(dir + "/net/fib_trie")
	if err != nil {
		return err
	}
	inet6, err := os.ReadFile(dir + "/net/if_inet6")
	if errors.Is(err, unix.ENOENT) {
		if _, missing := os.Stat("/proc/thread-self/net/if_inet6"); missing != nil {
			err = nil // the kernel has no IPv6
		}
	}
	if err != nil {
		return err
	}
	ns, err := os.Open(dir + "/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	sp.addresses = append(parseFibTrie(trie), parseIfInet6(inet6)...)
	sp.peerID = s.peerID(ns)
	return nil
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

// identify determines the container of the namespace's oldest process. In a pod that is
// usually the sandbox, which starts first. The result is wrong if the sandbox's process has
// died before the others.
func (sp *space) identify() {
	byAge := slices.SortedFunc(slices.Values(sp.processes), func(a, b process) int {
		return cmp.Or(cmp.Compare(a.started, b.started), cmp.Compare(a.pid, b.pid))
	})
	for _, p := range byAge {
		err := sp.through(p, func(dir string) error {
			text, err := os.ReadFile(dir + "/cgroup")
			if err == nil {
				sp.container = parseCgroup(text)
			}
			return err
		})
		if err == nil {
			return
		}
	}
}
