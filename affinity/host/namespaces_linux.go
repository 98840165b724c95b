package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

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
