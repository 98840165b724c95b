package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// space is one network namespace and what is known of it.
type space struct {
	inode     uint64
	name      string // its file in a directory of named namespaces, without the directory
	path      string
	processes []process // by pid
	addresses []netip.Prefix
	// peerID is the number under which the node's own namespace knows it, noPeer if
	// it does not, so that no veth pair leads there, peerUnknown if it was not told.
	peerID int
	// read is true once it was read through a process, or could not be.
	read bool
	container
}

const (
	noPeer      = -1
	peerUnknown = -2
)

// ownNamespace returns the inode number of the calling thread's network namespace.
func ownNamespace() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: "/proc/thread-self/ns/net", Err: err}
	}
	return st.Ino, nil
}

// place notes when this runs where the node's routes or processes are not seen,
// which is easily so in a container. It cannot tell in every case.
func (s *scan) place(own uint64) {
	root, err := os.Open(s.ProcRoot)
	if err != nil {
		return // listing processes will say it
	}
	defer func() { _ = root.Close() }()
	p := procFS{root: int(root.Fd()), buf: make([]byte, 4096)}
	if first, err := p.namespace("1"); err == nil && first != own {
		s.spaceGap("the routes are those of another network namespace than that of process 1: unless that is meant, they are not the node's (hostNetwork)")
	}
	if why := s.processesOfMachine(&p); why != "" {
		s.spaceGap("%s", why)
	}
}

// rounds is how often processes are listed because some ended before they were read:
// they may have left what they held to others, which were not there before.
const rounds = 5

// spaces reads the machine's network namespaces, by inode number.
func (s *scan) spaces(ctx context.Context, k *kernel, own uint64) (map[uint64]*space, error) {
	spaces := map[uint64]*space{own: {inode: own, peerID: peerUnknown}}
	known, mounts := map[int]bool{}, map[uint64]bool{}
	var denied []int
	for round := 1; ; round++ {
		listed, err := s.processes(ctx, known)
		if err != nil {
			return nil, err
		}
		denied = append(denied, listed.denied...)
		for _, p := range append(listed.all, s.holders(spaces, listed.all, mounts)...) {
			if spaces[p.namespace] == nil {
				spaces[p.namespace] = &space{inode: p.namespace, peerID: peerUnknown}
			}
			spaces[p.namespace].processes = append(spaces[p.namespace].processes, p)
		}
		ended, err := s.lookAll(ctx, k, spaces, own)
		if err != nil {
			return nil, err
		}
		if ended = ended || listed.ended; !ended {
			break
		}
		if round == rounds {
			s.spaceGap("processes kept ending while they were read: a network namespace that one of them left to another may be missing")
			break
		}
	}
	if len(denied) > 0 {
		s.spaceGap("of %d processes, %d may not be asked for their network namespace (it takes CAP_SYS_PTRACE, and a security profile that does not forbid it): %s", len(known), len(denied), few(denied))
	}
	s.addNamed(spaces)
	for inode, sp := range spaces {
		if inode != own && len(sp.processes) == 0 && sp.path == "" {
			delete(spaces, inode) // all its processes have ended
		}
	}
	if err := s.own(ctx, k, spaces[own]); err != nil {
		return nil, err
	}
	s.enterNamed(ctx, k, spaces, own)
	return spaces, nil
}

// lookAll reads the namespaces that have processes and were not read yet, and returns
// true if all processes of one have ended meanwhile.
func (s *scan) lookAll(ctx context.Context, k *kernel, spaces map[uint64]*space, own uint64) (ended bool, err error) {
	for _, inode := range sortedKeys(spaces) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		sp := spaces[inode]
		if inode == own || sp.read || len(sp.processes) == 0 {
			continue
		}
		if sp.read = s.look(k, sp); !sp.read {
			ended, sp.processes = true, nil // a name or another process may hold it still
		}
	}
	return ended, nil
}

