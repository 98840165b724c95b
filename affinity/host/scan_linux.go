package host

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

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
