package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// Scan reads the kernel once. Routes are those of the calling thread's network namespace.
// To read another namespace's routes, lock the goroutine to a thread and enter the
// namespace first.
//
// Scan returns an error if routes or processes cannot be read at all. Other failures are
// gaps of the view.
func Scan(ctx context.Context, o Options) (*blocks.HostView, error) {
	s := &scan{Options: o.withDefaults(), ctx: ctx, view: &blocks.HostView{
		APIVersion: blocks.APIVersion, Kind: blocks.HostViewKind, Node: o.Node,
		TakenAt: time.Now().UTC().Truncate(time.Millisecond), RulesKnown: true,
	}}
	var err error
	if s.kernel, err = openKernel(); err != nil {
		return nil, err
	}
	defer s.kernel.Close()
	if s.own, err = inodeOf("/proc/thread-self/ns/net"); err != nil {
		return nil, fmt.Errorf("finding the own network namespace: %w", err)
	}
	s.place()
	s.boot()
	// Read namespaces before links, so that every namespace found has its interface among
	// the links.
	if err := s.findSpaces(); err != nil {
		return nil, err
	}
	links, kept, err := steady(ctx, s.kernel.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	if !kept {
		s.spaceGap(neverSteady, "network interfaces", dumpTries)
	}
	s.show(links)
	t := &texts{links: map[int]string{}, gateways: map[netip.Addr]string{}}
	for _, l := range links {
		t.links[l.Attrs().Index] = l.Attrs().Name
	}
	if err := s.routes(t, links); err != nil {
		return nil, err
	}
	if err := s.lookups(t); err != nil {
		return nil, fmt.Errorf("asking the kernel for routes: %w", err)
	}
	slices.Sort(s.view.Gaps)
	s.view.Gaps = slices.Compact(s.view.Gaps)
	s.view.NamespacesComplete = !s.incomplete
	return s.view, nil
}

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

// kernelTimeout limits the wait for a kernel response. Responses are immediate; the limit
// keeps a scan from hanging forever.
const kernelTimeout = 10 * time.Second

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

// dumpTries limits the tries of a listing that changes while it is read. neverSteady is the
// gap if it changed each time.
const (
	dumpTries   = 4
	neverSteady = "the list of %s changed during each of the %d reads: entries may be missing or doubled"
)

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

// boot reads the machine's boot ID. Without it, only the node's name distinguishes
// machines.
func (s *scan) boot() {
	text, err := os.ReadFile(s.ProcRoot + "/sys/kernel/random/boot_id")
	if err != nil {
		s.gap("the boot ID could not be read: %v", err)
		return
	}
	s.view.BootID = strings.TrimSpace(string(text))
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

func (s *scan) sortedKeys() []uint64 { return slices.Sorted(maps.Keys(s.spaces)) }

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