// own reads the addresses of the node's own namespace.
func (s *scan) own(ctx context.Context, k *kernel, sp *space) error {
	kept, err := steady(ctx, func() (err error) {
		sp.addresses, err = k.addresses()
		return err
	})
	if err != nil {
		return fmt.Errorf("listing the node's addresses: %w", err)
	}
	s.spaceGapUnless(kept, "the node's addresses")
	return nil
}

// addresses lists the addresses of a kernel's namespace.
func (k *kernel) addresses() ([]netip.Prefix, error) {
	all, err := k.handle.AddrList(nil, netlink.FAMILY_ALL)
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
			addr = addr.Unmap()
			out = append(out, netip.PrefixFrom(addr, bits))
		}
	}
	return tidyAddresses(out), nil
}

// look reads through one of its processes what a namespace has, and returns false
// if all of them have ended.
func (s *scan) look(k *kernel, sp *space) bool {
	var unreadable error
	seen := false
	for _, p := range sp.processes {
		err := s.lookThrough(k, sp, p)
		if err == nil {
			seen, unreadable = true, nil
			break
		}
		if !gone(err) {
			unreadable = err
		}
	}
	if unreadable != nil {
		s.spaceGap("the addresses of network namespace %d (process %d, %s) could not be read: %v", sp.inode, sp.processes[0].pid, sp.processes[0].comm, unreadable)
		return true
	}
	if seen {
		s.identify(sp)
	}
	return seen
}

// lookThrough reads a namespace through a process. The process's directory is kept
// open meanwhile, so that another process that gets its number is not mistaken for
// it.
func (s *scan) lookThrough(k *kernel, sp *space, p process) error {
	dir, err := os.Open(s.ProcRoot + "/" + p.dir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	proc := procFS{root: int(dir.Fd()), buf: make([]byte, 4096)}
	if inode, err := proc.namespace("."); err != nil || inode != sp.inode {
		return cmp.Or(err, error(unix.ENOENT))
	}
	trie, err := proc.read("net/fib_trie")
	if err != nil {
		return err
	}
	addresses := parseFibTrie(trie)
	inet6, err := proc.read("net/if_inet6")
	switch {
	case err == nil:
		addresses = append(addresses, parseIfInet6(inet6)...)
	case errors.Is(err, unix.ENOENT) && !s.haveIPv6(): // a kernel without IPv6
	default:
		return err
	}
	ns, err := openAt(proc.root, "ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	sp.addresses = addresses
	sp.peerID = k.namespaceID(int(ns.Fd()))
	return nil
}

// haveIPv6 reports whether the kernel knows IPv6.
func (s *scan) haveIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil
}

// namespaceID returns the number under which the kernel's own namespace knows
// another. Numbers are never given here: that would be a write.
func (k *kernel) namespaceID(fd int) int {
	id, err := k.handle.GetNetNsIdByFd(fd)
	switch {
	case err != nil:
		return peerUnknown
	case id < 0:
		return noPeer
	}
	return id
}

// identify finds the container of the namespace's oldest process. In a pod that is
// the sandbox's, which starts before the others; it is an inference, and wrong
// where the sandbox's process has died before the others.
func (s *scan) identify(sp *space) {
	byAge := slices.SortedFunc(slices.Values(sp.processes), func(a, b process) int {
		return cmp.Or(cmp.Compare(a.started, b.started), cmp.Compare(a.pid, b.pid))
	})
	for _, p := range byAge {
		dir, err := os.Open(s.ProcRoot + "/" + p.dir)
		if err != nil {
			continue
		}
		proc := procFS{root: int(dir.Fd()), buf: make([]byte, 4096)}
		inode, nsErr := proc.namespace(".")
		text, err := proc.read("cgroup")
		_ = dir.Close()
		if nsErr == nil && err == nil && inode == sp.inode {
			sp.container = parseCgroup(text)
			return
		}
	}
}

func sortedKeys(spaces map[uint64]*space) []uint64 {
	out := make([]uint64, 0, len(spaces))
	for inode := range spaces {
		out = append(out, inode)
	}
	slices.Sort(out)
	return out
}
