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

// Scan reads the kernel once. Routes are those of the calling thread's network
// namespace; to read those of another, lock the goroutine to a thread and enter the
// namespace first.
//
// An error means that there is no view: routes or processes could not be read at
// all. What is missing in a view beyond that is said in its Gaps.
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
	// Namespaces before links, so that none is found without its interface.
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

// scan is one scan as it goes on.
type scan struct {
	Options
	ctx    context.Context
	kernel *netlink.Handle
	view   *blocks.HostView
	// own is the number of the network namespace that the scan runs in.
	own uint64
	// spaces are the machine's network namespaces by number.
	spaces    map[uint64]*space
	mountinfo bytes.Buffer
	// incomplete is true if a namespace, or an address in one, may be missing.
	incomplete bool
	// blackholeRule is true if a routing rule drops packets by itself.
	blackholeRule bool
}

func (s *scan) gap(format string, args ...any) {
	s.view.Gaps = append(s.view.Gaps, fmt.Sprintf(format, args...))
}

// spaceGap notes what could not be read, where a namespace or an address may be
// missing for it.
func (s *scan) spaceGap(format string, args ...any) {
	s.incomplete = true
	s.gap(format, args...)
}

// kernelTimeout is how long an answer of the kernel is waited for. It answers at
// once; a bound keeps a scan from hanging for ever.
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

// dumpTries is how often a listing is made that changed while it was read, and
// neverSteady the gap of one that changed each time.
const (
	dumpTries   = 4
	neverSteady = "the list of %s changed each of the %d times that it was read: some may be missing, or twice in it"
)

// steady makes a listing, again if it changed meanwhile. If it never kept still,
// the last one stands, and kept is false: entries may be missing in it.
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

// boot reads which boot of which machine this is. Without it, views of the machine are
// told apart by its name alone.
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

// before orders what something is true of before the rest.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
